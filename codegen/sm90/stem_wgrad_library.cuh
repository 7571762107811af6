// stem_wgrad behind the C ABI.
#pragma once

#include <algorithm>

#include "stem_wgrad.cuh"
#include "stem_window_library.cuh"
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
  using Window = StemWindow<Config>;
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
    if (int32_t code = Window::check(s, CONVOY_WGRAD, kWindowRowElements)) return code;
    return s.stride_w == Config::kStrideW ? kOk : kUnsupported;
  }

  static int64_t workspace(const ConvoyShape& s) {
    return int64_t(Window::blocks(s, grid(s))) * Config::kParts * Window::column_blocks(s.k) *
           Config::kWeights * Config::kColumns * int64_t(sizeof(float));
  }

  static int32_t prepare(const ConvoyShape& s, const ConvoyOperands& o, State* state) {
    StemWgradParams& params = state->params;
    params.grid = grid(s);
    const int64_t row = int64_t(s.w) * s.c, k = s.k;
    // Words of 64 bits, since a box has at most 256 of whatever it is made of.
    const int words = int(Window::row_elements(s, params.grid.strip_columns) + 7) / 8 * 2;
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
    Window::set_origin(s, &params);
    state->dw = o.d;
    state->blocks = Window::blocks(s, params.grid);
    Variant variant = variant_of(params.grid);
    return allow_shared(kernel(variant), variant.shared_bytes);
  }

  static int32_t launch(const State& state, cudaStream_t stream) {
    const StemWgradParams& params = state.params;
    Variant variant = variant_of(params.grid);
    variant.kernel<<<dim3(state.blocks, Window::column_blocks(params.k)), Config::kThreads,
                     variant.shared_bytes, stream>>>(params);
    if (int32_t code = from_cuda(cudaGetLastError())) return code;
    WgradSums sums{reinterpret_cast<const float2*>(params.partials), state.dw,
                   state.blocks * Config::kParts, params.k, Config::kWeights};
    return enqueue_wgrad_sums<T>(sums, stream);
  }

  static int32_t footprint(const State& state, ConvoyFootprint* out) {
    Variant variant = variant_of(state.params.grid);
    return fill_footprint(kernel(variant), state.blocks * Window::column_blocks(state.params.k),
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

  static WindowGrid grid(const ConvoyShape& s) {
    WindowGrid grid =
        wgrad_strips(s.q, s.stride_w, s.pad_left, Config::kFilterW, Config::kChannels);
    Window::set_rows(s, default_chunk(s, grid), &grid);
    return grid;
  }

  // Rows of a chunk, so that the busiest SM has least to do; a chunk costs the rows of
  // x that its first window needs, some two rows of output.
  static int default_chunk(const ConvoyShape& s, const WindowGrid& grid) {
    int best = s.p;
    int64_t best_time = INT64_MAX;
    for (int rows = 1; rows <= s.p; ++rows) {
      int64_t items =
          int64_t(s.n) * grid.strips * ((s.p + rows - 1) / rows) * Window::column_blocks(s.k);
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
