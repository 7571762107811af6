// What dgrad_strided stores: a consumer's finished tiles, and zeros.
#pragma once

#include "dgrad_config.cuh"
#include "tma.cuh"
#include "warpgroup.cuh"
#include "wgmma_transposed.cuh"

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

// Rounds a consumer's accumulators and stores them in pieces of 64 rows and 64 columns, a batch at a
// time through a ring of slots. Piece i of a batch is stored by the first lane of warp i % 4, which
// alone can wait until its slot has been read.
template <class Config>
struct TileStores {
  using T = typename Config::Element;
  using Accumulators = float[Config::kMmaBlocks][Config::kMmaWidth / 2];
  static constexpr int kBatch = Config::kBatch, kInFlight = Config::kSlots / kBatch;
  static constexpr int kBatches = Config::kPieces / kBatch;
  const DgradParams& params;
  const DgradShared<Config>& shared;
  const int group, rank;
  int slots = 0;        // batch of slots to use next
  int next = kBatches;  // batch of the taken tile to store next
  Tile taken;
  uint32_t rounded[Config::kPieces][16];  // two elements each

  // Stores a tile at once.
  __device__ __forceinline__ void store(const Tile& tile, const Accumulators& d) {
#pragma unroll
    for (int i = 0; i < kBatches; ++i) {
      put(tile, i, [&](int piece, int j) { return round(d, piece, j); });
    }
  }

  // Takes a tile over, to be stored by store_batch() while the accumulators are used again.
  __device__ __forceinline__ void take(const Tile& tile, const Accumulators& d) {
    taken = tile;
    next = 0;
#pragma unroll
    for (int i = 0; i < Config::kPieces; ++i) {
#pragma unroll
      for (int j = 0; j < 16; ++j) rounded[i][j] = round(d, i, j);
    }
  }

  // Stores one batch of the taken tile, if any is left.
  __device__ __forceinline__ void store_batch() {
    const int now = next;
#pragma unroll
    for (int i = 0; i < kBatches; ++i) {  // so that registers are indexed by constants
      if (i == now) put(taken, i, [&](int piece, int j) { return rounded[piece][j]; });
    }
    next = min(now + 1, kBatches);
  }

  __device__ __forceinline__ void store_rest() {
    while (next < kBatches) store_batch();
  }

 private:
  // Accumulators 2 j and 2 j + 1 of a piece.
  static __device__ __forceinline__ uint32_t round(const Accumulators& d, int piece, int j) {
    const float* v = &d[piece % Config::kMmaBlocks][piece / Config::kMmaBlocks * 32 + j * 2];
    return pack<T>(v[0], v[1]);
  }

  // `rounded_pair` of (piece, j) as round() gives it.
  template <class Function>
  __device__ __forceinline__ void put(const Tile& tile, int batch, Function rounded_pair) {
    const int thread = threadIdx.x % 128, warp = thread / 32, lane = thread % 32;
    const int first = batch * kBatch;
    constexpr bool kOwnRows = !Config::kPingpong && !Config::kSwapped;
    const int row0 = tile.m * Config::kRows + (kOwnRows ? group * Config::kGroupRows : 0);
    const int column0 = tile.n * Config::kColumns + (Config::kSwapped ? group * 64 : 0);
    if (Config::kSplit > 1 && first / Config::kBlocks / Config::kOwnBlocks != rank) return;
    if (column0 + first / Config::kBlocks * 64 >= params.channels) return;
    const uint32_t out = shared.slot(group, slots * kBatch);
    if (lane == 0 && warp < kBatch) wait_stores_read<kInFlight - 1>();
    sync_threads(1 + group, 128);
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
#pragma unroll
      for (int j = 0; j < 8; j += 2) {
        const uint32_t pairs[4] = {
            rounded_pair(first + i, j * 2), rounded_pair(first + i, j * 2 + 1),
            rounded_pair(first + i, j * 2 + 2), rounded_pair(first + i, j * 2 + 3)};
        if constexpr (Config::kSwapped) {
          // The lane's row of two blocks of 8 rows, and which half of the warp's 16 columns.
          const int row = (j + (lane >> 4)) * 8 + (lane & 7), half = lane >> 3 & 1;
          store_transposed_matrices(out + i * kBlockBytes + swizzled(row, warp * 2 + half),
                                    pairs[0], pairs[1], pairs[2], pairs[3]);
        } else {
          // The lane's row of the warp's 16, and which of two blocks of 8 columns.
          const int row = warp * 16 + (lane & 15), block = j + (lane >> 4);
          store_matrices(out + i * kBlockBytes + swizzled(row, block), pairs[0], pairs[1], pairs[2],
                         pairs[3]);
        }
      }
    }
    fence_shared_for_async();
    sync_threads(1 + group, 128);
    if (lane == 0 && warp < kBatch) {
      const Phase& phase = params.phase[tile.phase];
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
    if (++slots == kInFlight) slots = 0;
  }
};

}  // namespace convoy::hopper
