// dgrad_strided: its parameters, the sizes that it is compiled for, and its shared memory.
#pragma once

#include <cuda.h>

#include "divider.cuh"
#include "mbarrier.cuh"
#include "tile_order.cuh"

namespace convoy::hopper {

constexpr int kMaxPhases = 9;      // stride_h * stride_w
constexpr int kStepK = 64;         // channels of a reduction step: 128 bytes, the widest swizzle
constexpr int kBlockBytes = 8192;  // 64 rows of 128 bytes: unit of stores and of wgmma's operands

// Matrix of one phase.
struct Phase {
  int rows;          // n * extent_h * extent_w
  int plane, width;  // extent_h * extent_w, extent_w
  int tiles;         // along m
  int span;          // rows of a tile for each of the kernel's; above 1 for some zero phases
  Divider by_plane, by_width;
  PhaseAxis h, w;
};

// Where the pixels of a phase lie in dx, counted in pixels: first + n * step_n + h * step_h + w *
// step_w.
struct PixelSteps {
  int first, n, h, w;
};

struct DgradParams {
  CUtensorMap filter;          // (c, r * s, k)
  CUtensorMap dy[kMaxPhases];  // im2col; by phase
  CUtensorMap dx[kMaxPhases];  // pixels of the phase; first those with taps, then the zero ones
  Phase phase[kMaxPhases];
  PixelSteps steps[kMaxPhases];
  void* result;  // dx
  TileOrder order;
  int zero_spans;     // sum of the zero phases' spans
  int channel_steps;  // ceil(k / 64)
  int channels;       // c
  int filter_w, stride_h, stride_w;
};

template <class T, int kRows_, int kColumns_, int kStages_, int kSlots_, int kBatch_,
          int kConsumers_, bool kPingpong_, bool kSwapped_, bool kLater_, bool kStoreWarps_,
          bool kZeros_, int kSplit_>
struct DgradConfig {
  using Element = T;
  static constexpr int kRows = kRows_, kColumns = kColumns_, kStages = kStages_;
  static constexpr int kSplit = kSplit_;  // blocks that share the reduction of a tile
  static constexpr bool kPingpong = kPingpong_;
  static constexpr bool kSwapped = kSwapped_;  // consumers share the columns, not the rows
  static constexpr bool kStoreWarps =
      kStoreWarps_;                        // warps of their own store, not the copy engine
  static constexpr bool kZeros = kZeros_;  // room for the tile that zero phases are stored from
  static constexpr int kConsumers = kConsumers_;
  static constexpr int kThreads = 128 * (1 + kConsumers);
  static constexpr int kGroupRows = kPingpong || kSwapped ? kRows : kRows / kConsumers;
  static constexpr int kGroupColumns = kSwapped ? kColumns / kConsumers : kColumns;
  static constexpr int kBlocks = kGroupRows / 64;  // of a consumer, along m
  static constexpr int kColumnBlocks = kColumns / 64;
  static constexpr int kStageBytes = (kRows + kColumns) * 128;
  // Pieces of 64 rows and 64 columns: those of a consumer's tile, those that it has room for in
  // shared memory, those that it writes there between two barriers.
  static constexpr int kPieces = kBlocks * (kGroupColumns / 64);
  static constexpr int kSlots = kSlots_, kBatch = kBatch_;
  // Stores a tile under the arithmetic of the next one, from a rounded copy: half as many registers
  // as the accumulators, for which two cooperating consumers have room.
  static constexpr bool kLater = kLater_;
  // ptxas wants more registers for m64n256k16 than 512 threads may start with.
  static constexpr int kMmaColumns = kConsumers == 3 && kColumns == 256 ? 128 : kColumns;
  // A consumer's accumulators: blocks of 64 rows by columns of the matrix that wgmma sees.
  static constexpr int kMmaBlocks = kSwapped ? 1 : kBlocks;
  static constexpr int kMmaWidth = kSwapped ? kRows : kColumns;
  static constexpr int kZeroRows = kBlockBytes / 2 / kColumns;  // of dx, written from the zero tile
  // Offsets from a 1024-byte aligned base.
  static constexpr int kSlotsAt = kStages * kStageBytes;
  static constexpr int kZeroAt = kSlotsAt + kConsumers * kSlots * kBlockBytes;
  // Partial sums from the other blocks: for each consumer, sender, and own 64 columns.
  static constexpr int kOwnBlocks = kColumnBlocks / kSplit;
  static constexpr int kPartialBytes = kBlocks * kOwnBlocks * 2 * kBlockBytes;
  static constexpr int kPartialsAt = kZeroAt + (kZeros ? kBlockBytes : 0);
  static constexpr int kBarriersAt = kPartialsAt + kConsumers * (kSplit - 1) * kPartialBytes;
  static constexpr int kSlotBarriers = kStoreWarps ? 2 * kConsumers * kSlots : 0;
  static constexpr int kBarriers = 2 * kStages + 3 * kConsumers + kSlotBarriers;
  static constexpr int kSharedBytes = 1024 + kBarriersAt + kBarriers * 8;

  static_assert(kConsumers == 2 || (kConsumers == 3 && !kPingpong));
  static_assert(kGroupRows % 64 == 0 && kColumns % 64 == 0 && kColumns <= 256);
  static_assert(kColumns != 192, "no wgmma wrapper of that width");
  static_assert(kMmaBlocks * kMmaWidth <= 256, "accumulators must fit into registers");
  static_assert(!kSwapped || (!kPingpong && kSplit == 1 && kGroupColumns == 64));
  static_assert(kSplit == 1 || (!kPingpong && kColumnBlocks % kSplit == 0));
  static_assert(kSlots >= 1 && kSlots <= kPieces && kStages >= 2);
  static_assert(kSlots % kBatch == 0 && kPieces % kBatch == 0);
  static_assert(kSplit == 1 || kBlocks % kBatch == 0);
  static_assert(!kLater || (kConsumers == 2 && !kPingpong && kSplit == 1));
  static_assert(!kStoreWarps || (kLater && kBatch == 1));
  static_assert(kSharedBytes <= 232448, "shared memory of a block on sm_90");
};

// Shared memory addresses.
template <class Config>
struct DgradShared {
  uint32_t base;
  __device__ explicit DgradShared(const void* raw) : base((shared_address(raw) + 1023) & ~1023u) {}
  __device__ uint32_t a(int stage) const { return base + stage * Config::kStageBytes; }
  __device__ uint32_t b(int stage) const { return a(stage) + Config::kRows * 128; }
  __device__ uint32_t slot(int group, int i) const {
    return base + Config::kSlotsAt + (group * Config::kSlots + i) * kBlockBytes;
  }
  __device__ uint32_t zero() const { return base + Config::kZeroAt; }
  __device__ uint32_t full(int stage) const { return base + Config::kBarriersAt + 8 * stage; }
  __device__ uint32_t empty(int stage) const { return full(Config::kStages + stage); }
  __device__ uint32_t turn(int group) const { return full(2 * Config::kStages + group); }
  __device__ uint32_t partial(int group, int sender) const {
    return base + Config::kPartialsAt +
           (group * (Config::kSplit - 1) + sender) * Config::kPartialBytes;
  }
  // Partial sums have arrived; those that were sent have been read.
  __device__ uint32_t ready(int group) const { return turn(Config::kConsumers + group); }
  __device__ uint32_t taken(int group) const { return turn(2 * Config::kConsumers + group); }
  // With store warps: a slot has been written; it has been read.
  __device__ uint32_t filled(int group, int slot) const {
    return turn(3 * Config::kConsumers + group * Config::kSlots + slot);
  }
  __device__ uint32_t drained(int group, int slot) const {
    return filled(Config::kConsumers + group, slot);
  }
};

}  // namespace convoy::hopper
