// Strided dgrad on sm_90a: all phases of dx (see phases.cuh) in one persistent launch.
//
// dx (n,h,w,c) from dy (n,p,q,k) and the filter (k,r,s,c), 16-bit elements, fp32 accumulation.
// A warpgroup is the producer, of which one thread drives TMA; two or three consume.
// Each step of the reduction is one filter tap of 64 channels k:
//   a   kRows pixels of dy x 64 k   im2col load with the tap's offset, K-major
//   b   64 k x kColumns c           box of the filter as it lies in memory, MN-major
// No operand is repacked. A finished tile is rounded into shared memory and stored through an
// im2col map of the phase's pixels of dx, so that each element of dx is written once. Phases
// without taps are zero: the producer stores them from a zeroed tile, a few with every load, so
// that the writes are spread over the time that arithmetic takes.
//
// Cooperative: the consumers share a tile, an equal part of the rows each. Swap-AB: they share its
// columns, 64 each, and multiply the other way round, (b^T a^T) instead of a b, so that the operand
// that wgmma reads anew for every 64 rows of a result is the narrow one. Overlapped epilogue: two consumers that share a tile
// keep it, rounded, in registers and store it under the main loop of the next one. Pingpong: two
// consumers alternate by an order barrier, one multiplies while the other one stores. One may only
// start on its tile's stages when the other one has seen all of its own filled: before that, the
// stage's barrier can still be two phases behind, and waiting for a parity would return at once
// (see mbarrier.cuh).
//
// Split (cooperative only): for problems with few tiles, the kSplit blocks of a cluster share one.
// Each takes a part of the reduction and adds up, in a fixed order, a part of the columns: partial
// sums go through distributed shared memory, from registers to the same thread of the other block.
#pragma once

#include "dgrad_partial_sums.cuh"
#include "dgrad_stores.cuh"
#include "ptx.cuh"
#include "wgmma_transposed.cuh"

namespace convoy::sm90 {

__device__ __forceinline__ int reduction_steps(const DgradParams& params, const Phase& phase) {
  return phase.h.taps * phase.w.taps * params.channel_steps;
}

// A cluster works as one block does without a split: its index, their number, the block's part.
template <class Config>
struct Cluster {
  int index = blockIdx.x / Config::kSplit;
  int count = gridDim.x / Config::kSplit;
  int rank = Config::kSplit > 1 ? cluster_rank() : 0;

  // First of the reduction steps that block `rank` of the cluster does; its last one is before
  // that of rank + 1.
  __device__ int first(int steps, int rank) const { return steps * rank / Config::kSplit; }
};

// One thread: fills the ring of stages, tile after tile.
template <class Config>
__device__ void produce(const DgradParams& params, const DgradShared<Config>& shared) {
  Ring<Config::kStages> ring(1);
  const Cluster<Config> cluster;
  Tile tile;
  for (int step = 0; tile_at(params.order, step, cluster.index, cluster.count, &tile); ++step) {
    const Phase& phase = params.phase[tile.phase];
    const CUtensorMap* dy = &params.dy[tile.phase];
    ZeroStores<Config> zeros(params, tile, cluster.rank);
    if (tile.m < phase.tiles) {
      const int steps = reduction_steps(params, phase);
      const int begin = cluster.first(steps, cluster.rank),
                end = cluster.first(steps, cluster.rank + 1);
      const int zeros_per_step = (zeros.left + end - begin - 1) / max(1, end - begin);
      const Pixel pixel(phase, tile.m * Config::kRows);
      const int column = tile.n * Config::kColumns;
      // Channels outside, taps inside: a tap's pixels were loaded by the tap before, up to a shift.
      const int taps = phase.h.taps * phase.w.taps;
      int channel = begin / taps;
      int th = (begin - channel * taps) / phase.w.taps;
      int tw = begin - channel * taps - th * phase.w.taps;
#pragma unroll 1  // for few registers
      for (int k = begin; k < end; ++k) {
        int filter = filter_position(phase.h, params.stride_h, th) * params.filter_w +
                     filter_position(phase.w, params.stride_w, tw);
        uint32_t full = shared.full(ring.stage);
        barrier_wait(shared.empty(ring.stage), ring.parity);
        barrier_expect(full, Config::kStageBytes);
        load_im2col(shared.a(ring.stage), dy, full, channel * kStepK, pixel.w + phase.w.lower,
                    pixel.h + phase.h.lower, pixel.n, tap_offset(phase.w, tw),
                    tap_offset(phase.h, th));
#pragma unroll
        for (int i = 0; i < Config::kColumnBlocks; ++i) {
          load_3d(shared.b(ring.stage) + i * kBlockBytes, &params.filter, full, column + i * 64,
                  filter, channel * kStepK);
        }
        ring.advance();
        if (++tw == phase.w.taps) {
          tw = 0;
          if (++th == phase.h.taps) {
            th = 0;
            ++channel;
          }
        }
        if constexpr (Config::kZeros) zeros.store(shared.zero(), zeros_per_step);
      }
    }
    if constexpr (Config::kZeros) zeros.store(shared.zero(), zeros.left);
  }
  if constexpr (Config::kZeros) wait_stores_read<0>();
}

// A consumer's part of a reduction step: d (+)= what lies in a stage.
template <class Config>
__device__ __forceinline__ void multiply(const DgradShared<Config>& shared, int stage, int group,
                                         bool accumulate,
                                         float (&d)[Config::kMmaBlocks][Config::kMmaWidth / 2]) {
  using T = typename Config::Element;
  constexpr bool kOwnRows = !Config::kPingpong && !Config::kSwapAB;
  const uint32_t own_b = Config::kSwapAB ? group * kBlockBytes : 0;
  uint64_t a =
      operand(shared.a(stage) + (kOwnRows ? group * Config::kGroupRows * 128 : 0), 16, 1024);
  uint64_t b = operand(shared.b(stage) + own_b, kBlockBytes, 1024);
#pragma unroll
  for (int kk = 0; kk < kStepK / 16; ++kk, a += 2, b += 128) {
    // 16 k: 32 bytes of a's rows, 16 rows of b.
    if constexpr (Config::kSwapAB) {
      MmaTransposed<T, Config::kRows>::mma(d[0], b, a, accumulate || kk > 0);
      continue;
    }
#pragma unroll
    for (int i = 0; i < Config::kMmaBlocks; ++i) {
#pragma unroll
      for (int c = 0; c < Config::kMmaWidth; c += Config::kMmaColumns) {
        auto& sum = reinterpret_cast<float (&)[Config::kMmaColumns / 2]>(d[i][c / 2]);
        MmaShared<T, Config::kMmaColumns>::mma(
            sum, a + i * (kBlockBytes / 16), b + c / 64 * (kBlockBytes / 16), accumulate || kk > 0);
      }
    }
  }
}

// A warpgroup: multiplies and stores every tile, or every second one.
template <class Config>
__device__ void consume(const DgradParams& params, const DgradShared<Config>& shared, int group) {
  const bool first_lane = threadIdx.x % 32 == 0;
  Ring<Config::kStages> ring(0);
  const Cluster<Config> cluster;
  TileStores<Config> stores{params, shared, group, cluster.rank};
  PartialSums<Config> sums{shared, group, cluster.rank};
  uint32_t order = group == 0;  // parity to wait for; group 0 need not wait for its first tile
  int count = 0;
  float d[Config::kMmaBlocks][Config::kMmaWidth / 2];
  Tile tile;
  for (int step = 0; tile_at(params.order, step, cluster.index, cluster.count, &tile); ++step) {
    const Phase& phase = params.phase[tile.phase];
    if (tile.m >= phase.tiles) continue;
    int steps = reduction_steps(params, phase);
    if constexpr (Config::kSplit > 1) {
      steps = cluster.first(steps, cluster.rank + 1) - cluster.first(steps, cluster.rank);
      if (steps == 0) {
#pragma unroll
        for (int i = 0; i < Config::kMmaBlocks * Config::kMmaWidth / 2; ++i) (&d[0][0])[i] = 0.0f;
      }
    }
    if constexpr (Config::kPingpong) {
      if ((count++ & 1) != group) {
        ring.skip(steps);
        continue;
      }
      barrier_wait(shared.order(group), order);
      order ^= 1;
    }
    int last = 0;
    for (int k = 0; k < steps; ++k) {
      barrier_wait(shared.full(ring.stage), ring.parity);
      mma_fence();
      multiply<Config>(shared, ring.stage, group, k > 0, d);
      mma_commit();
      if (k > 0) {
        mma_wait<1>();
        if (first_lane) barrier_arrive(shared.empty(last));
      }
      if constexpr (Config::kOverlapped) stores.store_group();
      last = ring.stage;
      ring.advance();
    }
    if constexpr (Config::kPingpong) {
      if (first_lane) barrier_arrive(shared.order(1 - group));
    }
    mma_wait<0>();
#pragma unroll
    for (int i = 0; i < Config::kMmaBlocks; ++i) pin(d[i]);
    if (first_lane && (Config::kSplit == 1 || steps > 0)) barrier_arrive(shared.empty(last));
    if constexpr (Config::kSplit > 1) sums.add(d);
    if constexpr (Config::kOverlapped) {
      stores.store_rest();
      stores.take(tile, d);
    } else {
      stores.store(tile, d);
    }
  }
  if constexpr (Config::kOverlapped) stores.store_rest();
  if (first_lane) wait_stores_read<0>();
}

template <class Config>
__global__ void __launch_bounds__(Config::kThreads, 1)
    dgrad_strided(const __grid_constant__ DgradParams params) {
  extern __shared__ uint8_t raw[];
  const DgradShared<Config> shared(raw);
  const int thread = threadIdx.x, group = thread / 128;
  if (thread == 0) {
    for (int i = 0; i < Config::kStages; ++i) {
      barrier_init(shared.full(i), 1);
      // One for each consuming warp.
      barrier_init(shared.empty(i), Config::kPingpong ? 4 : 4 * Config::kConsumers);
    }
    for (int i = 0; i < Config::kConsumers; ++i) {
      barrier_init(shared.order(i), 4);
      barrier_init(shared.ready(i), max(1, Config::kSplit - 1) * 128);
      barrier_init(shared.taken(i), max(1, Config::kSplit - 1) * 128);
    }
    fence_barrier_init();
  }
  if (thread == 32) prefetch_map(&params.filter);
  if (thread >= 64 && thread < 64 + params.order.phases && params.phase[thread - 64].tiles > 0) {
    prefetch_map(&params.dy[thread - 64]);
    prefetch_map(&params.dx[thread - 64]);
  }
  if constexpr (Config::kZeros) {
    for (int i = thread; i < kBlockBytes / 16; i += Config::kThreads) {
      store_shared(shared.zero() + i * 16, make_uint4(0, 0, 0, 0));
    }
    fence_shared_for_async();
  }
  __syncthreads();
  if constexpr (Config::kSplit > 1) cluster_sync();  // before others arrive at the barriers
  // Registers move within the block: 384 * 168 = 128 * 40 + 256 * 232,
  // 512 * 128 = 128 * 32 + 384 * 160.
  constexpr bool kTwo = Config::kConsumers == 2;
  if (group == 0) {
    shrink_registers<kTwo ? 40 : 32>();
    if (thread == 0) produce<Config>(params, shared);
  } else {
    grow_registers<kTwo ? 232 : 160>();
    consume<Config>(params, shared, group - 1);
  }
  if constexpr (Config::kSplit > 1) cluster_sync();  // others may still need our shared memory
}

}  // namespace convoy::sm90
