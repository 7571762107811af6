// pointwise_conv behind the C ABI: fprop of one element type, 1x1 with stride 1. The tile of a launch
// is a place in kPointwiseColumns; its blocks are no clusters.
#pragma once

#include "pointwise_conv.cuh"
#include "small_conv_launch.cuh"

namespace convoy::sm90 {

constexpr int kPointwiseColumns[] = {64, 128, 192, 256};
constexpr int kPointwiseTileCount = 4, kMostPointwiseStages = 8;  // stages: even

template <class T, class Activation = ChosenActivation>
struct PointwiseConv : SmallConvLaunch<T, PointwiseParams> {
  using Launch = SmallConvLaunch<T, PointwiseParams>;
  using State = typename Launch::State;

  static int32_t check(const ConvoyShape& s) {
    if (int32_t code = check_sizes(s)) return code;
    if (s.op != CONVOY_FPROP) return kWrongOp;
    if (s.groups != 1 || s.swizzle < 0 || Launch::slices(s) != 1) return kUnsupported;
    if (s.c % 8 || s.k % 8) return kMisaligned;
    if (s.split_k != 1) return kBadSplit;
    const bool moves = s.stride_h != 1 || s.stride_w != 1 || s.p != s.h || s.q != s.w;
    if (s.r * s.s != 1 || moves || s.pad_top || s.pad_left) return kUnsupported;
    if (Launch::tile(s) >= kPointwiseTileCount) return kUnsupported;
    const int64_t pixels = int64_t(s.n) * s.p * s.q;
    if (pixels >= int64_t(1) << 30 || s.k > 1 << 20) return kTooLarge;
    return with_tile(s,
                     [&](auto config) { return stages<decltype(config)>(s) ? kOk : kUnsupported; });
  }

  static int32_t prepare(const ConvoyShape& s, const ConvoyOperands& o, State* state) {
    return prepare_strided(s, o, {s.c, s.k, s.k}, state);
  }

  static int32_t prepare_strided(const ConvoyShape& s, const ConvoyOperands& o,
                                 const ConvoyRowStrides& rows, State* state) {
    if (int32_t code = Launch::prepare_operands(s, o, rows, state)) return code;
    return with_tile(
        s, [&](auto config) { return prepare_tile<decltype(config)>(s, o, rows, state); });
  }

 private:
  // Calls `use` with the Config of the launch's tile.
  template <int kTile = 0, class Use>
  static int32_t with_tile(const ConvoyShape& s, Use use) {
    if constexpr (kTile + 1 < kPointwiseTileCount) {
      if (Launch::tile(s) != kTile) return with_tile<kTile + 1>(s, use);
    }
    return use(PointwiseConfig<T, kPointwiseColumns[kTile], Activation>());
  }

  // Of the ring of pixels, as many for each group as fit; 0 where not even one does.
  template <class Config>
  static int stages(const ConvoyShape& s) {
    const int chunks = (s.c + Config::kChunk - 1) / Config::kChunk;
    const int most = Config::kBlocksOfSm == 1 ? 226 << 10 : kMostSmallConvShared;
    int found = kMostPointwiseStages;
    while (found > 0 && Config::shared_bytes(chunks, found) > most) found -= Config::kGroups;
    return found;
  }

  template <class Config>
  static int32_t prepare_tile(const ConvoyShape& s, const ConvoyOperands& o,
                              const ConvoyRowStrides& rows, State* state) {
    PointwiseParams& params = state->params;
    const int64_t pixels = params.shape.pixels;
    params.stages = stages<Config>(s);
    params.steps = (s.c + 15) / 16;
    const int box[] = {Config::kChunk, Config::kRows};
    if (int32_t code = encode_tiled<T, 2>(&params.x, o.a, {s.c, pixels}, {rows.a}, box)) {
      return code;
    }
    if (int32_t code = encode_tiled<T, 2>(&params.w, o.b, {s.c, s.k}, {s.c},
                                          {Config::kChunk, Config::kColumns})) {
      return code;
    }
    if (int32_t code = encode_tiled<T, 2>(&params.stores, o.d, {s.k, pixels}, {rows.d}, box)) {
      return code;
    }
    if (o.residual) {
      if (int32_t code = encode_tiled<T, 2>(&params.residuals, o.residual, {s.k, pixels},
                                            {rows.residual}, box)) {
        return code;
      }
    }
    const int tiles = int((pixels + Config::kRows - 1) / Config::kRows);
    const int columns = (s.k + Config::kColumns - 1) / Config::kColumns;
    const int together = std::max(1, s.sm_count * Config::kBlocksOfSm / columns);
    state->kernel = &pointwise_conv<Config>;
    state->grid = dim3(1, unsigned(columns), unsigned(std::min({tiles, together, 65535})));
    state->threads = Config::kThreads;
    state->shared_bytes = int(Config::shared_bytes(params.shape.chunks, params.stages));
    return allow_shared(reinterpret_cast<const void*>(state->kernel), 226 << 10);
  }
};

}  // namespace convoy::sm90
