// The sums of image_conv.cuh: from pixels in shared memory to rounded results there.
#pragma once

#include "../cutlass/activations.cuh"
#include "image_conv_config.cuh"

namespace convoy::sm90 {

// A warpgroup: the sums of 64 rows over all taps for one block of columns, which begin as the bias.
// `upper` and `lower` are the first pixels of the thread's two rows.
template <class Config>
__device__ void multiply_image(const ImageConvParams& params, const ImageConvShared<Config>& shared,
                               uint32_t upper, uint32_t lower, int block,
                               float (&d)[Config::kColumns / 2]) {
  using Mma = MmaRegisters<typename Config::Element, Config::kColumns>;
  const int lane = threadIdx.x % 32;
  const uint32_t bias = shared.bias + 4 * block * Config::kColumns + lane % 4 * 8;
#pragma unroll
  for (int j = 0; j < Config::kColumns / 8; ++j) {
    const float2 two = load_shared_float2(bias + 32 * j);
    d[4 * j] = d[4 * j + 2] = two.x;
    d[4 * j + 1] = d[4 * j + 3] = two.y;
  }
  const uint32_t offsets = shared.offsets + lane % 4 * 4;
  const uint64_t filter = operand(shared.columns(block, 0), 16, 1024);
  // Taps that only fill up the last steps read nothing: zero times an infinite pixel is not zero.
  const auto multiply = [&](int step, bool first_there, bool second_there) {
    uint2 high[2], low[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const uint32_t offset = load_shared_u32(offsets + 16 * (step + i));
      const bool there = i ? second_there : first_there;
      high[i] = there ? load_shared_u64(upper + offset) : make_uint2(0, 0);
      low[i] = there ? load_shared_u64(lower + offset) : make_uint2(0, 0);
    }
    pin(d);
    mma_fence();
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const uint64_t b = filter + step / 4 * (Config::kColumns * 8) + (step % 4 + i) * 2;
      Mma::mma(d, high[i].x, low[i].x, high[i].y, low[i].y, b);
    }
    mma_commit();
    mma_wait<0>();
    pin(d);
  };
  const int last = params.steps - 2, tap = last * kImageStepTaps + lane % 4;
#pragma unroll 1
  for (int step = 0; step < last; step += 2) multiply(step, true, true);
  multiply(last, tap < params.taps, tap + kImageStepTaps < params.taps);
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
