// small_conv behind the C ABI: fprop of one element type.
//
// ConvoyShape.swizzle is kActivations * (kSmallConvSplits * tile + log2(blocks)) + activation: a place
// in kSmallConvTiles, the blocks of a cluster (1, 2, 4 or 8) and an Activation.
#pragma once

#include <algorithm>

#include "convoy/programmatic_abi.h"
#include "convoy/strided_abi.h"
#include "library.cuh"
#include "small_conv.cuh"
#include "tensor_map.cuh"

namespace convoy::sm90 {

// Rows in units of 64, columns, parts of the reduction within a block.
struct SmallConvTile {
  int row_groups, columns, parts;
};
constexpr SmallConvTile kSmallConvTiles[] = {{1, 32, 1}, {1, 64, 1}, {1, 128, 1}, {2, 32, 1},
                                             {2, 64, 1}, {1, 32, 2}, {1, 64, 2}};
constexpr int kSmallConvTileCount = 7, kSmallConvSplits = 4;
// Two generations of kernels fit an SM. Of a kernel with few blocks no more than two do: started
// early they would otherwise gather on the SMs that its predecessor leaves free.
constexpr int kMostSmallConvShared = 112 << 10, kLeastSmallConvShared = 77 << 10;

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
struct SmallConv {
  static constexpr int kChunk = 128 / sizeof(T), kWidth = 16 / sizeof(T);
  // Exact sums take twice the registers, and all warps of a block work on one step.
  static constexpr bool fits(SmallConvTile tile) {
    return !std::is_same<T, float>::value || (tile.columns <= 64 && tile.parts == 1);
  }

  struct State {
    SmallConvParams params;
    void (*kernel)(SmallConvParams);
    dim3 grid;
    int threads, shared_bytes;
  };

  static int32_t check(const ConvoyShape& s) {
    if (int32_t code = check_sizes(s)) return code;
    if (s.op != CONVOY_FPROP) return kWrongOp;
    if (s.groups != 1 || s.stride_h > 8 || s.stride_w > 8) return kUnsupported;
    if (s.c % 8 || s.k % 8) return kMisaligned;
    if (s.swizzle < 0 || tile(s) >= kSmallConvTileCount) return kUnsupported;
    if (!fits(kSmallConvTiles[tile(s)])) return kUnsupported;
    const int64_t steps = int64_t(s.r) * s.s * ((s.c + kChunk - 1) / kChunk);
    if (s.split_k != 1 || slices(s) * kSmallConvTiles[tile(s)].parts > steps) return kBadSplit;
    const int reach_h = s.dilation_h * (s.r - 1), reach_w = s.dilation_w * (s.s - 1);
    for (int corner : {s.pad_top, s.pad_left, s.pad_bottom - reach_h, s.pad_right - reach_w}) {
      if (corner < -127 || corner > 127) return kUnsupported;  // a limit of tensor maps
    }
    if (reach_h > 255 || reach_w > 255) return kUnsupported;
    const int64_t x = int64_t(s.n) * s.h * s.w * s.c, y = int64_t(s.n) * s.p * s.q;
    const bool fits = steps < 1 << 24 && x < int64_t(1) << 40 && y <= int64_t(65535) * 64;
    return fits && s.k <= 65535 * 32 ? kOk : kTooLarge;
  }

  static int64_t workspace(const ConvoyShape&) { return 0; }

  static int32_t prepare(const ConvoyShape& s, const ConvoyOperands& o, State* state) {
    return prepare_strided(s, o, {s.c, s.k, s.k}, state);
  }

  static int32_t prepare_strided(const ConvoyShape& s, const ConvoyOperands& o,
                                 const ConvoyRowStrides& rows, State* state) {
    if (int32_t code = check_pointers(o)) return code;
    if (!is_aligned(o.bias) || !is_aligned(o.residual)) return kMisaligned;
    const int64_t shortest[] = {s.c, s.k, s.k}, given[] = {rows.a, rows.d, rows.residual};
    for (int i = 0; i < (o.residual ? 3 : 2); ++i) {
      if (given[i] < shortest[i] || given[i] > 1 << 30) return kBadShape;
      if (given[i] % kWidth) return kMisaligned;
    }
    if (int64_t(s.n) * s.h * s.w * rows.a >= int64_t(1) << 40) return kTooLarge;
    state->params.y_pitch = int(rows.d / kWidth);
    state->params.residual_pitch = o.residual ? int(rows.residual / kWidth) : 0;
    switch (tile(s)) {
      case 0: return prepare_tile<0>(s, o, rows, state);
      case 1: return prepare_tile<1>(s, o, rows, state);
      case 2: return prepare_tile<2>(s, o, rows, state);
      case 3: return prepare_tile<3>(s, o, rows, state);
      case 4: return prepare_tile<4>(s, o, rows, state);
      case 5: return prepare_tile<5>(s, o, rows, state);
      default: return prepare_tile<6>(s, o, rows, state);
    }
  }

  static int32_t launch(const State& state, cudaStream_t stream) {
    return enqueue(state, stream, false, false);
  }

  static int32_t launch_programmatic(const State& state, cudaStream_t stream,
                                     bool constant_weights) {
    return enqueue(state, stream, true, constant_weights);
  }

  static int32_t footprint(const State& state, ConvoyFootprint* out) {
    return fill_footprint(reinterpret_cast<const void*>(state.kernel),
                          int(state.grid.x * state.grid.y * state.grid.z), state.threads,
                          state.shared_bytes, out);
  }

 private:
  static int tile(const ConvoyShape& s) {
    return s.swizzle / depthwise::kActivations / kSmallConvSplits;
  }
  static int slices(const ConvoyShape& s) {
    return 1 << s.swizzle / depthwise::kActivations % kSmallConvSplits;
  }

  static SmallConvShape shape_of(const ConvoyShape& s) {
    const int pixels = s.n * s.p * s.q, chunks = (s.c + kChunk - 1) / kChunk;
    return {pixels,     s.p,          s.q,          s.k, s.stride_h, s.stride_w, s.pad_top,
            s.pad_left, s.dilation_h, s.dilation_w, s.s, s.r * s.s,  chunks};
  }

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
    const int64_t c = s.c, taps = int64_t(s.r) * s.s;
    if (int32_t code = encode_tiled<T, 3>(&params.w, o.b, {c, taps, s.k}, {c, taps * c},
                                          {kChunk, 1, Config::kColumns})) {
      return code;
    }
    params.bias = o.bias;
    params.residual = o.residual;
    params.y = o.d;
    params.shape = shape_of(s);
    const int steps = (params.shape.taps * params.shape.chunks + slices(s) - 1) / slices(s);
    params.stages = slices(s) > 1 ? Config::kLeastStagesToExchange : 1;
    while (params.stages < steps &&
           Config::shared_bytes(params.stages + 1) <= kMostSmallConvShared) {
      ++params.stages;
    }
    // Each part has stages of its own.
    if (params.stages < steps) params.stages -= params.stages % Config::kParts;
    params.activation = s.swizzle % depthwise::kActivations;
    params.clip_min = s.clip_min;
    params.clip_max = s.clip_max;
    params.constant_weights = 0;
    state->kernel = &small_conv<Config>;
    state->grid =
        dim3(unsigned(slices(s)), unsigned((s.k + Config::kColumns - 1) / Config::kColumns),
             unsigned((params.shape.pixels + Config::kRows - 1) / Config::kRows));
    state->threads = Config::kThreads;
    state->shared_bytes = Config::shared_bytes(params.stages);
    if (int64_t(state->grid.x) * state->grid.y * state->grid.z * 2 <= int64_t(s.sm_count) * 3) {
      state->shared_bytes = std::max(state->shared_bytes, kLeastSmallConvShared);
    }
    return allow_shared(reinterpret_cast<const void*>(state->kernel), kMostSmallConvShared);
  }

  static int32_t enqueue(const State& state, cudaStream_t stream, bool programmatic,
                         bool constant_weights) {
    SmallConvParams params = state.params;
    params.constant_weights = constant_weights;
    cudaLaunchAttribute attributes[2];
    attributes[0].id = cudaLaunchAttributeClusterDimension;
    attributes[0].val.clusterDim = {state.grid.x, 1, 1};
    attributes[1].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[1].val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = state.grid;
    config.blockDim = dim3(unsigned(state.threads));
    config.dynamicSmemBytes = size_t(state.shared_bytes);
    config.stream = stream;
    config.attrs = attributes;
    config.numAttrs = programmatic ? 2 : 1;
    return from_cuda(cudaLaunchKernelEx(&config, state.kernel, params));
  }
};

}  // namespace convoy::sm90

#define CONVOY_EXPORT_SMALL_CONV(Kernel)                                                         \
  CONVOY_EXPORT_KERNEL_WITH(Kernel, convoy::describe)                                            \
  CONVOY_API int32_t convoy_kernel_launch_programmatic(const void* buffer, void* stream,         \
                                                       int32_t constant_weights) {               \
    return Kernel::launch_programmatic(*convoy::state_at<Kernel::State>(buffer),                 \
                                       static_cast<cudaStream_t>(stream), constant_weights);     \
  }                                                                                              \
  CONVOY_API int32_t convoy_kernel_prepare_strided(                                              \
      const ConvoyShape* shape, const ConvoyOperands* operands, const ConvoyRowStrides* strides, \
      void* buffer) {                                                                            \
    if (int32_t code = Kernel::check(*shape)) return code;                                       \
    auto* state = new (convoy::state_at<Kernel::State>(buffer)) Kernel::State();                 \
    return Kernel::prepare_strided(*shape, *operands, *strides, state);                          \
  }
