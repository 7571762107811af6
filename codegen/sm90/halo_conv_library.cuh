// halo_conv behind the C ABI: fprop of one element type with stride 1 and several taps. The tile of a
// launch is a place in kHaloConvTiles.
#pragma once

#include "halo_conv.cuh"
#include "small_conv_launch.cuh"

namespace convoy::sm90 {

// Rows in units of 64, columns, and whether a block may take a whole SM: then no block of the next
// kernel is on the SM before it has ended, but more weights are on their way.
struct HaloConvTile {
  int row_groups, columns;
  bool whole_sm;
};
constexpr HaloConvTile kHaloConvTiles[] = {{1, 32, false}, {1, 64, false}, {2, 32, false},
                                           {2, 64, false}, {2, 64, true},  {4, 64, true}};
constexpr int kHaloConvTileCount = 6;
constexpr int kMostHaloConvStages = 24;

constexpr int most_shared(HaloConvTile tile) {
  return tile.whole_sm ? 226 << 10 : kMostSmallConvShared;
}

template <class T, class Activation = ChosenActivation>
struct HaloConv : SmallConvLaunch<T, HaloConvParams> {
  using Launch = SmallConvLaunch<T, HaloConvParams>;
  using State = typename Launch::State;

  static int32_t check(const ConvoyShape& s) {
    if (int32_t code = Launch::check(s)) return code;
    if (s.stride_h != 1 || s.stride_w != 1 || s.r * s.s < 2) return kUnsupported;
    if (Launch::tile(s) >= kHaloConvTileCount) return kUnsupported;
    if (Launch::slices(s) > Launch::steps(s)) return kBadSplit;
    return layout(s).stages ? kOk : kUnsupported;
  }

  static int32_t prepare(const ConvoyShape& s, const ConvoyOperands& o, State* state) {
    return prepare_strided(s, o, {s.c, s.k, s.k}, state);
  }

  static int32_t prepare_strided(const ConvoyShape& s, const ConvoyOperands& o,
                                 const ConvoyRowStrides& rows, State* state) {
    if (int32_t code = Launch::prepare_operands(s, o, rows, state)) return code;
    return of_tile(Launch::tile(s),
                   [&](auto tile) { return prepare_tile<tile>(s, o, rows, state); });
  }

 private:
  // Calls `use` with the number of a tile as a constant.
  template <int kTile = 0, class Use>
  static auto of_tile(int tile, Use use) {
    if constexpr (kTile + 1 < kHaloConvTileCount) {
      if (tile != kTile) return of_tile<kTile + 1>(tile, use);
    }
    return use(std::integral_constant<int, kTile>());
  }

  template <int kTile>
  using Config = HaloConvConfig<T, kHaloConvTiles[kTile].row_groups, kHaloConvTiles[kTile].columns,
                                Activation>;

  // What the shared memory of a block holds; no stages where it has too little.
  struct Layout {
    HaloTile tile;
    int input_bytes, input_stride, inputs, stages, shared_bytes;
  };

  static Layout layout(const ConvoyShape& s) {
    return of_tile(Launch::tile(s), [&](auto tile) { return layout_of<tile>(s); });
  }

  template <int kTile>
  static Layout layout_of(const ConvoyShape& s) {
    using Sizes = Config<kTile>;
    const SmallConvShape shape = Launch::shape_of(s);
    Layout found = {halo_tile(shape, s.n, Sizes::kRows)};
    const HaloTile& tile = found.tile;
    if (!tile.width) return found;
    found.input_bytes = tile.images * tile.rows * tile.pitch * 128;
    found.input_stride = (found.input_bytes + 1023) & ~1023;
    found.inputs = shape.chunks > 1 ? 2 : 1;
    const int inputs = found.inputs * found.input_stride;
    const int most = most_shared(kHaloConvTiles[kTile]);
    const int steps = int((Launch::steps(s) + Launch::slices(s) - 1) / Launch::slices(s));
    int stages = std::min({steps, shape.taps + 1, kMostHaloConvStages});
    while (stages > 1 && Sizes::shared_bytes(inputs, stages) > most) --stages;
    // Sums that are exchanged lie where inputs and weights were.
    const bool exchange = Launch::slices(s) > 1;
    while (exchange && inputs + stages * Sizes::kStageBytes < Sizes::kAllSumBytes) ++stages;
    found.shared_bytes = Sizes::shared_bytes(inputs, stages);
    const bool ring = stages <= shape.taps + 1 || stages >= steps;
    if (found.shared_bytes > most || !ring || stages < std::min(2, steps)) return found;
    found.stages = stages;
    return found;
  }

  template <int kTile>
  static int32_t prepare_tile(const ConvoyShape& s, const ConvoyOperands& o,
                              const ConvoyRowStrides& rows, State* state) {
    using Sizes = Config<kTile>;
    HaloConvParams& params = state->params;
    const Layout found = layout_of<kTile>(s);
    const HaloTile& tile = found.tile;
    params.tile = tile;
    params.stages = found.stages;
    params.inputs = found.inputs;
    params.input_bytes = found.input_bytes;
    params.input_stride = found.input_stride;
    const int64_t w = s.w, h = s.h, pitch = rows.a;
    if (int32_t code =
            encode_tiled<T, 4>(&params.x, o.a, {s.c, w, h, s.n}, {pitch, pitch * w, pitch * w * h},
                               {Launch::kChunk, tile.pitch, tile.rows, tile.images})) {
      return code;
    }
    if (int32_t code = Launch::encode_weights(s, o, Sizes::kColumns, &params)) return code;
    const int64_t groups = (s.n + tile.images - 1) / tile.images;
    const int64_t tiles = groups * tile.down * tile.across;
    if (tiles > 65535) return kTooLarge;
    return Launch::template prepare_launch<Sizes>(s, int(tiles), found.shared_bytes,
                                                  most_shared(kHaloConvTiles[kTile]), state);
  }
};

}  // namespace convoy::sm90
