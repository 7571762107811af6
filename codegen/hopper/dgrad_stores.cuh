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

// Piece `index` of consumer `group`: its 64 rows of the phase and its 64 columns begin here.
template <class Config>
struct Piece {
  int row, column;
  __device__ Piece(const Tile& tile, int group, int index) {
    constexpr bool kOwnRows = !Config::kPingpong && !Config::kSwapped;
    row = tile.m * Config::kRows + (kOwnRows ? group * Config::kGroupRows : 0) +
          index % Config::kBlocks * 64;
    column = tile.n * Config::kColumns + (Config::kSwapped ? group * 64 : 0) +
             index / Config::kBlocks * 64;
  }
};

// Rounds a consumer's accumulators and stores them in pieces of 64 rows and 64 columns, a batch at a
// time through a ring of slots. Piece i of a batch is stored by the first lane of warp i % 4, which
// alone can wait until its slot has been read; or store_pieces() takes the slots over.
template <class Config>
struct TileStores {
  using T = typename Config::Element;
  using Accumulators = float[Config::kMmaBlocks][Config::kMmaWidth / 2];
  static constexpr int kBatch = Config::kBatch, kInFlight = Config::kSlots / kBatch;
  static constexpr int kBatches = Config::kPieces / kBatch;
  const DgradParams& params;
  const DgradShared<Config>& shared;
  const int group, rank;
  Ring<kInFlight> slots{1};  // those of the next batch
  int next = kBatches;       // batch of the taken tile to store next
  Tile taken;
  uint32_t rounded[Config::kPieces][16];  // two elements each

  __device__ TileStores(const DgradParams& params, const DgradShared<Config>& shared, int group,
                        int rank)
      : params(params), shared(shared), group(group), rank(rank) {}

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
    const int warp = threadIdx.x % 128 / 32, lane = threadIdx.x % 32, first = batch * kBatch;
    if (Config::kSplit > 1 && first / Config::kBlocks / Config::kOwnBlocks != rank) return;
    if (Piece<Config>(tile, group, first).column >= params.channels) return;
    const uint32_t out = shared.slot(group, slots.slot * kBatch);
    if constexpr (Config::kStoreWarps) {
      barrier_wait(shared.drained(group, slots.slot), slots.parity);
      write(out, warp, lane, first, rounded_pair);
      __syncwarp();
      if (lane == 0) barrier_arrive(shared.filled(group, slots.slot));
    } else {
      if (lane == 0 && warp < kBatch) wait_stores_read<kInFlight - 1>();
      sync_threads(1 + group, 128);
#pragma unroll
      for (int i = 0; i < kBatch; ++i) {
        write(out + i * kBlockBytes, warp, lane, first + i, rounded_pair);
      }
      fence_shared_for_async();
      sync_threads(1 + group, 128);
      if (lane == 0 && warp < kBatch) {
#pragma unroll
        for (int i = 0; i < kBatch; i += 4) {
          if (kBatch % 4 == 0 || i + warp < kBatch) {
            copy(tile, first + i + warp, out + (i + warp) * kBlockBytes);
          }
        }
        commit_stores();
      }
    }
    slots.advance();
  }

  // This warp's part of a piece, into the slot at `out`.
  template <class Function>
  static __device__ __forceinline__ void write(uint32_t out, int warp, int lane, int piece,
                                               Function rounded_pair) {
#pragma unroll
    for (int j = 0; j < 16; j += 4) {
      const uint32_t pairs[4] = {rounded_pair(piece, j), rounded_pair(piece, j + 1),
                                 rounded_pair(piece, j + 2), rounded_pair(piece, j + 3)};
      if constexpr (Config::kSwapped) {
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

  // One thread: hands a piece to the copy engine.
  __device__ __forceinline__ void copy(const Tile& tile, int index, uint32_t from) {
    const Phase& phase = params.phase[tile.phase];
    const Piece<Config> piece(tile, group, index);
    if (piece.row >= phase.rows || piece.column >= params.channels) return;
    const Pixel pixel(phase, piece.row);
    store_im2col(&params.dx[tile.phase], from, piece.column, pixel.w, pixel.h, pixel.n);
  }
};

// One warp: stores piece `index` of consumer `group` from the slot at `from` with ordinary
// instructions, four rows of 128 bytes each.
template <class Config>
__device__ __forceinline__ void store_piece(const DgradParams& params, const Tile& tile, int group,
                                            int index, uint32_t from) {
  const int lane = threadIdx.x % 32;
  const Phase& phase = params.phase[tile.phase];
  const PixelSteps& steps = params.steps[tile.phase];
  const Piece<Config> piece(tile, group, index);
  const int column = piece.column + lane % 8 * 8;
  int at[2];  // in dx, of rows `lane` and `lane` + 32; -1 behind the last one
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int row = piece.row + i * 32 + lane;
    const Pixel pixel(phase, row);
    const int place = steps.first + pixel.n * steps.n + pixel.h * steps.h + pixel.w * steps.w;
    at[i] = row < phase.rows ? place : -1;
  }
#pragma unroll
  for (int block = 0; block < 64; block += 16) {
    uint4 v[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      v[i] = load_shared_uint4(from + swizzled(block + i * 4 + lane / 8, lane % 8));
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int row = block + i * 4 + lane / 8;
      const int pixel = __shfl_sync(~0u, at[block / 32], row % 32);
      if (pixel >= 0 && column < params.channels) {
        uint4* to = reinterpret_cast<uint4*>(params.result);
        to[(int64_t(pixel) * params.channels + column) / 8] = v[i];
      }
    }
  }
}

// One warp: all of a consumer's pieces, in the order in which it fills its slots.
template <class Config, class Team>
__device__ void store_pieces(const DgradParams& params, const DgradShared<Config>& shared,
                             const Team& team, int group) {
  Ring<Config::kSlots> slots(0);
  Tile tile;
  for (int step = 0; tile_at(params.order, step, team.index, team.count, &tile); ++step) {
    if (tile.m >= params.phase[tile.phase].tiles) continue;
#pragma unroll 1
    for (int i = 0; i < Config::kPieces; ++i) {
      if (Piece<Config>(tile, group, i).column >= params.channels) continue;
      barrier_wait(shared.filled(group, slots.slot), slots.parity);
      store_piece<Config>(params, tile, group, i, shared.slot(group, slots.slot));
      __syncwarp();
      if (threadIdx.x % 32 == 0) barrier_arrive(shared.drained(group, slots.slot));
      slots.advance();
    }
  }
}

}  // namespace convoy::hopper
