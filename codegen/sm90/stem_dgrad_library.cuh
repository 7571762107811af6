// stem_dgrad behind the C ABI.
#pragma once

#include <algorithm>

#include "stem_dgrad.cuh"
#include "tensor_map.cuh"

namespace convoy::sm90 {

template <class Config>
struct StemDgrad {
  using T = typename Config::Element;
  struct State {
    StemParams params;
    int blocks, shared_bytes;
  };

  static int32_t check(const ConvoyShape& s) {
    if (int32_t code = check_conv(s, CONVOY_DGRAD)) return code;
    if (s.c != Config::kChannels) return kWrongChannels;
    if (s.stride_h != 2 || s.stride_w != 2) return kUnsupported;
    if (s.r > kLargestStemFilter || s.s > kLargestStemFilter) return kUnsupported;
    if (s.k > kLargestStemK) return kUnsupported;
    if (s.k % 8 != 0) return kMisaligned;
    if (s.swizzle < 0 || s.sm_count < 1) return kBadShape;
    if (int64_t(s.n) * s.h * ((s.w + 239) / 240) >= int64_t(1) << 30) return kTooLarge;
    return kOk;
  }

  static int32_t prepare(const ConvoyShape& s, const ConvoyOperands& o, State* state) {
    StemParams& params = state->params;
    int64_t k = s.k;
    if (int32_t code =
            encode_tiled<T, 4>(&params.dy, o.a, {k, s.q, s.p, s.n},
                               {k, s.q * k, int64_t(s.p) * s.q * k}, {64, kStripPixels, 1, 1})) {
      return code;
    }
    params.filter = o.b;
    params.dx = o.d;
    params.h = s.h;
    params.w = s.w;
    params.k = s.k;
    params.filter_h = s.r;
    params.filter_w = s.s;
    params.pad_top = s.pad_top;
    params.pad_left = s.pad_left;
    params.channel_steps = (s.k + 63) / 64;
    params.bulk_rows = int64_t(s.w) * s.c * 2 % 16 == 0;
    params.grid.images = s.n;
    params.grid.rows = (s.h + 1) / 2;
    params.grid.strips = ((s.w + 1) / 2 + kStripColumns - 1) / kStripColumns;
    params.grid.chunk_rows =
        s.swizzle ? std::min(s.swizzle, params.grid.rows) : default_chunk(params.grid, s.sm_count);
    params.grid.chunks = (params.grid.rows + params.grid.chunk_rows - 1) / params.grid.chunk_rows;
    state->blocks = std::min(stem_items(params.grid), s.sm_count * Config::kBlocksPerProcessor);
    state->shared_bytes = Config::shared_bytes(params.channel_steps);
    // As much as any problem takes: others of the process may share the kernel.
    return allow_shared(kernel(), Config::shared_bytes((kLargestStemK + 63) / 64));
  }

  static int32_t launch(const State& state, cudaStream_t stream) {
    stem_dgrad<Config>
        <<<state.blocks, Config::kThreads, state.shared_bytes, stream>>>(state.params);
    return from_cuda(cudaGetLastError());
  }

  static int32_t footprint(const State& state, ConvoyFootprint* out) {
    return fill_footprint(kernel(), state.blocks, Config::kThreads, state.shared_bytes, out);
  }

 private:
  static const void* kernel() { return reinterpret_cast<const void*>(&stem_dgrad<Config>); }

  // Rows of a chunk, so that the busiest SM has least to do. A chunk of r rows reads
  // r + 3; two blocks on a SM slow each other down by some 1.6.
  static int default_chunk(const StemGrid& grid, int processors) {
    int best = grid.rows;
    double best_time = 1e30;
    for (int rows = 1; rows <= grid.rows; ++rows) {
      int64_t items = int64_t(grid.images) * grid.strips * ((grid.rows + rows - 1) / rows);
      int64_t rounds = (items + processors - 1) / processors;
      double time = (rounds == 1 ? 1.0 : 0.8 * double(rounds)) * (rows + kShifts - 1);
      if (time < best_time) {
        best_time = time;
        best = rows;
      }
    }
    return best;
  }
};

}  // namespace convoy::sm90
