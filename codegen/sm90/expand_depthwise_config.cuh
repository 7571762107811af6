// What a launch of expand_depthwise.cuh is given, and what lies where in the shared memory of a block.
#pragma once

#include "divider.cuh"
#include "expand_depthwise_layout.cuh"
#include "ptx.cuh"
#include "rounded_bounds.cuh"
#include "shared_values.cuh"
#include "wgmma_rows.cuh"

namespace convoy::sm90 {

CONVOY_MMA_ROWS(__half, "f16", 48, 24, 24, 25, 26)
CONVOY_MMA_ROWS(__nv_bfloat16, "bf16", 48, 24, 24, 25, 26)

struct ExpandParams {
  CUtensorMap x, w;  // (channels, w, h, n), boxes of a tile; (channels, k), boxes of 64 x 64
  const void *filter, *expand_bias, *bias;  // the biases may be null
  void* y;
  ExpandShape shape;
  ExpandTile tile;
  int k, slabs, steps;  // of x: 64 and 16 channels
  int tiles;            // of all images
  Divider by_across, by_down, by_rows, by_strips;
  int expand_activation, activation;
  ClipBounds expand_bounds, bounds;
  int constant_weights;
};

template <class T, int kColumns_, int kFilter_, int kStride_>
struct ExpandConfig {
  using Element = T;
  static constexpr int kColumns = kColumns_;  // channels of a block
  static constexpr int kFilter = kFilter_, kTaps = kFilter * kFilter, kStride = kStride_;
  static constexpr int kThreads = 128, kBlocksOfSm = kFilter == 3 ? 4 : 3;
  static constexpr int kLanes = kColumns / 2;  // of a pixel: each has two channels
  static constexpr int kUnits = kThreads / kLanes;
  static constexpr int kWindow = (kExpandStrip - 1) * kStride + kFilter;
  // Rows of outputs that a row of the input adds to, and after how many of these they are the same.
  static constexpr int kSlots = (kFilter + kStride - 1) / kStride, kPeriod = kSlots * kStride;
  // Rows of wide pixels begin in different banks.
  static constexpr int kPitch = 2 * kColumns + 16;

  static constexpr int64_t shared_bytes(int64_t slabs, int groups) {
    const int pixels = groups * 64;
    return 1024 + slabs * (pixels + kColumns) * 128 + pixels * kPitch + (kTaps + 1) * 4 * kColumns +
           2 * 8;
  }
};

template <class Config>
struct ExpandShared {
  uint32_t base;
  int slabs, pixels_of_chunk;
  __device__ ExpandShared(const void* raw, const ExpandParams& params)
      : base((shared_address(raw) + 1023) & ~1023u),
        slabs(params.slabs),
        pixels_of_chunk(params.tile.groups * 64) {}
  __device__ uint32_t pixels(int slab) const { return base + slab * pixels_of_chunk * 128; }
  __device__ uint32_t weights(int slab) const {
    return pixels(slabs) + slab * Config::kColumns * 128;
  }
  __device__ uint32_t wide() const { return weights(slabs); }
  __device__ uint32_t filter(int tap) const {
    return wide() + pixels_of_chunk * Config::kPitch + tap * 4 * Config::kColumns;
  }
  __device__ uint32_t bias() const { return filter(Config::kTaps); }
  __device__ uint32_t pixels_full() const { return bias() + 4 * Config::kColumns; }
  __device__ uint32_t weights_full() const { return pixels_full() + 8; }
};

// Those of activations.cuh that stand around depthwise convolutions; a launch chooses two. The first
// ones are those of rounded_bounds.cuh.
constexpr Activation kExpandActivationList[] = {
    Activation::kNone, Activation::kRelu, Activation::kClip, Activation::kSilu, kHardSwish, kGelu};
constexpr int kExpandActivations = 6;

__device__ __forceinline__ float reciprocal(float x) {
  float result;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}

// 1 + exp(-x), at most 2^63; that of NaN is finite too.
__device__ __forceinline__ float one_and_exp(float x) {
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(fminf(x * -1.4426950408889634f, 63.0f)));
  return 1.0f + result;
}

// x / (1 + exp(-x)) of two values by one reciprocal: 1 / a is b / (a b). A NaN stays where it is.
__device__ __forceinline__ void silu_pair(float& x, float& y) {
  const float a = one_and_exp(x), b = one_and_exp(y), inverse = reciprocal(a * b);
  x *= b * inverse;
  y *= a * inverse;
}

// One branch for all values of a thread; bounds are left to clip_pair().
template <int kFrom = kBoundsChoices, int kCount>
__device__ __forceinline__ void activate_chosen(float (&d)[kCount], int chosen) {
  if constexpr (kFrom < kExpandActivations) {
    if (chosen < kBoundsChoices) return;
    if (chosen != kFrom) return activate_chosen<kFrom + 1>(d, chosen);
#pragma unroll
    for (int i = 0; i < kCount; i += 2) {
      if constexpr (kExpandActivationList[kFrom] == Activation::kSilu) {
        silu_pair(d[i], d[i + 1]);
      } else {
        d[i] = activate<kExpandActivationList[kFrom]>(d[i], {});
        d[i + 1] = activate<kExpandActivationList[kFrom]>(d[i + 1], {});
      }
      if (i % 8 == 6) pin(d);  // no more at once than there are registers for
    }
  }
}

}  // namespace convoy::sm90
