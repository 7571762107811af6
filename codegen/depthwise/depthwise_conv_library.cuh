// depthwise_conv behind the C ABI: fprop and dgrad of one element type and filter size.
//
// ConvoyShape.swizzle is kForwardActivations * tile + activation: a place in Tiles and an activation.
#pragma once

#include "library.cuh"

namespace convoy::depthwise {

// Weights in shared memory: what every GPU gives a block that does not ask for more.
constexpr int kWeightBytes = 40 << 10;

template <class T_, int Filter_>
struct DepthwiseConv {
  using T = T_;
  static constexpr int Filter = Filter_;

  struct State {
    ConvParams params;
    const void* kernel;
    dim3 grid;
    int shared_bytes;
    bool waits;
  };

  static int32_t check(const ConvoyShape& s) {
    if (s.op != CONVOY_FPROP && s.op != CONVOY_DGRAD) return kWrongOp;
    if (int32_t code = check_depthwise<T>(s, Filter)) return code;
    if (s.swizzle < 0 || tile_index(s) >= tile_count<Filter>()) return kUnsupported;
    if (s.op == CONVOY_DGRAD) {
      const int stride = std::max(s.stride_h, s.stride_w);
      if (s.k != s.c || activation_of(s) != kNone || stride > kMostPhases) return kUnsupported;
      if (stride > 1 && (Filter || s.dilation_h != 1 || s.dilation_w != 1)) return kUnsupported;
    }
    const Tile tile = tile_of(s);
    return check_tile<T>(s, Filter, tile, row_axis(s, 0, tile), column_axis(s, 0, tile));
  }

  static int64_t workspace(const ConvoyShape&) { return 0; }

  static int32_t prepare(const ConvoyShape& s, const ConvoyOperands& o, State* state) {
    return prepare_rows(s, o, compact_rows(s), state);
  }

  static int32_t prepare_strided(const ConvoyShape& s, const ConvoyOperands& o,
                                 const ConvoyRowStrides& rows, State* state) {
    if (int32_t code = check_rows(s, o, rows, tile_of(s).vector, tile_of(s).vector,
                                  (kMostBytes - 1) / int64_t(sizeof(T))))
      return code;
    return prepare_rows(s, o, rows, state);
  }

  static int32_t launch(const State& state, cudaStream_t stream) {
    void* arguments[] = {const_cast<ConvParams*>(&state.params)};
    return from_cuda(cudaLaunchKernel(state.kernel, state.grid, dim3(kThreads), arguments,
                                      size_t(state.shared_bytes), stream));
  }

  static int32_t launch_programmatic(const State& state, cudaStream_t stream,
                                     bool constant_weights) {
    return launch_early(state, kThreads, constant_weights, stream);
  }

  static int32_t footprint(const State& state, ConvoyFootprint* out) {
    return fill_footprint(state.kernel, int(state.grid.x * state.grid.y * state.grid.z), kThreads,
                          state.shared_bytes, out);
  }

 private:
  static constexpr int kBlocksPerSm = 8;

  static int32_t prepare_rows(const ConvoyShape& s, const ConvoyOperands& o,
                              const ConvoyRowStrides& rows, State* state) {
    if (!o.a || !o.b || !o.d) return kMissingOperand;
    const Tile tile = tile_of(s);
    for (const void* pointer : {o.a, static_cast<const void*>(o.d), o.residual, o.bias}) {
      if (!is_aligned(pointer, tile.vector * int(sizeof(T)))) return kMisaligned;
    }
    const bool dgrad = s.op == CONVOY_DGRAD;
    ConvParams& p = state->params;
    p.in = o.a;
    p.filter = o.b;
    p.residual = o.residual;
    p.bias = o.bias;
    p.out = o.d;
    const int row_phases = dgrad ? s.stride_h : 1;
    p.column_phases = dgrad ? s.stride_w : 1;
    int strips = 0, taps = 0;
    for (int i = 0; i < row_phases; ++i) p.rows[i] = row_axis(s, i, tile);
    for (int i = 0; i < p.column_phases; ++i) p.columns[i] = column_axis(s, i, tile);
    for (int i = 0; i < row_phases; ++i) {
      for (int j = 0; j < p.column_phases; ++j) {
        strips = std::max(strips, p.rows[i].strips * p.columns[j].strips);
        taps = std::max(taps, p.columns[j].taps);
      }
    }
    set_sizes(s, rows, &p);
    p.activation = activation_of(s);
    p.clip_min = s.clip_min;
    p.clip_max = s.clip_max;
    p.constant_weights = 0;
    set_block<T>(s, tile, int64_t(strips) * s.n, &p);

    const int channels = p.vectors * tile.vector;
    const int row_bytes = 4 * weight_stride(channels) *
                          (Filter ? Filter : (taps + kTapChunk - 1) / kTapChunk * kTapChunk);
    p.weight_rows =
        Filter ? s.r : std::max(1, std::min(s.r, kWeightBytes / std::max(1, row_bytes)));
    state->shared_bytes = p.weight_rows * row_bytes;

    const int channel_blocks = (s.k + channels - 1) / channels;
    const int phases = row_phases * p.column_phases;
    const int64_t needed = (int64_t(strips) * s.n + p.block_strips - 1) / p.block_strips;
    const int64_t most = std::max<int64_t>(1, int64_t(kBlocksPerSm) * s.sm_count / channel_blocks);
    const int64_t turns = (needed + most - 1) / most;  // strips of a block, evenly
    state->grid = dim3(unsigned((needed + turns - 1) / turns), channel_blocks, phases);
    state->kernel = kernel_of(tile_index(s), tile.single() ? 1 : p.columns[0].stride);
    if (!state->kernel) return kUnsupported;
    state->waits = waits(state->kernel);
    return kOk;
  }

  static int tile_index(const ConvoyShape& s) { return s.swizzle / kForwardActivations; }
  static Tile tile_of(const ConvoyShape& s) { return Tiles<Filter>::list[tile_index(s)]; }
  static int activation_of(const ConvoyShape& s) { return s.swizzle % kForwardActivations; }

  static Axis row_axis(const ConvoyShape& s, int phase, Tile tile) {
    return s.op == CONVOY_DGRAD
               ? dgrad_axis(s.p, s.h, s.r, s.stride_h, s.dilation_h, s.pad_top, phase, tile.rows)
               : fprop_axis(s.h, s.p, s.r, s.stride_h, s.dilation_h, s.pad_top, tile.rows);
  }
  static Axis column_axis(const ConvoyShape& s, int phase, Tile tile) {
    return s.op == CONVOY_DGRAD
               ? dgrad_axis(s.q, s.w, s.s, s.stride_w, s.dilation_w, s.pad_left, phase,
                            tile.columns)
               : fprop_axis(s.w, s.q, s.s, s.stride_w, s.dilation_w, s.pad_left, tile.columns);
  }

  template <int Index, int Stride>
  static const void* instance() {
    constexpr Tile tile = Tiles<Filter>::list[Index];
    if constexpr (!is_compiled<T>(Filter, tile, Stride)) {
      return nullptr;
    } else {
      using Config = ConvConfig<T, Filter, Stride, tile.vector, tile.rows, tile.columns>;
      return reinterpret_cast<const void*>(&depthwise_conv<Config>);
    }
  }

  template <int... Index>
  static const void* choose(int place, int stride, std::integer_sequence<int, Index...>) {
    const void* found = nullptr;
    ((Index == place ? void(found = stride == 2 ? instance<Index, 2>() : instance<Index, 1>())
                     : void()),
     ...);
    return found;
  }

  static const void* kernel_of(int place, int stride) {
    return choose(place, stride, std::make_integer_sequence<int, tile_count<Filter>()>());
  }
};

}  // namespace convoy::depthwise
