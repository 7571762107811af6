// dgrad_strided: its parameters, the sizes that it is compiled for, and its shared memory.
#pragma once

#include <cuda.h>

#include "divider.cuh"
#include "mbarrier.cuh"
#include "tile_order.cuh"

namespace convoy::sm90 {

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

struct DgradParams {
  CUtensorMap filter;          // (c, r * s, k)
  CUtensorMap dy[kMaxPhases];  // im2col; by phase
  CUtensorMap dx[kMaxPhases];  // pixels of the phase; first those with taps, then the zero ones
  Phase phase[kMaxPhases];
  alignas(16) TileOrder order;  // read four words at a time
  int zero_spans;               // sum of the zero phases' spans
  int channel_steps;            // ceil(k / 64)
  int channels;                 // c
  int filter_w, stride_h, stride_w;
};

// The choices that a kernel is compiled with. backends/kernels/sm90/dgrad.py writes them into the
// source of a kernel, and is where it is checked that they go together.
struct DgradOptions {
  int rows, columns;         // tile of a phase's matrix: pixels of dx, channels
  int stages;                // of the load pipeline
  int epilogue_stages;       // subtiles of 64 rows and 64 columns that a consumer has room for
  int commit_group;          // subtiles that it writes between two barriers and commits together
  int consumers;             // warpgroups that multiply: 2, or 3 that share a tile
  bool pingpong;             // consumers work on tiles of their own, in turn
  bool swap_ab;              // consumers share a tile's columns, not its rows
  bool overlapped_epilogue;  // a tile is stored under the main loop of the next one
  bool zeros;                // room for the tile that zero phases are stored from
  int split;                 // blocks of a cluster that share the reduction of a tile
};

// Sizes that follow from the options.
template <class T, const DgradOptions& kOptions>
struct DgradConfig {
  using Element = T;
  static constexpr int kRows = kOptions.rows, kColumns = kOptions.columns;
  static constexpr int kStages = kOptions.stages, kEpilogueStages = kOptions.epilogue_stages;
  static constexpr int kCommitGroup = kOptions.commit_group, kConsumers = kOptions.consumers;
  static constexpr bool kPingpong = kOptions.pingpong, kSwapAB = kOptions.swap_ab;
  // From a rounded copy: half as many registers as the accumulators, for which two cooperating
  // consumers have room.
  static constexpr bool kOverlapped = kOptions.overlapped_epilogue;
  static constexpr bool kZeros = kOptions.zeros;
  static constexpr int kSplit = kOptions.split;

  static constexpr int kThreads = 128 * (1 + kConsumers);
  static constexpr int kGroupRows = kPingpong || kSwapAB ? kRows : kRows / kConsumers;
  static constexpr int kGroupColumns = kSwapAB ? kColumns / kConsumers : kColumns;
  static constexpr int kBlocks = kGroupRows / 64;  // of a consumer, along m
  static constexpr int kColumnBlocks = kColumns / 64;
  static constexpr int kStageBytes = (kRows + kColumns) * 128;
  // Subtiles of 64 rows and 64 columns of a consumer's tile.
  static constexpr int kSubtiles = kBlocks * (kGroupColumns / 64);
  // ptxas wants more registers for m64n256k16 than 512 threads may start with.
  static constexpr int kMmaColumns = kConsumers == 3 && kColumns == 256 ? 128 : kColumns;
  // A consumer's accumulators: blocks of 64 rows by columns of the matrix that wgmma sees.
  static constexpr int kMmaBlocks = kSwapAB ? 1 : kBlocks;
  static constexpr int kMmaWidth = kSwapAB ? kRows : kColumns;
  static constexpr int kZeroRows = kBlockBytes / 2 / kColumns;  // of dx, written from the zero tile
  // Offsets from a 1024-byte aligned base.
  static constexpr int kEpilogueAt = kStages * kStageBytes;
  static constexpr int kZeroAt = kEpilogueAt + kConsumers * kEpilogueStages * kBlockBytes;
  // Partial sums from the other blocks: for each consumer, sender, and own 64 columns.
  static constexpr int kOwnBlocks = kColumnBlocks / kSplit;
  static constexpr int kPartialBytes = kBlocks * kOwnBlocks * 2 * kBlockBytes;
  static constexpr int kPartialsAt = kZeroAt + (kZeros ? kBlockBytes : 0);
  static constexpr int kBarriersAt = kPartialsAt + kConsumers * (kSplit - 1) * kPartialBytes;
  static constexpr int kBarriers = 2 * kStages + 3 * kConsumers;
  static constexpr int kSharedBytes = 1024 + kBarriersAt + kBarriers * 8;

  static_assert(kSharedBytes <= 232448, "shared memory of a block on sm_90");
};

// Shared memory addresses.
template <class Config>
struct DgradShared {
  uint32_t base;
  __device__ explicit DgradShared(const void* raw) : base((shared_address(raw) + 1023) & ~1023u) {}
  __device__ uint32_t a(int stage) const { return base + stage * Config::kStageBytes; }
  __device__ uint32_t b(int stage) const { return a(stage) + Config::kRows * 128; }
  __device__ uint32_t subtile(int group, int i) const {
    return base + Config::kEpilogueAt + (group * Config::kEpilogueStages + i) * kBlockBytes;
  }
  __device__ uint32_t zero() const { return base + Config::kZeroAt; }
  __device__ uint32_t full(int stage) const { return base + Config::kBarriersAt + 8 * stage; }
  __device__ uint32_t empty(int stage) const { return full(Config::kStages + stage); }
  // Order barrier of the pingpong schedule.
  __device__ uint32_t order(int group) const { return full(2 * Config::kStages + group); }
  __device__ uint32_t partial(int group, int sender) const {
    return base + Config::kPartialsAt +
           (group * (Config::kSplit - 1) + sender) * Config::kPartialBytes;
  }
  // Partial sums have arrived; those that were sent have been read.
  __device__ uint32_t ready(int group) const { return order(Config::kConsumers + group); }
  __device__ uint32_t taken(int group) const { return order(2 * Config::kConsumers + group); }
};

}  // namespace convoy::sm90
