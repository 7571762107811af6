// wgrad of a network's first convolution on sm_90a: c <= 4.
//
// dw (k,r,s,c) from x (n,h,w,c) and dy (n,p,q,k), all as they lie in memory. A block streams down
// the rows of dy and of x, each of which TMA loads once per strip with zeros at all
// borders, into two rings. dw^T stays in the accumulators, 64 elements of the window and 64 output
// channels to a warpgroup: the first operand of wgmma is read from the raw rows of x straight into
// registers (stem_wgrad_layout.cuh), the second one is dy as it lies, a pixel to a row of 128 bytes.
// Pixels beyond an edge have dy = 0. (So an infinity or NaN of x next to the last window of a row
// reaches the result.) Every warpgroup leaves its sums in the workspace; wgrad_sums.cuh adds them up.
//
// `parts` sets of warpgroups take the rows of dy in turn. blockIdx.y tells which 64 channels.
#pragma once

#include "ptx.cuh"
#include "stem_wgrad_layout.cuh"
#include "wgmma_streamed.cuh"

namespace convoy::sm90 {

struct StemWgradParams {
  CUtensorMap x;    // (w * c / 4, h, n) of 64 bits each: boxes of a strip's part of a row
  CUtensorMap dy;   // (k, q, p, n), boxes of 64 x strip_columns
  float* partials;  // (blocks * parts, blocks of 64 channels, weights, 64)
  WindowGrid grid;
  int k, stride_h, pad_top;
  int left;   // elements of a strip's row before column q * stride_w; a multiple of kCopyGranule
  int first;  // element of the first pair in a strip's row
  int lead;   // elements of the first pair before its window
  int row_bytes;  // that a strip needs of a row of x
};

// kMostGroup: steps of 16 pixels whose operands a thread holds at once. kAhead: it reads the next
// ones while the tensor cores work on these. kMostTiles: rows of dy in the ring, if they fit.
template <class T, int kChannels_, int kFilterH_, int kFilterW_, int kStrideW_, int kParts_,
          int kBlocks_, int kMostGroup_, bool kAhead_, int kMostTiles_>
struct StemWgradConfig {
  using Element = T;
  static constexpr int kChannels = kChannels_, kFilterH = kFilterH_, kFilterW = kFilterW_;
  static constexpr int kStrideW = kStrideW_, kParts = kParts_, kMostGroup = kMostGroup_;
  static constexpr int kBlocksPerProcessor = kBlocks_;
  static constexpr bool kAhead = kAhead_;
  static constexpr int kMostTiles = kMostTiles_;
  static constexpr int kColumns = 64;  // output channels of a block
  static constexpr int kWeights = kFilterH * kFilterW * kChannels;
  static constexpr int kTiles = wgrad_tiles(kFilterH, kFilterW, kChannels);
  static constexpr int kConsumers = 128 * kTiles * kParts, kThreads = kConsumers + 128;

  // Registers: of those that a block starts with the producers keep the least.
  static constexpr int kMostRegisters = 65536 / (kBlocksPerProcessor * kThreads) / 8 * 8;
  static constexpr int kStartRegisters = kMostRegisters < 248 ? kMostRegisters : 248;
  static constexpr int kShare = (kStartRegisters * kThreads - 128 * 24) / kConsumers / 8 * 8;
  static constexpr int kRegisters = kShare < 240 ? kShare : 240;
  static constexpr int kLeft = (kStartRegisters * kThreads - kRegisters * kConsumers) / 128 / 8 * 8;
  static constexpr int kProducerRegisters = kLeft < 40 ? kLeft : 40;

  static constexpr int kRowBytes = kWindowRowElements * 2;
  static constexpr int kRows = kMostTiles > 6 ? 32 : 16;  // of x in the ring
  static constexpr int kMostShared =
      kBlocksPerProcessor == 1 ? 232448 : 233472 / kBlocksPerProcessor - 1024;

  static_assert(kChannels >= 1 && kChannels <= 4 && kStrideW * kChannels % 2 == 0);
  static_assert(kFilterH >= 1 && kFilterH <= 11);
  static_assert(window_steps(kFilterH, kFilterW, kChannels) <= 20);
  static_assert(kThreads <= 1024 && kRegisters >= 64, "parts times tiles of 64 elements");
};

// Shared memory of a block whose strips are kSteps times 16 columns wide.
template <class Config, int kSteps>
struct StemWgradShared {
  static constexpr int kTileBytes = kSteps * 2048;  // a row of dy
  static constexpr int kFixed = 1024 + Config::kRows * (Config::kRowBytes + 8);
  static constexpr int kFit = (Config::kMostShared - kFixed) / (kTileBytes + 16);
  static constexpr int kTiles = kFit < Config::kMostTiles ? kFit : Config::kMostTiles;
  static constexpr int kTilesBytes = kTiles * kTileBytes;
  static constexpr int kBarriersAt = kTilesBytes + Config::kRows * Config::kRowBytes;
  static constexpr int kBytes = 1024 + kBarriersAt + 8 * Config::kRows + 16 * kTiles;

  static_assert(kTiles > Config::kParts, "a part holds a row of dy until it has the next one");
  static_assert(kBytes <= Config::kMostShared);

  uint32_t base;
  __device__ explicit StemWgradShared(const void* raw)
      : base((shared_address(raw) + 1023) & ~1023u) {}
  __device__ uint32_t tile(int stage) const { return base + stage * kTileBytes; }
  __device__ uint32_t row(int stage) const {
    return base + kTilesBytes + stage * Config::kRowBytes;
  }
  __device__ uint32_t row_empty(int stage) const { return base + kBarriersAt + 8 * stage; }
  // Of a row of dy, and of the rows of x that nobody before it needs.
  __device__ uint32_t full(int stage) const { return row_empty(Config::kRows + stage); }
  __device__ uint32_t tile_empty(int stage) const { return full(kTiles + stage); }
};

// One thread: for each row of dy the rows of x that it needs and that have not been loaded.
template <class Config, int kSteps>
__device__ void produce_rows(const StemWgradParams& params,
                             const StemWgradShared<Config, kSteps>& shared) {
  using Shared = StemWgradShared<Config, kSteps>;
  Ring<Config::kRows> rows(1);
  Ring<Shared::kTiles> tiles(1);
  for (int index = blockIdx.x; index < window_items(params.grid); index += gridDim.x) {
    WindowItem item = window_item(params.grid, index);
    int h = item.p0 * params.stride_h - params.pad_top;
    int word = (item.q0 * Config::kStrideW * Config::kChannels - params.left) / 4;
    for (int p = item.p0; p < item.p1; ++p, tiles.advance()) {
      int count = p == item.p0 ? Config::kFilterH : params.stride_h;
      barrier_wait(shared.tile_empty(tiles.stage), tiles.parity);
      barrier_expect(shared.full(tiles.stage), count * params.row_bytes);
#pragma unroll 1
      for (int end = h + count; h < end; ++h, rows.advance()) {
        barrier_wait(shared.row_empty(rows.stage), rows.parity);
        load_3d(shared.row(rows.stage), &params.x, shared.full(tiles.stage), word, h, item.n);
      }
    }
  }
}

// One thread: the rows of dy.
template <class Config, int kSteps>
__device__ void produce_tiles(const StemWgradParams& params,
                              const StemWgradShared<Config, kSteps>& shared) {
  using Shared = StemWgradShared<Config, kSteps>;
  Ring<Shared::kTiles> tiles(1);
  for (int index = blockIdx.x; index < window_items(params.grid); index += gridDim.x) {
    WindowItem item = window_item(params.grid, index);
    for (int p = item.p0; p < item.p1; ++p, tiles.advance()) {
      uint32_t full = shared.full(tiles.stage);
      barrier_wait(shared.tile_empty(tiles.stage), tiles.parity);
      barrier_expect(full, Shared::kTileBytes);
      load_4d(shared.tile(tiles.stage), &params.dy, full, blockIdx.y * Config::kColumns, item.q0, p,
              item.n);
    }
  }
}

// Warpgroup g has tile g % kTiles of the window's elements, and of the rows of dy those of part
// g / kTiles.
template <class Config, int kSteps>
struct StemWgradConsumer {
  using Shared = StemWgradShared<Config, kSteps>;
  using Mma = MmaStreamed<typename Config::Element, Config::kColumns>;
  static constexpr int kGroups = (kSteps + Config::kMostGroup - 1) / Config::kMostGroup;
  static constexpr int kGroup = (kSteps + kGroups - 1) / kGroups;
  static constexpr int kPixelBytes = 2 * Config::kStrideW * Config::kChannels;

  const StemWgradParams& params;
  const Shared& shared;
  const int lane = threadIdx.x % 32, part = threadIdx.x / 128 / Config::kTiles;
  const int element = wgrad_element(threadIdx.x / 128 % Config::kTiles, threadIdx.x / 32 % 4, lane);
  float d[Config::kColumns / 2] = {};
  int held = -1;  // stage of the row of dy that the tensor cores may still read

  // Adds the partial sums of the steps from kFirst on: `at` is this thread's first word, b the tile.
  template <int kFirst>
  __device__ __forceinline__ void multiply(uint32_t at, uint64_t b) {
    constexpr int kLast = kFirst + kGroup < kSteps ? kFirst + kGroup : kSteps;
    uint32_t words[kLast - kFirst][4];
    if constexpr (!Config::kAhead) finish<kFirst == 0>();
#pragma unroll
    for (int step = kFirst; step < kLast; ++step) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        words[step - kFirst][i] =
            load_shared_u32(at + (16 * step + wgrad_pixel(0, i)) * kPixelBytes);
      }
    }
    if constexpr (Config::kAhead) finish<kFirst == 0>();
    uint32_t a[kLast - kFirst][4];
#pragma unroll
    for (int i = 0; i < kLast - kFirst; ++i) {
      const uint32_t (&v)[4] = words[i];
      a[i][0] = __byte_perm(v[0], v[1], 0x5410);
      a[i][1] = __byte_perm(v[0], v[1], 0x7632);
      a[i][2] = __byte_perm(v[2], v[3], 0x5410);
      a[i][3] = __byte_perm(v[2], v[3], 0x7632);
#pragma unroll
      for (int j = 0; j < 4; ++j) asm volatile("" : "+r"(a[i][j])::"memory");
    }
    mma_fence();
#pragma unroll
    for (int step = kFirst; step < kLast; ++step) Mma::mma(d, a[step - kFirst], b + step * 128);
    mma_commit();
    if constexpr (kLast < kSteps) multiply<kLast>(at, b);
  }

  // Waits for the wgmmas in flight; behind a row's last ones its tile is given back.
  template <bool kRelease>
  __device__ __forceinline__ void finish() {
    mma_wait<0>();
    pin(d);
    if (kRelease && held >= 0 && lane == 0) barrier_arrive(shared.tile_empty(held));
  }

  __device__ void accumulate() {
    WindowPlace place = wgrad_place(element, Config::kFilterH, Config::kFilterW, Config::kChannels);
    uint32_t offset = 2 * (params.first + place.element) + wgrad_pixel(lane, 0) * kPixelBytes;
    pin(d);
    int away = part;  // rows of dy until the next one of this part
    Ring<Shared::kTiles> ring(0);
    unsigned first = 0;  // row of x of the window's first one, over all items
    for (int index = blockIdx.x; index < window_items(params.grid); index += gridDim.x) {
      WindowItem item = window_item(params.grid, index);
      for (int p = item.p0; p < item.p1; ++p) {
        int stage = ring.stage;
        barrier_wait(shared.full(stage), ring.parity);
        ring.advance();
        bool mine = Config::kParts == 1 || away == 0;
        away = mine ? Config::kParts - 1 : away - 1;
        if (mine) {
          multiply<0>(shared.row((first + place.row) % Config::kRows) + offset,
                      operand(shared.tile(stage), 16, 1024));
          held = stage;
        }
        // Rows that the next row of dy does not need; behind the last one all. An arrival does not
        // wait for loads, but wgmma has used what they read.
        int done = p + 1 < item.p1 ? params.stride_h : Config::kFilterH;
        __syncwarp();
        if (lane < done) barrier_arrive(shared.row_empty((first + lane) % Config::kRows));
        if (!mine && lane == 0) barrier_arrive(shared.tile_empty(stage));
        first += done;
      }
    }
    mma_wait<0>();
    pin(d);
  }

  // A warpgroup's sums as they are: what a thread has of a weight are pairs of channels.
  __device__ void store() {
    int slice = blockIdx.x * Config::kParts + part;
    float* to = params.partials +
                (int64_t(slice) * gridDim.y + blockIdx.y) * (Config::kWeights * Config::kColumns);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      int weight = window_weight(element + i, Config::kFilterH, Config::kFilterW, Config::kChannels,
                                 params.lead);
      if (weight < 0) continue;
      float2* row = reinterpret_cast<float2*>(to + weight * Config::kColumns) + lane % 4;
#pragma unroll
      for (int j = 0; j < Config::kColumns / 8; ++j) {
        row[4 * j] = make_float2(d[4 * j + 2 * i], d[4 * j + 2 * i + 1]);
      }
    }
  }
};

template <class Config, int kSteps>
__global__ void __launch_bounds__(Config::kThreads, Config::kBlocksPerProcessor)
    stem_wgrad(const __grid_constant__ StemWgradParams params) {
  extern __shared__ uint8_t raw[];
  using Shared = StemWgradShared<Config, kSteps>;
  const Shared shared(raw);
  if (threadIdx.x == 0) {
    constexpr int kWarps = Config::kConsumers / 32;
    for (int i = 0; i < Config::kRows; ++i) barrier_init(shared.row_empty(i), kWarps);
    for (int i = 0; i < Shared::kTiles; ++i) {
      barrier_init(shared.full(i), 2);
      barrier_init(shared.tile_empty(i), kWarps);
    }
    fence_barrier_init();
    prefetch_map(&params.x);
    prefetch_map(&params.dy);
  }
  __syncthreads();
  if (threadIdx.x < Config::kConsumers) {
    grow_registers<Config::kRegisters>();
    StemWgradConsumer<Config, kSteps> consumer{params, shared};
    consumer.accumulate();
    cudaTriggerProgrammaticLaunchCompletion();  // wgrad_sums may be launched; it waits for the end
    consumer.store();
  } else {
    shrink_registers<Config::kProducerRegisters>();
    if (threadIdx.x == Config::kConsumers) produce_rows(params, shared);
    if (threadIdx.x == Config::kConsumers + 32) produce_tiles(params, shared);
  }
}

}  // namespace convoy::sm90
