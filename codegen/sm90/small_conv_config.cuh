// Sizes of a block of small_conv.cuh, and what lies where in its shared memory.
#pragma once

#include <type_traits>

#include "ptx.cuh"
#include "small_conv_layout.cuh"

namespace convoy::sm90 {

struct SmallConvParams;
template <class Config>
struct SmallConvShared;
template <class Config>
struct RowsOfPixels;

// Warpgroups of a block: some side by side along the rows of the tile, for each of several parts of
// the reduction (a step belongs to one part).
template <class T, int kRowGroups_, int kColumns_, int kParts_, class Activation_>
struct SmallConvConfig {
  using Element = T;
  using Activation = Activation_;
  using Params = SmallConvParams;
  using Shared = SmallConvShared<SmallConvConfig>;
  using Pixels = RowsOfPixels<SmallConvConfig>;
  static constexpr int kChunk = 128 / sizeof(T);  // channels of a step
  static constexpr int kRowGroups = kRowGroups_, kRows = 64 * kRowGroups;
  static constexpr int kColumns = kColumns_, kParts = kParts_;
  static constexpr int kConsumers = 128 * kRowGroups * kParts, kThreads = kConsumers + 32;
  static constexpr int kABytes = kRows * 128, kStageBytes = kABytes + kColumns * 128;
  // float32 in three products of tf32: the rests of two tiles of weights.
  static constexpr bool kExact = std::is_same<T, float>::value;
  static constexpr int kRestBytes = kExact ? kColumns * 128 : 0;
  // A row of sums, longer by 32 bytes: eight rows of a warp's sums lie in different banks.
  static constexpr int kPitch = kColumns + 8;
  static constexpr int kSumBytes = kRows * kPitch * 4;  // of one part
  static constexpr int kAllSumBytes = kParts * kSumBytes, kWarpSumBytes = 16 * kPitch * 4;
  // Where sums are exchanged they lie in the ring for a while.
  static constexpr int kLeastStagesToExchange = (kAllSumBytes + kStageBytes - 1) / kStageBytes;

  static constexpr int shared_bytes(int stages) {
    return 1024 + stages * (kStageBytes + 16) + 2 * kRestBytes + kAllSumBytes + 8;
  }
};

template <class Config>
struct SmallConvShared {
  uint32_t base;
  int stages;
  __device__ SmallConvShared(const void* raw, const typename Config::Params& params)
      : base((shared_address(raw) + 1023) & ~1023u), stages(params.stages) {}
  __device__ uint32_t a(int stage) const { return base + stage * Config::kStageBytes; }
  __device__ uint32_t b(int stage) const { return a(stage) + Config::kABytes; }
  __device__ uint32_t rest(int which) const { return a(stages) + which * Config::kRestBytes; }
  __device__ uint32_t sums() const { return rest(2); }
  __device__ uint32_t full(int stage) const { return sums() + Config::kAllSumBytes + 8 * stage; }
  __device__ uint32_t empty(int stage) const { return full(stages + stage); }
  __device__ uint32_t all_sums() const { return full(2 * stages); }
};

}  // namespace convoy::sm90
