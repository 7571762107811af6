// sm90_wgrad_64x128x64_pingpong_splitk_f16_f32
#include "sm90_wgrad.cuh"

using Spec = convoy::EpilogueSpec<float, convoy::Activation::kNone, false, false>;
using Config = convoy::Sm90Config<cutlass::half_t, Spec, 64, 128, 64, 1, 1,
                                  convoy::Schedule::kPingpong,
                                  convoy::Scheduler::kSplitK, 0>;
using Kernel = convoy::Sm90Wgrad<Config>;

CONVOY_EXPORT_KERNEL(Kernel)
