// sm90_gemm_128x64x32_cooperative_streamk_a4-4_f32_f32_silu
#include "sm90_gemm.cuh"

using Spec = convoy::EpilogueSpec<float, convoy::Activation::kSilu, false, false>;
using Config = convoy::Sm90Config<float, Spec, 128, 64, 32, 1, 1,
                                  convoy::Schedule::kCooperative,
                                  convoy::Scheduler::kStreamK, 0>;
using Kernel = convoy::Sm90Gemm<Config>;

CONVOY_EXPORT_KERNEL(Kernel)
