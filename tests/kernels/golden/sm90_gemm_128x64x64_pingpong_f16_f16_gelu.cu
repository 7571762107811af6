// sm90_gemm_128x64x64_pingpong_f16_f16_gelu
#include "sm90_gemm_activated.cuh"
#include "gelu16.cuh"

using Spec = convoy::ActivatedSpec<cutlass::half_t, convoy::kGelu16, false, false>;
using Config = convoy::Sm90Config<cutlass::half_t, Spec, 128, 64, 64, 1, 1,
                                  convoy::Schedule::kPingpong,
                                  convoy::Scheduler::kPersistent, 0>;
using Kernel = convoy::Sm90Gemm<Config>;

CONVOY_EXPORT_KERNEL(Kernel)
