// sm80_conv_64x64x64_w32x32_s4_f16_f16_silu_residual_sm80
#include "sm80_conv_activated.cuh"

using Spec = convoy::ActivatedSpec<cutlass::half_t, convoy::residual_last(convoy::Activation::kSilu), true, false>;
using Config = convoy::Sm80Config<cutlass::half_t, Spec, 64, 64, 64, 32, 32, 4,
                                  cutlass::conv::IteratorAlgorithm::kOptimized,
                                  8, 8, false>;
using Kernel = convoy::Sm80Conv<Config>;

CONVOY_EXPORT_KERNEL(Kernel)
