// 1x1 fprop with stride 1 on sm_90a where its time is that of moving pixels: few input channels, or
// many pixels. Also products of matrices.
//
// A block has some output channels, whose weights stay in its shared memory, and takes tiles of 64
// pixels in turn. One warp copies the pixels into a ring of stages; two warpgroups multiply every
// other tile each, so that one multiplies while the other rounds its sums and hands them to TMA. A
// residual is read into the memory from which the tile is stored. Before a block waits for the
// kernels before this one, its constant weights are on their way.
#pragma once

#include "pointwise_conv_config.cuh"
#include "tma.cuh"
#include "tma_2d.cuh"
#include "wgmma_wide.cuh"

namespace convoy::sm90 {

// The tiles of a block: every `step`-th one, from its place among the blocks with the same channels.
struct PointwiseTiles {
  const int first, step, end;
  __device__ explicit PointwiseTiles(int end) : first(blockIdx.z), step(gridDim.z), end(end) {}
  __device__ int of(int turn) const { return first + turn * step; }
  __device__ bool has(int turn) const { return of(turn) < end; }
};

// One thread: weights, then the pixels of one tile after the other.
template <class Config>
__device__ void produce(const PointwiseParams& params, const PointwiseShared<Config>& shared,
                        const PointwiseTiles& tiles) {
  const int chunks = params.shape.chunks, column = blockIdx.y * Config::kColumns;
  if (!params.constant_weights) wait_for_predecessors();
  barrier_expect(shared.weights_full(), chunks * Config::kWeightBytes);
  for (int i = 0; i < chunks; ++i) {
    load_2d(shared.weights(i), &params.w, shared.weights_full(), i * Config::kChunk, column);
  }
  if (params.constant_weights) wait_for_predecessors();
  int stage = 0;
  uint32_t parity = 1;
  for (int turn = 0; tiles.has(turn); ++turn) {
    barrier_wait(shared.empty(stage), parity);
    barrier_expect(shared.full(stage), chunks * Config::kPixelBytes);
    for (int i = 0; i < chunks; ++i) {
      load_2d(shared.pixels(stage, i), &params.x, shared.full(stage), i * Config::kChunk,
              tiles.of(turn) * Config::kRows);
    }
    if (++stage == params.stages) stage = 0, parity ^= 1;
  }
}

// A warpgroup, which stores its tiles from memory of its own.
template <class Config>
struct PointwiseConsumer {
  using Element = typename Config::Element;
  using Activation = typename Config::Activation;
  using Sums = float[Config::kColumns / 2];

  const PointwiseParams& params;
  const PointwiseShared<Config>& shared;
  const int group, column;
  const bool leads;

  __device__ PointwiseConsumer(const PointwiseParams& params, const PointwiseShared<Config>& shared,
                               int group)
      : params(params),
        shared(shared),
        group(group),
        column(blockIdx.y * Config::kColumns),
        leads(threadIdx.x % 128 == 0) {}

  // The sums of a tile in a stage.
  __device__ void multiply(int stage, Sums& d) const {
    using Mma = MmaRows<Element, Config::kColumns>;
    mma_fence();
    for (int i = 0; i < params.steps; ++i) {
      const uint64_t a = operand(shared.pixels(stage, i / 4), 16, 1024);
      const uint64_t b = operand(shared.weights(i / 4), 16, 1024);
      Mma::mma(d, a + i % 4 * 2, b + i % 4 * 2, i > 0);
    }
    mma_commit();
    mma_wait<0>();
    pin(d);
  }

  // The leading thread waits until TMA has read the tile before, and has it bring the residual.
  __device__ void begin(int tile) const {
    if (!leads) return;
    wait_stores_read<0>();
    if (!params.residual) return;
    barrier_expect(shared.residual_full(group), Config::kStoreBytes);
    for (int i = 0; i < Config::kBlocks; ++i) {
      load_2d(shared.stored(group, i), &params.residuals, shared.residual_full(group),
              column + 64 * i, tile * Config::kRows);
    }
  }

  // Rounds 64 rows and columns and puts them where they are stored from.
  __device__ void put(int block, const Sums& d) const {
    const int warp = threadIdx.x % 128 / 32, lane = threadIdx.x % 32;
    const int row = warp * 16 + lane % 16, half = lane / 16;
    const uint32_t to = shared.stored(group, block);
    const uint32_t bias = shared.bias() + 4 * (64 * block + lane % 4 * 2);
#pragma unroll
    for (int j = 0; j < 8; j += 2) {  // columns 8 * j to 8 * j + 15
      const uint32_t at = to + swizzled(row, j + half);
      uint32_t residual[4] = {}, rounded[4];
      if (params.residual) load_matrices(residual, at);
      float sum[8];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float2 start = load_shared_float2(bias + 32 * (j + i / 2));
        const float* from = &d[4 * (8 * block + j + i / 2) + 2 * (i % 2)];
        sum[2 * i] = from[0] + start.x;
        sum[2 * i + 1] = from[1] + start.y;
        if (!Activation::kResidualLast) add(residual[i], &sum[2 * i]);
      }
      Activation::apply(sum, params);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        if (Activation::kResidualLast) add(residual[i], &sum[2 * i]);
        rounded[i] = pack<Element>(sum[2 * i], sum[2 * i + 1]);
      }
      store_matrices(at, rounded[0], rounded[1], rounded[2], rounded[3]);
    }
  }

  static __device__ void add(uint32_t pair, float* sum) {
    sum[0] += unpack_low<Element>(pair);
    sum[1] += unpack_high<Element>(pair);
  }

  __device__ void store(int tile, const Sums& d) const {
#pragma unroll
    for (int i = 0; i < Config::kBlocks; ++i) put(i, d);
    fence_shared_for_async();
    sync_threads(2 + group, 128);
    if (!leads) return;
    for (int i = 0; i < Config::kBlocks; ++i) {
      if (column + 64 * i < params.shape.k) {
        store_2d(&params.stores, shared.stored(group, i), column + 64 * i, tile * Config::kRows);
      }
    }
    commit_stores();
  }

  __device__ void run(const PointwiseTiles& tiles) const {
    // The stages are even in number, so that each is this group's or the other's for good.
    int stage = group;
    uint32_t parity = 0, residual_parity = 0;
    for (int turn = group; tiles.has(turn); turn += Config::kGroups) {
      if (stage >= params.stages) stage -= params.stages, parity ^= 1;
      const int tile = tiles.of(turn);
      begin(tile);
      __syncwarp();
      barrier_wait(shared.full(stage), parity);
      Sums d;
      multiply(stage, d);
      if (leads) barrier_arrive(shared.empty(stage));
      if (params.residual) {
        barrier_wait(shared.residual_full(group), residual_parity);
        residual_parity ^= 1;
      } else {
        sync_threads(2 + group, 128);  // behind begin()
      }
      store(tile, d);
      __syncwarp();
      stage += Config::kGroups;
    }
    if (leads) wait_stores_read<0>();
  }
};

// Grid: 1, blocks of output channels, blocks that share the tiles.
template <class Config>
__global__ void __launch_bounds__(Config::kThreads, Config::kBlocksOfSm)
    pointwise_conv(const __grid_constant__ PointwiseParams params) {
  extern __shared__ uint8_t raw[];
  launch_dependents();
  const PointwiseShared<Config> shared(raw, params);
  if (threadIdx.x == 0) {
    for (int i = 0; i < params.stages; ++i) {
      barrier_init(shared.full(i), 1);
      barrier_init(shared.empty(i), 1);
    }
    barrier_init(shared.weights_full(), 1);
    for (int i = 0; i < Config::kGroups; ++i) barrier_init(shared.residual_full(i), 1);
    fence_barrier_init();
    prefetch_map(&params.x);
    prefetch_map(&params.w);
    prefetch_map(&params.stores);
  }
  __syncthreads();
  const PointwiseTiles tiles((params.shape.pixels + Config::kRows - 1) / Config::kRows);
  const int group = __shfl_sync(~0u, threadIdx.x / 128, 0);  // uniform in a warp
  if (group == Config::kGroups) {
    if (threadIdx.x % 32 == 0) produce(params, shared, tiles);
    return;
  }
  wait_for_predecessors();
  for (int i = threadIdx.x; i < Config::kColumns; i += Config::kConsumers) {
    const int channel = blockIdx.y * Config::kColumns + i;
    float bias = 0.0f;
    if (params.bias && channel < params.shape.k) {
      bias = float(static_cast<const typename Config::Element*>(params.bias)[channel]);
    }
    store_shared(shared.bias() + 4 * i, bias);
  }
  sync_threads(1, Config::kConsumers);
  barrier_wait(shared.weights_full(), 0);
  PointwiseConsumer<Config>(params, shared, group).run(tiles);
}

}  // namespace convoy::sm90
