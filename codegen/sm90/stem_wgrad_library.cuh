// stem_wgrad behind the C ABI.
#pragma once

#include <algorithm>

#include "stem_wgrad.cuh"
#include "tensor_map.cuh"
#include "wgrad_sums.cuh"
#include "workspace_library.cuh"

namespace convoy::sm90 {

template <>
constexpr CUtensorMapDataType map_type<int64_t>() {
  return CU_TENSOR_MAP_DATA_TYPE_INT64;
}

template <class Config>
struct StemWgrad {
  using T = typename Config::Element;
  struct State {
    StemWgradParams params;
    void* dw;
    int blocks;
  };

  // One for each width of a strip.
  struct Variant {
    void (*kernel)(StemWgradParams);
    int shared_bytes;
  };

  static int32_t check(const ConvoyShape& s) {
    if (int32_t code = check_conv(s, CONVOY_WGRAD)) return code;
    if (s.c != Config::kChannels) return kWrongChannels;
    if (s.r != Config::kFilterH || s.s != Config::kFilterW) return kUnsupported;
    // Rows that no output needs would never be waited for.
    if (s.stride_w != Config::kStrideW || s.stride_h > s.r) return kUnsupported;
    // Rows of x start at 16-byte boundaries; a strip of 16 columns fits.
    if (row_elements(s, 16) > kWindowRowElements) return kUnsupported;
    if (int64_t(s.w) * s.c % 8 != 0 || s.k % 8 != 0) return kMisaligned;
    if (s.swizzle < 0 || s.sm_count < 1) return kBadShape;
    if (int64_t(s.n) * s.p * ((s.q + 15) / 16) >= int64_t(1) << 30) return kTooLarge;
    if (int64_t(s.w) * s.c >= int64_t(1) << 30) return kTooLarge;
    return s.k > 65535 * Config::kColumns ? kTooLarge : kOk;
  }

  static int64_t workspace(const ConvoyShape& s) {
    return blocks(s, grid(s)) * Config::kParts * column_blocks(s.k) * Config::kWeights *
           Config::kColumns * int64_t(sizeof(float));
  }

  static int32_t prepare(const ConvoyShape& s, const ConvoyOperands& o, State* state) {
    StemWgradParams& params = state->params;
    params.grid = grid(s);
    const int64_t row = int64_t(s.w) * s.c, k = s.k;
    // Words of 64 bits, since a box has at most 256 of whatever it is made of.
    const int words = int(row_elements(s, params.grid.strip_columns) + 7) / 8 * 2;
    params.row_bytes = words * 8;
    if (int32_t code =
            encode_tiled<int64_t, 3>(&params.x, o.b, {row / 4, s.h, s.n}, {row / 4, s.h * row / 4},
                                     {words, 1, 1}, CU_TENSOR_MAP_SWIZZLE_NONE)) {
      return code;
    }
    if (int32_t code = encode_tiled<T, 4>(&params.dy, o.a, {k, s.q, s.p, s.n},
                                          {k, s.q * k, int64_t(s.p) * s.q * k},
                                          {Config::kColumns, params.grid.strip_columns, 1, 1})) {
      return code;
    }
    params.partials = static_cast<float*>(o.workspace);
    params.k = s.k;
    params.stride_h = s.stride_h;
    params.pad_top = s.pad_top;
    const int shift = window_shift(s.pad_left, s.c);
    params.lead = window_lead(s.pad_left, s.c);
    params.left = s.pad_left * s.c + shift;
    params.first = shift - params.lead;
    state->dw = o.d;
    state->blocks = int(blocks(s, params.grid));
    Variant variant = variant_of(params.grid);
    return allow_shared(kernel(variant), variant.shared_bytes);
  }

  static int32_t launch(const State& state, cudaStream_t stream) {
    const StemWgradParams& params = state.params;
    Variant variant = variant_of(params.grid);
    variant.kernel<<<dim3(state.blocks, column_blocks(params.k)), Config::kThreads,
                     variant.shared_bytes, stream>>>(params);
    if (int32_t code = from_cuda(cudaGetLastError())) return code;
    WgradSums sums{reinterpret_cast<const float2*>(params.partials), state.dw,
                   state.blocks * Config::kParts, params.k, Config::kWeights};
    return enqueue_wgrad_sums<T>(sums, stream);
  }

  static int32_t footprint(const State& state, ConvoyFootprint* out) {
    Variant variant = variant_of(state.params.grid);
    return fill_footprint(kernel(variant), state.blocks * column_blocks(state.params.k),
                          Config::kThreads, variant.shared_bytes, out);
  }

 private:
  static const void* kernel(Variant variant) {
    return reinterpret_cast<const void*>(variant.kernel);
  }

  template <int kSteps>
  static constexpr Variant variant() {
    return {&stem_wgrad<Config, kSteps>, StemWgradShared<Config, kSteps>::kBytes};
  }

  static Variant variant_of(const WindowGrid& grid) {
    static_assert(kWidestStrip == 8 * 16);
    static constexpr Variant kVariants[] = {variant<1>(), variant<2>(), variant<3>(), variant<4>(),
                                            variant<5>(), variant<6>(), variant<7>(), variant<8>()};
    return kVariants[grid.strip_columns / 16 - 1];
  }

  static int column_blocks(int k) { return (k + Config::kColumns - 1) / Config::kColumns; }

  static int64_t row_elements(const ConvoyShape& s, int columns) {
    return window_row_elements(columns, s.stride_w, s.pad_left, Config::kFilterW,
                               Config::kChannels);
  }

  static int64_t blocks(const ConvoyShape& s, const WindowGrid& grid) {
    int resident = s.sm_count * Config::kBlocksPerProcessor / column_blocks(s.k);
    return std::min(window_items(grid), std::max(1, resident));
  }

  static WindowGrid grid(const ConvoyShape& s) {
    WindowGrid grid =
        wgrad_strips(s.q, s.stride_w, s.pad_left, Config::kFilterW, Config::kChannels);
    grid.images = s.n;
    grid.rows = s.p;
    grid.chunk_rows = std::min(s.swizzle ? s.swizzle : default_chunk(s, grid), s.p);
    grid.chunks = (s.p + grid.chunk_rows - 1) / grid.chunk_rows;
    return grid;
  }

  // Rows of a chunk, so that the busiest SM has least to do; a chunk costs the rows of
  // x that its first window needs, some two rows of output.
  static int default_chunk(const ConvoyShape& s, const WindowGrid& grid) {
    int best = s.p;
    int64_t best_time = INT64_MAX;
    for (int rows = 1; rows <= s.p; ++rows) {
      int64_t items = int64_t(s.n) * grid.strips * ((s.p + rows - 1) / rows) * column_blocks(s.k);
      int64_t time = (items + s.sm_count - 1) / s.sm_count * (rows + 2);
      if (time <= best_time) {
        best_time = time;
        best = rows;
      }
    }
    return best;
  }
};

}  // namespace convoy::sm90
