// sm80_strided_dgrad_128x64x64_w64x32_s4_a4-8_f16_f16
#include "sm80_strided_dgrad.cuh"

using Spec = convoy::EpilogueSpec<cutlass::half_t, convoy::Activation::kNone, false, false>;
using Config = convoy::Sm80BackwardConfig<cutlass::half_t, Spec, 128, 64, 64, 64, 32, 4,
                                  cutlass::conv::IteratorAlgorithm::kOptimized,
                                  4, 8>;
using Kernel = convoy::Sm80StridedDgrad<Config>;

CONVOY_EXPORT_KERNEL(Kernel)
