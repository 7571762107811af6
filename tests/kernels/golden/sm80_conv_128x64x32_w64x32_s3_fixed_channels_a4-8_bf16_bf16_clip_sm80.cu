// sm80_conv_128x64x32_w64x32_s3_fixed_channels_a4-8_bf16_bf16_clip_sm80
#include "sm80_conv.cuh"

using Spec = convoy::EpilogueSpec<cutlass::bfloat16_t, convoy::Activation::kClip, false, false>;
using Config = convoy::Sm80Config<cutlass::bfloat16_t, Spec, 128, 64, 32, 64, 32, 3,
                                  cutlass::conv::IteratorAlgorithm::kFixedChannels,
                                  4, 8, false>;
using Kernel = convoy::Sm80Conv<Config>;

CONVOY_EXPORT_KERNEL(Kernel)
