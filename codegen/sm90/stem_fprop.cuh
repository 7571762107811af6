// fprop of a network's first convolution on sm_90a: c <= 4, with bias and relu.
//
// y (n,p,q,k) from x (n,h,w,c) and the filter (k,r,s,c), both as they lie in memory: no padding of
// channels, no space-to-depth, no repacked filter. A block streams down the rows of x, each of
// which TMA loads once per strip with zeros at all borders, and keeps the r rows that
// an output row needs in a ring. The first operand of wgmma is not laid out as a matrix at all:
// output column q reads its window of a row (window_layout.cuh) by 32-bit loads at 2 * stride_w * c
// * q bytes, straight into the registers. For 7x7 with c = 3 the reduction is 176 long, 147 of it
// useful. The filter of 64 output channels stays in shared memory; blockIdx.y tells which 64.
#pragma once

#include "ptx.cuh"
#include "window_layout.cuh"

namespace convoy::sm90 {

struct WindowParams {
  CUtensorMap x;  // (w * c, h, n), boxes of 256 elements of a row
  CUtensorMap y;  // (k, q, p, n), boxes of 64 x 16
  const void* filter;
  const void* bias;  // may be null
  WindowGrid grid;
  int k, stride_h, stride_w, pad_top;
  int left;   // elements of a strip's row before column q * stride_w; a multiple of kCopyGranule
  int first;  // element of the first pair in a strip's row
  int lead;   // elements of the first pair before its window
  int row_boxes;  // boxes that a strip needs of a row
};

template <class T, int kChannels_, int kFilterH_, int kFilterW_, bool kRelu_>
struct WindowConfig {
  using Element = T;
  static constexpr int kChannels = kChannels_, kFilterH = kFilterH_, kFilterW = kFilterW_;
  static constexpr bool kRelu = kRelu_;
  static constexpr int kBlocksPerProcessor = 2;
  static constexpr int kConsumers = 256, kThreads = kConsumers + 128;
  static constexpr int kColumns = 64;  // output channels of a block
  static constexpr int kSteps = window_steps(kFilterH, kFilterW, kChannels);  // of 16 k
  static constexpr int kBoxElements = 256, kBoxesPerRow = 4;
  static constexpr int kRowBytes = kBoxElements * kBoxesPerRow * 2;
  static constexpr int kStages = 16;  // rows of x in the ring; a power of two
  static constexpr int kRingBytes = kStages * kRowBytes;
  static constexpr int kFilterBytes = (kSteps + 3) / 4 * kColumns * 128;
  static constexpr int kTileBytes = 16 * 128;  // what a warp stores at once
  static constexpr int kTiles = 2;             // of them for each warp

  // Offsets from a 1024-byte aligned base.
  static constexpr int kFilterAt = kRingBytes;
  static constexpr int kTilesAt = kFilterAt + kFilterBytes;
  static constexpr int kBarriersAt = kTilesAt + kConsumers / 32 * kTiles * kTileBytes;
  static constexpr int kSharedBytes = 1024 + kBarriersAt + 2 * kStages * 8;

  static_assert(kChannels >= 1 && kChannels <= 4);
  static_assert(kFilterH >= 1 && kFilterH <= 11 && kSteps <= 20);
};

template <class Config>
struct WindowShared {
  uint32_t base;
  __device__ explicit WindowShared(const void* raw) : base((shared_address(raw) + 1023) & ~1023u) {}
  __device__ uint32_t row(int stage) const { return base + stage * Config::kRowBytes; }
  __device__ uint32_t filter(int step) const {  // of 16 k, in chunks of 64
    return base + Config::kFilterAt + step / 4 * Config::kColumns * 128;
  }
  __device__ uint32_t tile(int warp, int i) const {
    return base + Config::kTilesAt + (warp * Config::kTiles + i) * Config::kTileBytes;
  }
  __device__ uint32_t full(int stage) const { return base + Config::kBarriersAt + 8 * stage; }
  __device__ uint32_t empty(int stage) const { return full(Config::kStages + stage); }
};

// All threads: 64 output channels of the filter (k,r,s,c) into K-major rows of 64 k.
template <class Config>
__device__ void pack_windows(const WindowParams& params, const WindowShared<Config>& shared) {
  constexpr int kWeights = Config::kFilterH * Config::kFilterW * Config::kChannels;
  constexpr int kChunks = (Config::kSteps + 3) / 4 * 8;  // of 8 k
  const uint16_t* filter = static_cast<const uint16_t*>(params.filter);
  for (int i = threadIdx.x; i < Config::kColumns * kChunks; i += Config::kThreads) {
    int column = i / kChunks, chunk = i % kChunks;
    int k = blockIdx.y * Config::kColumns + column;
    uint32_t value[8];
#pragma unroll
    for (int e = 0; e < 8; ++e) {
      int weight = window_weight(chunk * 8 + e, Config::kFilterH, Config::kFilterW,
                                 Config::kChannels, params.lead);
      value[e] = weight >= 0 && k < params.k ? __ldg(filter + k * kWeights + weight) : 0;
    }
    store_shared(shared.filter(chunk / 2) + swizzled(column, chunk % 8),
                 make_uint4(value[0] | value[1] << 16, value[2] | value[3] << 16,
                            value[4] | value[5] << 16, value[6] | value[7] << 16));
  }
  fence_shared_for_async();
}

// One thread: the rows of x that each item needs, from the first column that its strip reads.
template <class Config>
__device__ void produce_windows(const WindowParams& params, const WindowShared<Config>& shared) {
  Ring<Config::kStages> ring(1);
  for (int index = blockIdx.x; index < window_items(params.grid); index += gridDim.x) {
    WindowItem item = window_item(params.grid, index);
    int h0 = item.p0 * params.stride_h - params.pad_top;
    int element = item.q0 * params.stride_w * Config::kChannels - params.left;
    int rows = window_input_rows(item, params.stride_h, Config::kFilterH);
    for (int i = 0; i < rows; ++i) {
      uint32_t full = shared.full(ring.stage);
      barrier_wait(shared.empty(ring.stage), ring.parity);
      barrier_expect(full, params.row_boxes * Config::kBoxElements * 2);
      for (int box = 0; box < params.row_boxes; ++box) {
        load_3d(shared.row(ring.stage) + box * Config::kBoxElements * 2, &params.x, full,
                element + box * Config::kBoxElements, h0 + i, item.n);
      }
      ring.advance();
    }
  }
}

// Two warpgroups; a warp has 16 output columns of the strip.
template <class Config>
struct WindowConsumer {
  using T = typename Config::Element;
  using Mma = MmaRegisters<T, Config::kColumns>;
  static constexpr int kAccumulators = Config::kColumns / 2;
  // Steps whose operands are in registers at once: up to 6, and much the same number each time.
  static constexpr int kGroups = (Config::kSteps + 5) / 6;
  static constexpr int kGroup = (Config::kSteps + kGroups - 1) / kGroups;

  const WindowParams& params;
  const WindowShared<Config>& shared;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  // Bytes from a row of the ring to this lane's pair of the first quad, for the upper half of
  // wgmma's rows; the lower half is 8 output columns further down the strip.
  uint32_t pair, lower;
  float bias[Config::kColumns / 4];  // of columns 8j + 2 * (lane % 4), + 1
  int tile = 0;

  __device__ WindowConsumer(const WindowParams& p, const WindowShared<Config>& s)
      : params(p), shared(s) {
    // Warps beyond the strip read what the first one reads.
    int column = (warp * 16 < params.grid.strip_columns ? warp * 16 : 0) + lane / 4;
    int pixel = params.stride_w * Config::kChannels;
    pair = 2 * (column * pixel + params.first) + 4 * (lane % 4);
    lower = 2 * 8 * pixel;
    const uint16_t* values = static_cast<const uint16_t*>(params.bias);
#pragma unroll
    for (int j = 0; j < Config::kColumns / 8; ++j) {
      int k = blockIdx.y * Config::kColumns + 8 * j + 2 * (lane % 4);
      bool there = values && k < params.k;
      uint32_t two = there ? __ldg(reinterpret_cast<const uint32_t*>(values + k)) : 0;
      bias[2 * j] = unpack_low<T>(two);
      bias[2 * j + 1] = unpack_high<T>(two);
    }
  }

  // Adds the partial sums of the steps from kFirst on to d. The window's first row is in `stage`.
  template <int kFirst>
  __device__ void multiply(float (&d)[kAccumulators], unsigned stage) {
    constexpr int kLast = kFirst + kGroup < Config::kSteps ? kFirst + kGroup : Config::kSteps;
    uint32_t a[kLast - kFirst][4];
#pragma unroll
    for (int quad = 2 * kFirst; quad < 2 * kLast; ++quad) {
      WindowPlace place = window_quad(quad, Config::kFilterH, Config::kFilterW, Config::kChannels);
      uint32_t at = shared.row((stage + place.row) % Config::kStages) + pair;
      uint32_t (&v)[4] = a[quad / 2 - kFirst];
      v[quad % 2 * 2] = load_shared_u32(at + 2 * place.element);
      v[quad % 2 * 2 + 1] = load_shared_u32(at + lower + 2 * place.element);
    }
    pin(d);
    mma_fence();
#pragma unroll
    for (int step = kFirst; step < kLast; ++step) {
      uint64_t b = operand(shared.filter(step), 16, 1024) + step % 4 * 2;
      const uint32_t (&v)[4] = a[step - kFirst];
      Mma::mma(d, v[0], v[1], v[2], v[3], b);
    }
    mma_commit();
    mma_wait<0>();
    pin(d);
    if constexpr (kLast < Config::kSteps) multiply<kLast>(d, stage);
  }

  // Rounding, relu, and out through the warp's own tile of shared memory.
  __device__ void store(const WindowItem& item, int p, const float (&d)[kAccumulators]) {
    int q = item.q0 + warp * 16;
    if (warp * 16 >= params.grid.strip_columns) return;
    uint32_t to = shared.tile(warp, tile);
    if (lane == 0) wait_stores_read<Config::kTiles - 1>();
    __syncwarp();
#pragma unroll
    for (int j = 0; j < Config::kColumns / 8; j += 2) {
      uint32_t packed[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float* v = &d[(j + i / 2) * 4 + i % 2 * 2];
        packed[i] = pack<T>(v[0], v[1]);
        if constexpr (Config::kRelu) packed[i] = relu_pair<T>(packed[i]);
      }
      store_matrices(to + swizzled(lane & 15, j + (lane >> 4)), packed[0], packed[1], packed[2],
                     packed[3]);
    }
    fence_shared_for_async();
    __syncwarp();
    if (lane == 0) {
      store_4d(&params.y, to, blockIdx.y * Config::kColumns, q, p, item.n);
      commit_stores();
    }
    tile = tile + 1 == Config::kTiles ? 0 : tile + 1;
  }

  __device__ void run() {
    unsigned first = 0,
             loaded = 0;  // rows of x, counted over all items: window's first, waited for
    for (int index = blockIdx.x; index < window_items(params.grid); index += gridDim.x) {
      WindowItem item = window_item(params.grid, index);
      for (int p = item.p0; p < item.p1; ++p) {
#pragma unroll 1
        for (; loaded < first + Config::kFilterH; ++loaded) {
          barrier_wait(shared.full(loaded % Config::kStages), loaded / Config::kStages % 2);
        }
        // Rows that the next output row does not need; behind the last one all.
        int done = p + 1 < item.p1 ? params.stride_h : Config::kFilterH;
        unsigned stage = first % Config::kStages;
        float d[kAccumulators];
#pragma unroll
        for (int i = 0; i < kAccumulators; ++i) d[i] = bias[i / 4 * 2 + i % 2];
        multiply<0>(d, stage);
        // Only now, since an arrival does not wait for loads that no instruction has used yet.
        __syncwarp();
        if (lane < done) barrier_arrive(shared.empty((stage + lane) % Config::kStages));
        first += done;
        store(item, p, d);
      }
    }
    if (lane == 0) wait_stores_read<0>();
  }
};

template <class Config>
__global__ void __launch_bounds__(Config::kThreads, Config::kBlocksPerProcessor)
    stem_fprop(const __grid_constant__ WindowParams params) {
  extern __shared__ uint8_t raw[];
  const WindowShared<Config> shared(raw);
  if (threadIdx.x == 0) {
    for (int i = 0; i < Config::kStages; ++i) {
      barrier_init(shared.full(i), 1);
      barrier_init(shared.empty(i), Config::kConsumers / 32);
    }
    fence_barrier_init();
    prefetch_map(&params.x);
    prefetch_map(&params.y);
  }
  pack_windows(params, shared);
  __syncthreads();
  // Registers move within a block: 384 * 80 at its start, 256 * 104 + 128 * 24 now.
  if (threadIdx.x < Config::kConsumers) {
    grow_registers<104>();
    WindowConsumer<Config>(params, shared).run();
  } else {
    shrink_registers<24>();
    if (threadIdx.x == Config::kConsumers) produce_windows(params, shared);
  }
}

}  // namespace convoy::sm90
