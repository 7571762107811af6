// small_conv behind the C ABI: fprop of one element type. The tile of a launch is a place in
// kSmallConvTiles.
#pragma once

#include "small_conv_launch.cuh"

namespace convoy::sm90 {

// Rows in units of 64, columns, parts of the reduction within a block.
struct SmallConvTile {
  int row_groups, columns, parts;
};
constexpr SmallConvTile kSmallConvTiles[] = {{1, 32, 1}, {1, 64, 1}, {1, 128, 1}, {2, 32, 1},
                                             {2, 64, 1}, {1, 32, 2}, {1, 64, 2}};
constexpr int kSmallConvTileCount = 7;

// The im2col map of x, whose pixels lie `pitch` elements apart, with the strides of the convolution:
// pixels of output rows, a chunk of channels.
template <class T>
int32_t encode_windows(CUtensorMap* map, const void* x, cuuint64_t pitch, const ConvoyShape& s,
                       int pixels) {
  static const auto encode =
      driver_function<decltype(&cuTensorMapEncodeIm2col)>("cuTensorMapEncodeIm2col");
  if (!encode) return kDriver + int32_t(CUDA_ERROR_NOT_FOUND);
  const cuuint64_t c = s.c, w = s.w, h = s.h;
  cuuint64_t sizes[4] = {c, w, h, cuuint64_t(s.n)};
  const cuuint64_t pixel = pitch * sizeof(T);
  cuuint64_t bytes[3] = {pixel, w * pixel, h * w * pixel};
  int lower[2] = {-s.pad_left, -s.pad_top};
  int upper[2] = {s.pad_right - s.dilation_w * (s.s - 1), s.pad_bottom - s.dilation_h * (s.r - 1)};
  cuuint32_t strides[4] = {1, cuuint32_t(s.stride_w), cuuint32_t(s.stride_h), 1};
  return from_driver(encode(map, map_type<T>(), 4, const_cast<void*>(x), sizes, bytes, lower, upper,
                            128 / sizeof(T), cuuint32_t(pixels), strides,
                            CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                            CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE));
}

template <class T, class Activation = ChosenActivation>
struct SmallConv : SmallConvLaunch<T, SmallConvParams> {
  using Launch = SmallConvLaunch<T, SmallConvParams>;
  using State = typename Launch::State;

  // Exact sums take twice the registers, and all warps of a block work on one step.
  static constexpr bool fits(SmallConvTile tile) {
    return !std::is_same<T, float>::value || (tile.columns <= 64 && tile.parts == 1);
  }

  static int32_t check(const ConvoyShape& s) {
    if (int32_t code = Launch::check(s)) return code;
    if (s.stride_h > 8 || s.stride_w > 8) return kUnsupported;
    if (Launch::tile(s) >= kSmallConvTileCount) return kUnsupported;
    const SmallConvTile tile = kSmallConvTiles[Launch::tile(s)];
    if (!fits(tile)) return kUnsupported;
    if (Launch::slices(s) * tile.parts > Launch::steps(s)) return kBadSplit;
    const int reach_h = s.dilation_h * (s.r - 1), reach_w = s.dilation_w * (s.s - 1);
    for (int corner : {s.pad_top, s.pad_left, s.pad_bottom - reach_h, s.pad_right - reach_w}) {
      if (corner < -127 || corner > 127) return kUnsupported;  // a limit of tensor maps
    }
    if (reach_h > 255 || reach_w > 255) return kUnsupported;
    return kOk;
  }

  static int32_t prepare(const ConvoyShape& s, const ConvoyOperands& o, State* state) {
    return prepare_strided(s, o, {s.c, s.k, s.k}, state);
  }

  static int32_t prepare_strided(const ConvoyShape& s, const ConvoyOperands& o,
                                 const ConvoyRowStrides& rows, State* state) {
    if (int32_t code = Launch::prepare_operands(s, o, rows, state)) return code;
    switch (Launch::tile(s)) {
      case 0: return prepare_tile<0>(s, o, rows, state);
      case 1: return prepare_tile<1>(s, o, rows, state);
      case 2: return prepare_tile<2>(s, o, rows, state);
      case 3: return prepare_tile<3>(s, o, rows, state);
      case 4: return prepare_tile<4>(s, o, rows, state);
      case 5: return prepare_tile<5>(s, o, rows, state);
      default: return prepare_tile<6>(s, o, rows, state);
    }
  }

 private:
  template <int kTile>
  static int32_t prepare_tile(const ConvoyShape& s, const ConvoyOperands& o,
                              const ConvoyRowStrides& rows, State* state) {
    if constexpr (fits(kSmallConvTiles[kTile])) {
      return prepare_fitting<kTile>(s, o, rows, state);
    }
    return kUnsupported;
  }

  template <int kTile>
  static int32_t prepare_fitting(const ConvoyShape& s, const ConvoyOperands& o,
                                 const ConvoyRowStrides& rows, State* state) {
    constexpr SmallConvTile kShape = kSmallConvTiles[kTile];
    using Config = SmallConvConfig<T, kShape.row_groups, kShape.columns, kShape.parts, Activation>;
    SmallConvParams& params = state->params;
    if (int32_t code = encode_windows<T>(&params.x, o.a, cuuint64_t(rows.a), s, Config::kRows)) {
      return code;
    }
    if (int32_t code = Launch::encode_weights(s, o, Config::kColumns, &params)) return code;
    const int slices = Launch::slices(s);
    const int steps = int((Launch::steps(s) + slices - 1) / slices);
    params.stages = slices > 1 ? Config::kLeastStagesToExchange : 1;
    while (params.stages < steps &&
           Config::shared_bytes(params.stages + 1) <= kMostSmallConvShared) {
      ++params.stages;
    }
    // Each part has stages of its own.
    if (params.stages < steps) params.stages -= params.stages % Config::kParts;
    const int tiles = (params.shape.pixels + Config::kRows - 1) / Config::kRows;
    return Launch::template prepare_launch<Config>(s, tiles, Config::shared_bytes(params.stages),
                                                   kMostSmallConvShared, state);
  }
};

}  // namespace convoy::sm90
