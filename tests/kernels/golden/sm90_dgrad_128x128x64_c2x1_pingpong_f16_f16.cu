// sm90_dgrad_128x128x64_c2x1_pingpong_f16_f16
#include "sm90_dgrad.cuh"

using Spec = convoy::EpilogueSpec<cutlass::half_t, convoy::Activation::kNone, false, false>;
using Config = convoy::Sm90Config<cutlass::half_t, Spec, 128, 128, 64, 2, 1,
                                  convoy::Schedule::kPingpong,
                                  convoy::Scheduler::kPersistent, 0>;
using Kernel = convoy::Sm90Dgrad<Config>;

CONVOY_EXPORT_KERNEL(Kernel)
