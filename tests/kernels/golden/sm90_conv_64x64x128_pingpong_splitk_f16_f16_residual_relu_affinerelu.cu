// sm90_conv_64x64x128_pingpong_splitk_f16_f16_residual_relu_affinerelu
#include "sm90_conv.cuh"

using Spec = convoy::EpilogueSpec<cutlass::half_t, convoy::Activation::kRelu, true, true>;
using Config = convoy::Sm90Config<cutlass::half_t, Spec, 64, 64, 128, 1, 1,
                                  convoy::Schedule::kPingpong,
                                  convoy::Scheduler::kSplitK, 0>;
using Kernel = convoy::Sm90Conv<Config>;

CONVOY_EXPORT_KERNEL(Kernel)
