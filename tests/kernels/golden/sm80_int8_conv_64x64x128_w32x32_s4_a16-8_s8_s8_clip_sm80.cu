// sm80_int8_conv_64x64x128_w32x32_s4_a16-8_s8_s8_clip_sm80
#include "sm80_int8_conv.cuh"

using Spec = convoy::EpilogueSpec<int8_t, convoy::Activation::kClip, false, false>;
using Config = convoy::Sm80Int8Config<int8_t, Spec, 64, 64, 128, 32, 32, 4,
                                  cutlass::conv::IteratorAlgorithm::kOptimized,
                                  16, 8>;
using Kernel = convoy::Sm80Int8Conv<Config>;

CONVOY_EXPORT_KERNEL(Kernel)
