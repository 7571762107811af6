// sm90_conv_128x256x64_c2x1_cooperative_f16_f16
#include "sm90_conv.cuh"

using Spec = convoy::EpilogueSpec<cutlass::half_t, convoy::Activation::kNone, false, false>;
using Config = convoy::Sm90Config<cutlass::half_t, Spec, 128, 256, 64, 2, 1,
                                  convoy::Schedule::kCooperative,
                                  convoy::Scheduler::kPersistent, 0>;
using Kernel = convoy::Sm90Conv<Config>;

CONVOY_EXPORT_KERNEL(Kernel)
