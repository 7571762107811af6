// The sums of image_conv.cuh: from pixels in shared memory to rounded results there.
#pragma once

#include "../cutlass/activations.cuh"
#include "image_conv_config.cuh"

namespace convoy::sm90 {

// A warpgroup: the sums of 64 rows over all taps for one block of columns, which begin as the bias.
// `upper` and `lower` are the addresses of the first pixels of the thread's two rows.
template <class Config>
__device__ void multiply_image(const ImageConvShared<Config>& shared, uint32_t upper,
                               uint32_t lower, int block, float (&d)[Config::kColumns / 2]) {
  using Mma = MmaRegisters<typename Config::Element, Config::kColumns>;
  const int lane = threadIdx.x % 32;
  const uint32_t bias = shared.bias + 4 * block * Config::kColumns + lane % 4 * 8;
#pragma unroll
  for (int j = 0; j < Config::kColumns / 8; ++j) {
    const float2 two = load_shared_float2(bias + 32 * j);
    d[4 * j] = d[4 * j + 2] = two.x;
    d[4 * j + 1] = d[4 * j + 3] = two.y;
  }
  uint32_t taps = shared.taps + lane % 4 * 32;
  uint64_t filter = operand(shared.columns(block, 0), 16, 1024);
#pragma unroll 1
  for (int group = 0; group < shared.groups; ++group) {
    const uint4 first = load_shared_u128(taps), last = load_shared_u128(taps + 16);
    const uint2 four[] = {
        {first.x, first.y}, {first.z, first.w}, {last.x, last.y}, {last.z, last.w}};
    uint2 high[4], low[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      high[i] = load_shared_u64(upper * four[i].x + four[i].y);
      low[i] = load_shared_u64(lower * four[i].x + four[i].y);
    }
    pin(d);
    mma_fence();
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      Mma::mma(d, high[i].x, low[i].x, high[i].y, low[i].y, filter + 2 * i);
    }
    mma_commit();
    taps += kImageGroupBytes;
    filter += Config::kColumns * 8;
    mma_wait<0>();
    pin(d);
  }
}

// In the order of convoy.ir.activation.ACTIVATIONS, without tanh, which takes too many registers.
constexpr Activation kImageActivationList[] = {Activation::kNone,
                                               Activation::kRelu,
                                               Activation::kClip,
                                               Activation::kSigmoid,
                                               Activation::kSilu,
                                               kGelu,
                                               kGeluTanh,
                                               kHardSwish,
                                               kLeakyRelu,
                                               kElu,
                                               kMish,
                                               kSoftplus};
constexpr int kImageActivations = 12;

// One branch for all sums of a thread.
template <int kFrom = 1, int kCount>
__device__ __forceinline__ void activate_sums(float (&d)[kCount], const ImageConvParams& params) {
  if constexpr (kFrom < kImageActivations) {
    if (params.activation != kFrom) return activate_sums<kFrom + 1>(d, params);
    const ClipBounds bounds{params.clip_min, params.clip_max};
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      d[i] = activate<kImageActivationList[kFrom]>(d[i], bounds);
      if (i % 8 == 7) pin(d);  // no more at once than there are registers for
    }
  }
}

// A warp: its 16 rows of sums, rounded, into the block's results.
template <class Config>
__device__ void keep_sums(const ImageConvParams& params, const ImageConvShared<Config>& shared,
                          int row, float (&d)[Config::kColumns / 2]) {
  using T = typename Config::Element;
  activate_sums(d, params);
  const int lane = threadIdx.x % 32;
  const uint32_t to = shared.results +
                      (row + threadIdx.x / 32 % 4 * 16 + (lane & 15)) * Config::kResultPitch +
                      (lane >> 4) * 16;
#pragma unroll
  for (int j = 0; j < Config::kColumns / 8; j += 2) {
    store_matrices(to + 16 * j, pack<T>(d[4 * j], d[4 * j + 1]),
                   pack<T>(d[4 * j + 2], d[4 * j + 3]), pack<T>(d[4 * j + 4], d[4 * j + 5]),
                   pack<T>(d[4 * j + 6], d[4 * j + 7]));
  }
}

}  // namespace convoy::sm90
