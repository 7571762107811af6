// stem_fprop behind the C ABI.
#pragma once

#include <algorithm>

#include "stem_fprop.cuh"
#include "stem_window_library.cuh"
#include "tensor_map.cuh"

namespace convoy::sm90 {

template <class Config>
struct StemFprop {
  using T = typename Config::Element;
  using Window = StemWindow<Config>;
  struct State {
    WindowParams params;
    int blocks;
  };

  static int32_t check(const ConvoyShape& s) {
    return Window::check(s, CONVOY_FPROP, kRowElements);
  }

  static int32_t prepare(const ConvoyShape& s, const ConvoyOperands& o, State* state) {
    WindowParams& params = state->params;
    const int64_t row = int64_t(s.w) * s.c, k = s.k;
    if (int32_t code =
            encode_tiled<T, 3>(&params.x, o.a, {row, s.h, s.n}, {row, s.h * row},
                               {Config::kBoxElements, 1, 1}, CU_TENSOR_MAP_SWIZZLE_NONE)) {
      return code;
    }
    if (int32_t code = encode_tiled<T, 4>(&params.y, o.d, {k, s.q, s.p, s.n},
                                          {k, s.q * k, int64_t(s.p) * s.q * k},
                                          {Config::kColumns, 16, 1, 1})) {
      return code;
    }
    if (!is_aligned(o.bias)) return kMisaligned;  // null is
    params.filter = o.b;
    params.bias = o.bias;
    params.k = s.k;
    params.stride_h = s.stride_h;
    params.stride_w = s.stride_w;
    Window::set_origin(s, &params);
    set_grid(s, &params);
    state->blocks = Window::blocks(s, params.grid);
    return allow_shared(kernel(), Config::kSharedBytes);
  }

  static int32_t launch(const State& state, cudaStream_t stream) {
    stem_fprop<Config>
        <<<grid(state), Config::kThreads, Config::kSharedBytes, stream>>>(state.params);
    return from_cuda(cudaGetLastError());
  }

  static int32_t footprint(const State& state, ConvoyFootprint* out) {
    dim3 blocks = grid(state);
    return fill_footprint(kernel(), int(blocks.x * blocks.y), Config::kThreads,
                          Config::kSharedBytes, out);
  }

 private:
  static constexpr int kRowElements = Config::kBoxElements * Config::kBoxesPerRow;

  static const void* kernel() { return reinterpret_cast<const void*>(&stem_fprop<Config>); }

  static dim3 grid(const State& state) {
    return dim3(state.blocks, Window::column_blocks(state.params.k));
  }

  static void set_grid(const ConvoyShape& s, WindowParams* params) {
    int widest = Config::kConsumers / 32 * 16;
    while (Window::row_elements(s, widest) > kRowElements) widest -= 16;
    WindowGrid& grid = params->grid;
    grid.strips = (s.q + widest - 1) / widest;
    grid.strip_columns = ((s.q + grid.strips - 1) / grid.strips + 15) / 16 * 16;
    params->row_boxes =
        int((Window::row_elements(s, grid.strip_columns) + Config::kBoxElements - 1) /
            Config::kBoxElements);
    Window::set_rows(s, default_chunk(s, grid), &grid);
  }

  // Rows of a chunk, so that the busiest SM has least to do; a chunk costs the rows of
  // x that its first window needs, some two rows of output.
  static int default_chunk(const ConvoyShape& s, const WindowGrid& grid) {
    int best = s.p;
    double best_time = 1e30;
    const int column_blocks = Window::column_blocks(s.k);
    for (int rows = 1; rows <= s.p; ++rows) {
      int64_t items = int64_t(s.n) * grid.strips * ((s.p + rows - 1) / rows) * column_blocks;
      int64_t rounds = (items + s.sm_count - 1) / s.sm_count;
      double time = (rounds == 1 ? 1.0 : 0.7 * double(rounds)) * (rows + 2);
      if (time < best_time) {
        best_time = time;
        best = rows;
      }
    }
    return best;
  }
};

}  // namespace convoy::sm90
