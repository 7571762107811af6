// depthwise_wgrad behind the C ABI: wgrad of one element type and filter size.
//
// ConvoyShape.swizzle is a place in WgradTiles.
#pragma once

#include "library.cuh"
#include "wgrad.cuh"

namespace convoy::depthwise {

template <class T_, int Filter_>
struct DepthwiseWgrad {
  using T = T_;
  static constexpr int Filter = Filter_;

  struct State {
    WgradParams params;
    const void* kernel;
    dim3 grid;
    int shared_bytes;
  };

  static int32_t check(const ConvoyShape& s) {
    if (s.op != CONVOY_WGRAD) return kWrongOp;
    if (int32_t code = check_depthwise<T>(s, Filter)) return code;
    if (s.swizzle < 0 || s.swizzle >= wgrad_tile_count<Filter>()) return kUnsupported;
    return check_tile<T>(s, Filter, tile_of(s), row_axis(s, tile_of(s)),
                         column_axis(s, tile_of(s)));
  }

  static int64_t workspace(const ConvoyShape& s) {
    State state;
    set_launch(s, &state);
    return int64_t(state.params.slice_count) * s.r * s.s * s.k * 4;
  }

  static int32_t prepare(const ConvoyShape& s, const ConvoyOperands& o, State* state) {
    if (!o.a || !o.b || !o.d) return kMissingOperand;
    if (!o.workspace) return kMissingWorkspace;
    const int bytes = tile_of(s).vector * int(sizeof(T));
    if (!is_aligned(o.a, bytes) || !is_aligned(o.b, bytes)) return kMisaligned;
    set_launch(s, state);
    ConvParams& p = state->params.conv;
    p.in = o.b;
    p.filter = o.a;
    p.out = o.d;
    state->params.slices = static_cast<float*>(o.workspace);
    state->kernel = kernel_of(s.swizzle, tile_of(s).single() ? 1 : p.columns[0].stride);
    return state->kernel ? int32_t(kOk) : int32_t(kUnsupported);
  }

  static int32_t launch(const State& state, cudaStream_t stream) {
    void* arguments[] = {const_cast<WgradParams*>(&state.params)};
    if (int32_t code = from_cuda(cudaLaunchKernel(state.kernel, state.grid, dim3(kThreads),
                                                  arguments, size_t(state.shared_bytes), stream))) {
      return code;
    }
    Sum sum(state);
    return from_cuda(cudaLaunchKernel(Sum::kernel(), sum.grid, Sum::block(), sum.arguments,
                                      Sum::kSharedBytes, stream));
  }

  static int32_t footprint(const State& state, ConvoyFootprint* out) {
    return fill_footprint(state.kernel, int(state.grid.x * state.grid.y * state.grid.z), kThreads,
                          state.shared_bytes, out);
  }

  // The launch that adds up the slices.
  struct Sum {
    const float* slices;
    void* dw;
    int slice_count, channels, taps;
    dim3 grid;
    void* arguments[5] = {&slices, &dw, &slice_count, &channels, &taps};

    explicit Sum(const State& state)
        : slices(state.params.slices),
          dw(state.params.conv.out),
          slice_count(state.params.slice_count),
          channels(state.params.conv.out_channels),
          taps(state.params.conv.filter_h * state.params.conv.filter_w),
          grid(unsigned((channels + kSumChannels - 1) / kSumChannels), unsigned(taps)) {}
    static constexpr int kSharedBytes = kSumChannels * kSumLanes * 4;
    static dim3 block() { return dim3(kSumChannels * kSumLanes); }
    static const void* kernel() { return reinterpret_cast<const void*>(&sum_slices<T>); }
  };

 private:
  // Blocks of an SM, and strips of a thread at least: slices have to be added up.
  static constexpr int kBlocksPerSm = 6, kFewestTurns = 4;

  static Tile tile_of(const ConvoyShape& s) { return WgradTiles<Filter>::list[s.swizzle]; }
  static Axis row_axis(const ConvoyShape& s, Tile tile) {
    return fprop_axis(s.h, s.p, s.r, s.stride_h, s.dilation_h, s.pad_top, tile.rows);
  }
  static Axis column_axis(const ConvoyShape& s, Tile tile) {
    return fprop_axis(s.w, s.q, s.s, s.stride_w, s.dilation_w, s.pad_left, tile.columns);
  }

  static void set_launch(const ConvoyShape& s, State* state) {
    const Tile tile = tile_of(s);
    ConvParams& p = state->params.conv;
    p = ConvParams{};
    p.rows[0] = row_axis(s, tile);
    p.columns[0] = column_axis(s, tile);
    p.column_phases = 1;
    set_sizes(s, compact_rows(s), &p);
    const int64_t strips = int64_t(p.rows[0].strips) * p.columns[0].strips * s.n;
    set_block<T>(s, tile, strips, &p);
    const int tap_rows = Filter ? Filter : kTapChunk;
    const int row_groups = (s.r + tap_rows - 1) / tap_rows;
    state->params.tap_columns = (s.s + tap_rows - 1) / tap_rows;
    const int channels = p.vectors * tile.vector, channel_blocks = (s.k + channels - 1) / channels;
    const int groups = row_groups * state->params.tap_columns;
    const int64_t turns = (strips + p.block_strips - 1) / p.block_strips;
    const int64_t most =
        std::max<int64_t>(1, int64_t(kBlocksPerSm) * s.sm_count / (channel_blocks * groups));
    const int64_t useful = std::max<int64_t>(1, (turns + kFewestTurns - 1) / kFewestTurns);
    state->params.slice_count = int(std::min(most, useful));
    state->grid =
        dim3(unsigned(state->params.slice_count), unsigned(channel_blocks), unsigned(groups));
    state->shared_bytes = p.block_strips * tap_rows * channels * 4;
  }

  template <int Index, int Stride>
  static const void* instance() {
    constexpr Tile tile = WgradTiles<Filter>::list[Index];
    if constexpr (!is_compiled<T>(Filter, tile, Stride)) {
      return nullptr;
    } else {
      using Config = ConvConfig<T, Filter, Stride, tile.vector, 1, tile.columns>;
      return reinterpret_cast<const void*>(&depthwise_wgrad<Config>);
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
    return choose(place, stride, std::make_integer_sequence<int, wgrad_tile_count<Filter>()>());
  }
};

}  // namespace convoy::depthwise
