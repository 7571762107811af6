// What a launch of bottleneck.cuh is given, and what lies where in the shared memory of a block.
#pragma once

#include "divider.cuh"
#include "ptx.cuh"
#include "rounded_bounds.cuh"
#include "shared_values.cuh"
#include "wgmma_rows.cuh"

namespace convoy::sm90 {

CONVOY_MMA_REGISTERS(__half, "f16", 128, 64, 64, 65, 66, 67, 68)
CONVOY_MMA_REGISTERS(__nv_bfloat16, "bf16", 128, 64, 64, 65, 66, 67, 68)

constexpr int kBottleneckTile = 8;  // rows and columns of outputs
constexpr int kMostBottleneckSlots = 4, kMostBottleneckStages = 12;

constexpr int bottleneck_up(int size, int unit) { return (size + unit - 1) / unit; }

// Of one of the convolutions: its bias (may be null) and activation.
struct BottleneckEpilogue {
  const void* bias;
  int channels, activation;
  ClipBounds bounds;
};

struct BottleneckParams {
  // (c, w, h, n), boxes of the input of a tile; (c, taps, k); (k, expand); (expand, reduce)
  CUtensorMap x, filter, expand, reduce;
  CUtensorMap residuals, y, z;  // (channels, q, p, n), boxes of a tile of 64 channels
  BottleneckEpilogue conv, expanded, reduced;
  int filter_w, taps, dilation_h, dilation_w, pad_top, pad_left;
  int pitch, input_bytes, input_stride;  // of a tile's input, of 64 channels
  int chunks;                            // of x: 64 channels
  int blocks, reduced_blocks;            // of y and z: 64 channels
  int tiles, across, down;               // of all images, side by side, on top of each other
  Divider by_across, by_down;
  int slots, stages;
  int weight_bytes;  // in shared memory
  int residual, constant_weights;
};

// kMiddle and kReduced: channels of the first and the third convolution at most; kReduced is 0 where
// there is no third one. kGroups: warpgroups that compute. kStreamed: weights come again for every
// round of tiles, through a ring, instead of once.
template <class T, int kMiddle_, int kReduced_, int kGroups_, bool kStreamed_>
struct BottleneckConfig {
  using Element = T;
  static constexpr int kMiddle = kMiddle_, kReduced = kReduced_;
  static constexpr int kGroups = kGroups_, kConsumers = 128 * kGroups;
  static constexpr int kThreads = kConsumers + 32 * (kGroups + 1);
  static constexpr int kBlockBytes = 64 * 128;  // 64 pixels or output channels, 64 input channels
  static constexpr int kTapBytes = kMiddle * 128, kExpandBytes = kMiddle * 128;
  static constexpr int kReduceBytes = kReduced * 128;
  static constexpr bool kStreamed = kStreamed_;
  // Alone, a warpgroup has the next product computed while it rounds and stores the last one's sums.
  static constexpr bool kAhead = kGroups == 1 && kReduced > 0;
  static_assert(kGroups == 1 || !kStreamed, "streamed weights have one reader");
  static constexpr int kStageBytes = kMiddle > kReduced ? kTapBytes : kReduceBytes;

  // All weights, or stages of their ring.
  static constexpr int64_t weight_bytes(int64_t taps, int64_t chunks, int64_t blocks, int stages) {
    if (kStreamed) return stages * int64_t(kStageBytes);
    return taps * chunks * kTapBytes + blocks * (kExpandBytes + kReduceBytes);
  }

  static constexpr int64_t shared_bytes(int64_t weights, int64_t chunks, int64_t blocks,
                                        int64_t input_stride, int slots) {
    return 1024 + weights + kGroups * (chunks * input_stride + slots * kBlockBytes) +
           4 * (kMiddle + 64 * blocks + kReduced) + 512;
  }
};

// Weights of the three convolutions; for each warpgroup the input of a tile and slots for blocks of
// results; biases; barriers.
template <class Config>
struct BottleneckShared {
  uint32_t base, expands, inputs, slots_begin, biases;
  int chunks, blocks, input_stride, slots;
  __device__ BottleneckShared(const void* raw, const BottleneckParams& params)
      : base((shared_address(raw) + 1023) & ~1023u),
        expands(base + params.taps * params.chunks * Config::kTapBytes),
        inputs(base + params.weight_bytes),
        slots_begin(inputs + Config::kGroups * params.chunks * params.input_stride),
        biases(slots_begin + Config::kGroups * params.slots * Config::kBlockBytes),
        chunks(params.chunks),
        blocks(params.blocks),
        input_stride(params.input_stride),
        slots(params.slots) {}
  __device__ uint32_t filter(int step) const { return base + step * Config::kTapBytes; }
  __device__ uint32_t expand(int block, int chunk) const {
    return expands + block * Config::kExpandBytes + chunk * Config::kBlockBytes;
  }
  __device__ uint32_t reduce(int block) const {
    return expands + blocks * Config::kExpandBytes + block * Config::kReduceBytes;
  }
  __device__ uint32_t stage(int stage) const { return base + stage * Config::kStageBytes; }
  __device__ uint32_t input(int group, int chunk) const {
    return inputs + (group * chunks + chunk) * input_stride;
  }
  __device__ uint32_t slot(int group, int slot) const {
    return slots_begin + (group * slots + slot) * Config::kBlockBytes;
  }
  __device__ uint32_t bias() const { return biases; }
  __device__ uint32_t expand_bias() const { return biases + 4 * Config::kMiddle; }
  __device__ uint32_t reduce_bias() const { return expand_bias() + 4 * 64 * blocks; }
  __device__ uint32_t full(int group) const {
    return reduce_bias() + 4 * Config::kReduced + 8 * group;
  }
  __device__ uint32_t empty(int group) const { return full(Config::kGroups + group); }
  __device__ uint32_t filter_full() const { return full(2 * Config::kGroups); }
  __device__ uint32_t rest_full() const { return filter_full() + 8; }
  __device__ uint32_t ready(int group, int slot) const {
    return rest_full() + 8 + 8 * (group * kMostBottleneckSlots + slot);
  }
  __device__ uint32_t done(int group, int slot) const {
    return ready(Config::kGroups + group, slot);
  }
  __device__ uint32_t stage_full(int stage) const {
    return ready(2 * Config::kGroups, 0) + 8 * stage;
  }
  __device__ uint32_t stage_empty(int stage) const {
    return stage_full(kMostBottleneckStages + stage);
  }
};

}  // namespace convoy::sm90
