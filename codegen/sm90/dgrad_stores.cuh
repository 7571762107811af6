// What dgrad_strided stores: a consumer's finished tiles, and zeros.
#pragma once

#include "dgrad_config.cuh"
#include "tma.cuh"
#include "warpgroup.cuh"
#include "wgmma_transposed.cuh"

namespace convoy::sm90 {

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

// Subtile `index` of consumer `group`: its 64 rows of the phase and its 64 columns begin here.
template <class Config>
struct Subtile {
  int row, column;
  __device__ Subtile(const Tile& tile, int group, int index) {
    constexpr bool kOwnRows = !Config::kPingpong && !Config::kSwapAB;
    row = tile.m * Config::kRows + (kOwnRows ? group * Config::kGroupRows : 0) +
          index % Config::kBlocks * 64;
    column = tile.n * Config::kColumns + (Config::kSwapAB ? group * 64 : 0) +
             index / Config::kBlocks * 64;
  }
};

// Rounds a consumer's accumulators and stores them in subtiles of 64 rows and 64 columns, a commit
// group at a time through a ring of stages. Subtile i of a group is stored by the first lane of warp i % 4, which
// alone can wait until its stage has been read.
template <class Config>
struct TileStores {
  using T = typename Config::Element;
  using Accumulators = float[Config::kMmaBlocks][Config::kMmaWidth / 2];
  static constexpr int kCommitGroup = Config::kCommitGroup,
                       kInFlight = Config::kEpilogueStages / kCommitGroup;
  static constexpr int kCommitGroups = Config::kSubtiles / kCommitGroup;
  const DgradParams& params;
  const DgradShared<Config>& shared;
  const int group, rank;
  Ring<kInFlight> stages{1};  // those of the next commit group
  int next = kCommitGroups;   // commit group of the taken tile to store next
  Tile taken;
  uint32_t rounded[Config::kSubtiles][16];  // two elements each

  __device__ TileStores(const DgradParams& params, const DgradShared<Config>& shared, int group,
                        int rank)
      : params(params), shared(shared), group(group), rank(rank) {}

  // Stores a tile at once.
  __device__ __forceinline__ void store(const Tile& tile, const Accumulators& d) {
#pragma unroll
    for (int i = 0; i < kCommitGroups; ++i) {
      put(tile, i, [&](int subtile, int j) { return round(d, subtile, j); });
    }
  }

  // Takes a tile over, to be stored by store_group() while the accumulators are used again.
  __device__ __forceinline__ void take(const Tile& tile, const Accumulators& d) {
    taken = tile;
    next = 0;
#pragma unroll
    for (int i = 0; i < Config::kSubtiles; ++i) {
#pragma unroll
      for (int j = 0; j < 16; ++j) rounded[i][j] = round(d, i, j);
    }
  }

  // Stores one commit group of the taken tile, if any is left.
  __device__ __forceinline__ void store_group() {
    const int now = next;
#pragma unroll
    for (int i = 0; i < kCommitGroups; ++i) {  // so that registers are indexed by constants
      if (i == now) put(taken, i, [&](int subtile, int j) { return rounded[subtile][j]; });
    }
    next = min(now + 1, kCommitGroups);
  }

  __device__ __forceinline__ void store_rest() {
    while (next < kCommitGroups) store_group();
  }

 private:
  // Accumulators 2 j and 2 j + 1 of a subtile.
  static __device__ __forceinline__ uint32_t round(const Accumulators& d, int subtile, int j) {
    const float* v = &d[subtile % Config::kMmaBlocks][subtile / Config::kMmaBlocks * 32 + j * 2];
    return pack<T>(v[0], v[1]);
  }

  // `rounded_pair` of (subtile, j) as round() gives it.
  template <class Function>
  __device__ __forceinline__ void put(const Tile& tile, int commit_group, Function rounded_pair) {
    const int warp = threadIdx.x % 128 / 32, lane = threadIdx.x % 32,
              first = commit_group * kCommitGroup;
    if (Config::kSplit > 1 && first / Config::kBlocks / Config::kOwnBlocks != rank) return;
    if (Subtile<Config>(tile, group, first).column >= params.channels) return;
    const uint32_t out = shared.subtile(group, stages.stage * kCommitGroup);
    if (lane == 0 && warp < kCommitGroup) wait_stores_read<kInFlight - 1>();
    sync_threads(1 + group, 128);
#pragma unroll
    for (int i = 0; i < kCommitGroup; ++i) {
      write(out + i * kBlockBytes, warp, lane, first + i, rounded_pair);
    }
    fence_shared_for_async();
    sync_threads(1 + group, 128);
    if (lane == 0 && warp < kCommitGroup) {
#pragma unroll
      for (int i = 0; i < kCommitGroup; i += 4) {
        if (kCommitGroup % 4 == 0 || i + warp < kCommitGroup) {
          copy(tile, first + i + warp, out + (i + warp) * kBlockBytes);
        }
      }
      commit_stores();
    }
    stages.advance();
  }

  // This warp's part of a subtile, into the stage at `out`.
  template <class Function>
  static __device__ __forceinline__ void write(uint32_t out, int warp, int lane, int subtile,
                                               Function rounded_pair) {
#pragma unroll
    for (int j = 0; j < 16; j += 4) {
      const uint32_t pairs[4] = {rounded_pair(subtile, j), rounded_pair(subtile, j + 1),
                                 rounded_pair(subtile, j + 2), rounded_pair(subtile, j + 3)};
      if constexpr (Config::kSwapAB) {
        // The lane's row of two blocks of 8 rows, and which half of the warp's 16 columns.
        const int row = (j / 2 + (lane >> 4)) * 8 + (lane & 7), half = lane >> 3 & 1;
        store_transposed_matrices(out + swizzled(row, warp * 2 + half), pairs[0], pairs[1],
                                  pairs[2], pairs[3]);
      } else {
        // The lane's row of the warp's 16, and which of two blocks of 8 columns.
        const int row = warp * 16 + (lane & 15), block = j / 2 + (lane >> 4);
        store_matrices(out + swizzled(row, block), pairs[0], pairs[1], pairs[2], pairs[3]);
      }
    }
  }

  // One thread: hands a subtile to TMA.
  __device__ __forceinline__ void copy(const Tile& tile, int index, uint32_t from) {
    const Phase& phase = params.phase[tile.phase];
    const Subtile<Config> subtile(tile, group, index);
    if (subtile.row >= phase.rows || subtile.column >= params.channels) return;
    const Pixel pixel(phase, subtile.row);
    store_im2col(&params.dx[tile.phase], from, subtile.column, pixel.w, pixel.h, pixel.n);
  }
};

}  // namespace convoy::sm90
