// sm90_gemm_128x128x64_cooperative_e5-3x64_f16_f16_residual_affinerelu
#include "sm90_gemm.cuh"

using Spec = convoy::EpilogueSpec<cutlass::half_t, convoy::Activation::kNone, true, true>;
using Config = convoy::Sm90Config<cutlass::half_t, Spec, 128, 128, 64, 1, 1,
                                  convoy::Schedule::kCooperative,
                                  convoy::Scheduler::kPersistent, 0,
                                  convoy::EpilogueShape<5, 3, 64>>;
using Kernel = convoy::Sm90Gemm<Config>;

CONVOY_EXPORT_KERNEL(Kernel)
