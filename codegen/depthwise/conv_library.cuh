// depthwise_conv behind the C ABI: fprop and dgrad of one element type and filter size.
//
// ConvoyShape.swizzle is kActivations * tile + activation: a place in Tiles and an Activation.
#pragma once

#include <algorithm>
#include <cmath>
#include <utility>

#include "conv.cuh"
#include "convoy/kernel_library.cuh"

namespace convoy::depthwise {

constexpr int64_t kMostBytes = int64_t(1) << 32;
// Weights in shared memory: what every GPU gives a block that does not ask for more.
constexpr int kWeightBytes = 40 << 10;
constexpr int kMostFilter = 64;

template <class T_, int Filter_>
struct DepthwiseConv {
  using T = T_;
  static constexpr int Filter = Filter_;

  struct State {
    ConvParams params;
    const void* kernel;
    dim3 grid;
    int shared_bytes;
  };

  static int32_t check(const ConvoyShape& s) {
    if (s.op != CONVOY_FPROP && s.op != CONVOY_DGRAD) return kWrongOp;
    if (int32_t code = check_sizes(s)) return code;
    if (s.split_k != 1) return kBadSplit;
    if (s.groups < 2 || s.groups != s.c || s.k % s.c) return kUnsupported;
    const int activation = activation_of(s), place = tile_of(s);
    if (s.swizzle < 0 || place >= tile_count<Filter>()) return kUnsupported;
    if (Filter ? s.r != Filter || s.s != Filter : std::max(s.r, s.s) > kMostFilter) {
      return kUnsupported;
    }
    const Tile tile = Tiles<Filter>::list[place];
    if (tile.vector * sizeof(T) > 16 || s.k % tile.vector) return kMisaligned;
    if (s.k != s.c && (tile.vector > 1 || s.op == CONVOY_DGRAD)) return kUnsupported;
    if (s.op == CONVOY_DGRAD) {
      const int stride = std::max(s.stride_h, s.stride_w);
      if (activation != kNone || stride > kMostPhases) return kUnsupported;
      if (stride > 1 && (Filter || s.dilation_h != 1 || s.dilation_w != 1)) return kUnsupported;
    }
    if (!tile.single()) {
      const Axis rows = row_axis(s, 0, tile), columns = column_axis(s, 0, tile);
      if (columns.stride > 2 || (tile.rows > 1 && rows.stride != columns.stride)) {
        return kUnsupported;
      }
      if (window(tile, columns.stride) > kMostWindow) return kUnsupported;
    }
    return check_range(s);
  }

  static int64_t workspace(const ConvoyShape&) { return 0; }

  static int32_t prepare(const ConvoyShape& s, const ConvoyOperands& o, State* state) {
    if (!o.a || !o.b || !o.d) return kMissingOperand;
    const Tile tile = Tiles<Filter>::list[tile_of(s)];
    for (const void* pointer : {o.a, static_cast<const void*>(o.d), o.residual, o.bias}) {
      if (reinterpret_cast<uintptr_t>(pointer) % (tile.vector * sizeof(T))) return kMisaligned;
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
    p.images = s.n;
    p.in_width = dgrad ? s.q : s.w;
    p.in_pixels = dgrad ? s.p * s.q : s.h * s.w;
    p.out_width = dgrad ? s.w : s.q;
    p.out_pixels = dgrad ? s.h * s.w : s.p * s.q;
    p.in_channels = s.c;
    p.out_channels = s.k;
    p.filter_h = s.r;
    p.filter_w = s.s;
    p.activation = activation_of(s);
    const bool relu = p.activation == kRelu;
    p.clip_min = relu ? 0.0f : s.clip_min;
    p.clip_max = relu ? INFINITY : s.clip_max;
    p.by_multiplier = Divider(s.k / s.c);
    set_block(s, tile, int64_t(strips) * s.n, &p);
    p.by_vectors = Divider(p.vectors);

    const int channels = p.vectors * tile.vector;
    const int row_bytes = 4 * weight_stride(channels) *
                          (Filter ? Filter : (taps + kTapChunk - 1) / kTapChunk * kTapChunk);
    p.weight_rows = Filter ? s.r : std::max(1, std::min(s.r, kWeightBytes / std::max(1, row_bytes)));
    state->shared_bytes = p.weight_rows * row_bytes;

    const int channel_blocks = (s.k + channels - 1) / channels;
    const int phases = row_phases * p.column_phases;
    const int64_t needed = (int64_t(strips) * s.n + p.block_strips - 1) / p.block_strips;
    const int64_t most = std::max<int64_t>(1, int64_t(kBlocksPerSm) * s.sm_count / channel_blocks);
    const int64_t turns = (needed + most - 1) / most;  // strips of a block, evenly
    state->grid = dim3(unsigned((needed + turns - 1) / turns), channel_blocks, phases);
    state->kernel = kernel_of(s, tile_of(s), p.columns[0].stride);
    return state->kernel ? int32_t(kOk) : int32_t(kUnsupported);
  }

  static int32_t launch(const State& state, cudaStream_t stream) {
    void* arguments[] = {const_cast<ConvParams*>(&state.params)};
    return from_cuda(cudaLaunchKernel(state.kernel, state.grid, dim3(kThreads), arguments,
                                      size_t(state.shared_bytes), stream));
  }

  static int32_t footprint(const State& state, ConvoyFootprint* out) {
    return fill_footprint(state.kernel, int(state.grid.x * state.grid.y * state.grid.z), kThreads,
                          state.shared_bytes, out);
  }

 private:
  static constexpr int kBlocksPerSm = 32;

  static constexpr int window(Tile tile, int stride) {
    return (tile.columns - 1) * stride + (Filter ? Filter : kTapChunk);
  }

  static int tile_of(const ConvoyShape& s) { return s.swizzle / kActivations; }
  static int activation_of(const ConvoyShape& s) { return s.swizzle % kActivations; }

  static Axis row_axis(const ConvoyShape& s, int phase, Tile tile) {
    return s.op == CONVOY_DGRAD
               ? dgrad_axis(s.p, s.h, s.r, s.stride_h, s.dilation_h, s.pad_top, phase, tile.rows)
               : fprop_axis(s.h, s.p, s.r, s.stride_h, s.dilation_h, s.pad_top, tile.rows);
  }
  static Axis column_axis(const ConvoyShape& s, int phase, Tile tile) {
    return s.op == CONVOY_DGRAD ? dgrad_axis(s.q, s.w, s.s, s.stride_w, s.dilation_w, s.pad_left,
                                             phase, tile.columns)
                                : fprop_axis(s.w, s.q, s.s, s.stride_w, s.dilation_w, s.pad_left,
                                             tile.columns);
  }

  // Offsets have 32 bits, and positions stay far from where they wrap.
  static int32_t check_range(const ConvoyShape& s) {
    const int64_t x = int64_t(s.n) * s.h * s.w, y = int64_t(s.n) * s.p * s.q;
    const int64_t bytes = int64_t(sizeof(T)) * std::max(x * s.c, y * s.k);
    const int64_t extent = std::max({int64_t(s.h) + s.pad_top + s.pad_bottom,
                                     int64_t(s.w) + s.pad_left + s.pad_right,
                                     int64_t(s.dilation_h) * s.r, int64_t(s.dilation_w) * s.s,
                                     int64_t(s.k) * s.r * s.s});
    if (x >= kMostBytes / 4 || y >= kMostBytes / 4 || bytes >= kMostBytes) return kTooLarge;
    if (extent >= int64_t(1) << 28 || s.k >= 65536 * 8) return kTooLarge;
    // A strip of dilated outputs may be cut to one of them.
    const int64_t strips = (int64_t(std::max(s.h, s.p)) + s.dilation_h) *
                           (int64_t(std::max(s.w, s.q)) + s.dilation_w) * s.n;
    return strips >= int64_t(1) << 30 ? kTooLarge : kOk;
  }

  // Channels of a block: 64 bytes or more of a pixel, as evenly as they divide, and fewer strips
  // where there are few.
  static void set_block(const ConvoyShape& s, Tile tile, int64_t strips, ConvParams* p) {
    const int vectors = s.k / tile.vector;
    int most = std::max(8, 64 / int(tile.vector * sizeof(T)));
    while (most < kThreads && strips * most < kThreads) most *= 2;  // few strips: more channels
    const int blocks = (vectors + most - 1) / most;
    p->vectors = (vectors + blocks - 1) / blocks;
    p->block_strips = kThreads / p->vectors;
  }

  template <int Index, int Stride>
  static const void* instance() {
    constexpr Tile tile = Tiles<Filter>::list[Index];
    if constexpr (tile.vector * sizeof(T) > 16 || (tile.single() && Stride != 1) ||
                  window(tile, Stride) > kMostWindow) {
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

  static const void* kernel_of(const ConvoyShape&, int place, int stride) {
    const bool single = Tiles<Filter>::list[place].single();
    return choose(place, single ? 1 : stride,
                  std::make_integer_sequence<int, tile_count<Filter>()>());
  }
};

}  // namespace convoy::depthwise
