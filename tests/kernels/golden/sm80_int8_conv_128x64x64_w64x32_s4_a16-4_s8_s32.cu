// sm80_int8_conv_128x64x64_w64x32_s4_a16-4_s8_s32
#include "sm80_int8_conv.cuh"

using Spec = convoy::EpilogueSpec<int32_t, convoy::Activation::kNone, false, false>;
using Config = convoy::Sm80Int8Config<int8_t, Spec, 128, 64, 64, 64, 32, 4,
                                  cutlass::conv::IteratorAlgorithm::kOptimized,
                                  16, 4>;
using Kernel = convoy::Sm80Int8Conv<Config>;

CONVOY_EXPORT_KERNEL(Kernel)
