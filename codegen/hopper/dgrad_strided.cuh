// Strided dgrad on sm_90a: all phases of dx (see phases.cuh) in one persistent launch.
//
// dx (n,h,w,c) from dy (n,p,q,k) and the filter (k,r,s,c), 16-bit elements, fp32 accumulation.
// A warpgroup is the producer, of which one thread drives the copy engine; two or three consume.
// Each step of the reduction is one filter tap of 64 channels k:
//   a   kRows pixels of dy x 64 k   im2col load with the tap's offset, K-major
//   b   64 k x kColumns c           box of the filter as it lies in memory, MN-major
// No operand is repacked. A finished tile is rounded into shared memory and stored through an
// im2col map of the phase's pixels of dx, so that each element of dx is written once. Phases
// without taps are zero: the producer stores them from a zeroed tile, a few with every load, so
// that the writes are spread over the time that arithmetic takes.
//
// Cooperative: the consumers share a tile, an equal part of the rows each. Pingpong: two take turns,
// one multiplies while the other one stores. A pingpong consumer may only start on its tile's stages
// when the other one has seen all of its own filled: before that, the stage's barrier can still be
// two phases behind, and waiting for a parity would return at once (see mbarrier.cuh).
//
// Split (cooperative only): for problems with few tiles, the kSplit blocks of a cluster share one.
// Each takes a part of the reduction and adds up, in a fixed order, a part of the columns: partial
// sums go through distributed shared memory, from registers to the same thread of the other block.
#pragma once

#include "cluster.cuh"
#include "dgrad_config.cuh"
#include "ptx.cuh"

namespace convoy::hopper {

// Pixel of a phase's row.
struct Pixel {
  int n, h, w;
  __device__ Pixel(const Phase& phase, int row) {
    n = phase.by_plane.divide(row);
    int rest = row - n * phase.plane;
    h = phase.by_width.divide(rest);
    w = rest - h * phase.width;
  }
};

__device__ __forceinline__ int reduction_steps(const DgradParams& params, const Phase& phase) {
  return phase.h.taps * phase.w.taps * params.channel_steps;
}

// A cluster works as one block does without a split: its index, their number, the block's part.
template <class Config>
struct Team {
  int index = blockIdx.x / Config::kSplit;
  int count = gridDim.x / Config::kSplit;
  int rank = Config::kSplit > 1 ? cluster_rank() : 0;

  // First of the reduction steps that block `rank` of the cluster does; its last one is before
  // that of rank + 1.
  __device__ int first(int steps, int rank) const { return steps * rank / Config::kSplit; }
};

// The zero phases' part of unit (m, n): all of its columns of a few rows at a time, so that long
// runs of memory are written.
template <class Config>
struct ZeroStores {
  const DgradParams& params;
  const int m, column0;
  int index, row, left;  // phase, row of the unit in it, stores to go

  __device__ ZeroStores(const DgradParams& p, const Tile& tile, int rank)
      : params(p),
        m(tile.m),
        column0(tile.n * Config::kColumns),
        index(p.order.phases),
        row(0),
        left(tile.phase == 0 && rank == 0 ? p.zero_spans * (Config::kRows / Config::kZeroRows)
                                          : 0) {}

  __device__ void store(uint32_t zero, int count) {
    for (int stop = max(0, left - count); left > stop; --left) {
      const Phase& phase = params.phase[index];
      const int unit_rows = Config::kRows * phase.span, at = m * unit_rows + row;
      if (at < phase.rows) {
        const Pixel pixel(phase, at);
        store_im2col(&params.dx[index], zero, column0, pixel.w, pixel.h, pixel.n);
        commit_stores();
      }
      row += Config::kZeroRows;
      if (row == unit_rows) {
        row = 0;
        ++index;
      }
    }
  }
};

// One thread: fills the ring of stages, tile after tile.
template <class Config>
__device__ void produce(const DgradParams& params, const DgradShared<Config>& shared) {
  Ring<Config::kStages> ring(1);
  const Team<Config> team;
  Tile tile;
  for (int step = 0; tile_at(params.order, step, team.index, team.count, &tile); ++step) {
    const Phase& phase = params.phase[tile.phase];
    const CUtensorMap* dy = &params.dy[tile.phase];
    ZeroStores<Config> zeros(params, tile, team.rank);
    if (tile.m < phase.tiles) {
      const int steps = reduction_steps(params, phase);
      const int begin = team.first(steps, team.rank), end = team.first(steps, team.rank + 1);
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
        uint32_t full = shared.full(ring.slot);
        barrier_wait(shared.empty(ring.slot), ring.parity);
        barrier_expect(full, Config::kStageBytes);
        load_im2col(shared.a(ring.slot), dy, full, channel * kStepK, pixel.w + phase.w.lower,
                    pixel.h + phase.h.lower, pixel.n, tap_offset(phase.w, tw),
                    tap_offset(phase.h, th));
#pragma unroll
        for (int i = 0; i < Config::kColumnBlocks; ++i) {
          load_3d(shared.b(ring.slot) + i * kBlockBytes, &params.filter, full, column + i * 64,
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

// Adds the partial sums of a cluster's blocks: afterwards d holds the whole sum in the columns of
// this block (kOwnBlocks * rank of 64 on).
template <class Config>
struct PartialSums {
  const DgradShared<Config>& shared;
  const int group, rank;
  uint32_t round = 0;

  __device__ void add(float (&d)[Config::kBlocks][Config::kColumns / 2]) {
    const int thread = threadIdx.x % 128;
    cluster_wait(shared.taken(group), round ^ 1);
#pragma unroll
    for (int other = 0; other < Config::kSplit; ++other) {
      if (other == rank) continue;
      uint32_t to = cluster_address(shared.partial(group, sender(rank, other)), other);
      each(d, other, [&](float* v, int i) {
        cluster_store(to + (i * 128 + thread) * 16, v[0], v[1], v[2], v[3]);
      });
      cluster_arrive(cluster_address(shared.ready(group), other));
    }
    cluster_wait(shared.ready(group), round);
#pragma unroll
    for (int own = 0; own < Config::kSplit; ++own) {
      if (own != rank) continue;  // so that registers are indexed by constants
#pragma unroll
      for (int from = 0; from < Config::kSplit - 1; ++from) {
        uint32_t at = shared.partial(group, from);
        each(d, own, [&](float* v, int i) {
          float4 other = load_shared_float4(at + (i * 128 + thread) * 16);
          v[0] += other.x;
          v[1] += other.y;
          v[2] += other.z;
          v[3] += other.w;
        });
      }
    }
#pragma unroll
    for (int other = 0; other < Config::kSplit; ++other) {
      if (other != rank) cluster_arrive(cluster_address(shared.taken(group), other));
    }
    round ^= 1;
  }

 private:
  // Place of block `from` among the senders to block `to`.
  static __device__ int sender(int from, int to) { return from < to ? from : from - 1; }

  // f(four accumulators, their number) for all of the columns that block `owner` adds up.
  template <class Function>
  static __device__ void each(float (&d)[Config::kBlocks][Config::kColumns / 2], int owner,
                              Function f) {
#pragma unroll
    for (int b = 0; b < Config::kBlocks; ++b) {
#pragma unroll
      for (int i = 0; i < Config::kOwnBlocks * 8; ++i) {
        f(&d[b][(owner * Config::kOwnBlocks * 8 + i) * 4], b * Config::kOwnBlocks * 8 + i);
      }
    }
  }
};

// Rounds a consumer's accumulators and stores them in pieces of 64 rows and 64 columns, a batch at a
// time through a ring of slots. Piece i of a batch is stored by the first lane of warp i % 4, which
// alone can wait until its slot has been read.
template <class Config>
struct TileStores {
  static constexpr int kBatch = Config::kBatch, kInFlight = Config::kSlots / kBatch;
  const DgradParams& params;
  const DgradShared<Config>& shared;
  int group, rank, batch = 0;

  __device__ void store(const Tile& tile, float (&d)[Config::kBlocks][Config::kColumns / 2]) {
    using T = typename Config::Element;
    const Phase& phase = params.phase[tile.phase];
    const int thread = threadIdx.x % 128, warp = thread / 32, lane = thread % 32;
    const int row0 = tile.m * Config::kRows + (Config::kPingpong ? 0 : group * Config::kGroupRows);
    const int column0 = tile.n * Config::kColumns;
    // Row of the warp's 16 whose address this lane gives, and which of two column blocks of 8.
    const int lane_row = warp * 16 + (lane & 15), lane_block = lane >> 4;
#pragma unroll
    for (int first = 0; first < Config::kPieces; first += kBatch) {
      if (Config::kSplit > 1 && first / Config::kBlocks / Config::kOwnBlocks != rank) continue;
      if (column0 + first / Config::kBlocks * 64 >= params.channels) break;
      const uint32_t out = shared.slot(group, batch * kBatch);
      if (lane == 0 && warp < kBatch) wait_stores_read<kInFlight - 1>();
      sync_threads(1 + group, 128);
#pragma unroll
      for (int i = 0; i < kBatch; ++i) {
        const int b = (first + i) % Config::kBlocks, c = (first + i) / Config::kBlocks;
#pragma unroll
        for (int j = 0; j < 8; j += 2) {
          const float* v = &d[b][(c * 8 + j) * 4];
          store_matrices(out + i * kBlockBytes + swizzled(lane_row, j + lane_block),
                         pack<T>(v[0], v[1]), pack<T>(v[2], v[3]), pack<T>(v[4], v[5]),
                         pack<T>(v[6], v[7]));
        }
      }
      fence_shared_for_async();
      sync_threads(1 + group, 128);
      if (lane == 0 && warp < kBatch) {
#pragma unroll
        for (int i = 0; i < kBatch; i += 4) {
          const int piece = first + i + warp;
          const int row = row0 + piece % Config::kBlocks * 64;
          const int column = column0 + piece / Config::kBlocks * 64;
          if ((kBatch % 4 == 0 || i + warp < kBatch) && row < phase.rows &&
              column < params.channels) {
            const Pixel pixel(phase, row);
            store_im2col(&params.dx[tile.phase], out + (i + warp) * kBlockBytes, column, pixel.w,
                         pixel.h, pixel.n);
          }
        }
        commit_stores();
      }
      if (++batch == kInFlight) batch = 0;
    }
  }
};

// A warpgroup: multiplies and stores every tile, or every second one.
template <class Config>
__device__ void consume(const DgradParams& params, const DgradShared<Config>& shared, int group) {
  using Mma = MmaShared<typename Config::Element, Config::kMmaColumns>;
  const bool first_lane = threadIdx.x % 32 == 0;
  Ring<Config::kStages> ring(0);
  const Team<Config> team;
  TileStores<Config> stores{params, shared, group, team.rank};
  PartialSums<Config> sums{shared, group, team.rank};
  uint32_t turn = group == 0;  // parity to wait for; group 0 need not wait for its first turn
  int count = 0;
  float d[Config::kBlocks][Config::kColumns / 2];
  Tile tile;
  for (int step = 0; tile_at(params.order, step, team.index, team.count, &tile); ++step) {
    const Phase& phase = params.phase[tile.phase];
    if (tile.m >= phase.tiles) continue;
    int steps = reduction_steps(params, phase);
    if constexpr (Config::kSplit > 1) {
      steps = team.first(steps, team.rank + 1) - team.first(steps, team.rank);
      if (steps == 0) {
#pragma unroll
        for (int i = 0; i < Config::kBlocks * Config::kColumns / 2; ++i) (&d[0][0])[i] = 0.0f;
      }
    }
    if constexpr (Config::kPingpong) {
      if ((count++ & 1) != group) {
        ring.skip(steps);
        continue;
      }
      barrier_wait(shared.turn(group), turn);
      turn ^= 1;
    }
    int last = 0;
    for (int k = 0; k < steps; ++k) {
      barrier_wait(shared.full(ring.slot), ring.parity);
      const int a_row = Config::kPingpong ? 0 : group * Config::kGroupRows;
      uint64_t a = operand(shared.a(ring.slot) + a_row * 128, 16, 1024);
      uint64_t b = operand(shared.b(ring.slot), kBlockBytes, 1024);
      mma_fence();
#pragma unroll
      for (int kk = 0; kk < kStepK / 16; ++kk) {  // 16 k: 32 bytes of a's rows, 16 rows of b
#pragma unroll
        for (int i = 0; i < Config::kBlocks; ++i) {
#pragma unroll
          for (int c = 0; c < Config::kColumns; c += Config::kMmaColumns) {
            auto& sum = reinterpret_cast<float (&)[Config::kMmaColumns / 2]>(d[i][c / 2]);
            Mma::mma(sum, a + kk * 2 + i * (kBlockBytes / 16),
                     b + kk * 128 + c / 64 * (kBlockBytes / 16), k > 0 || kk > 0);
          }
        }
      }
      mma_commit();
      if (k > 0) {
        mma_wait<1>();
        if (first_lane) barrier_arrive(shared.empty(last));
      }
      last = ring.slot;
      ring.advance();
    }
    if constexpr (Config::kPingpong) {
      if (first_lane) barrier_arrive(shared.turn(1 - group));
    }
    mma_wait<0>();
#pragma unroll
    for (int i = 0; i < Config::kBlocks; ++i) pin(d[i]);
    if (first_lane && (Config::kSplit == 1 || steps > 0)) barrier_arrive(shared.empty(last));
    if constexpr (Config::kSplit > 1) sums.add(d);
    stores.store(tile, d);
  }
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
      barrier_init(shared.turn(i), 4);
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
  // Registers move within the block: 384 * 168 = 128 * 40 + 256 * 232, 512 * 128 = 128 * 32 + 384 *
  // 160.
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

}  // namespace convoy::hopper
