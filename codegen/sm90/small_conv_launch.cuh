// What small_conv and halo_conv share on the host: checks, operands, launches.
//
// ConvoyShape.swizzle is kActivations * (kSmallConvSplits * tile + log2(blocks)) + activation: the tile
// of a launch, the blocks of a cluster (1, 2, 4 or 8) and an Activation.
#pragma once

#include <algorithm>

#include "convoy/programmatic_abi.h"
#include "convoy/strided_abi.h"
#include "library.cuh"
#include "small_conv.cuh"
#include "tensor_map.cuh"

namespace convoy::sm90 {

constexpr int kSmallConvSplits = 4;
// Two generations of kernels fit an SM. Of a kernel with few blocks no more than two do: started
// early they would otherwise gather on the SMs that its predecessor leaves free.
constexpr int kMostSmallConvShared = 112 << 10, kLeastSmallConvShared = 77 << 10;

template <class T, class Params>
struct SmallConvLaunch {
  static constexpr int kChunk = 128 / sizeof(T), kWidth = 16 / sizeof(T);

  struct State {
    Params params;
    void (*kernel)(Params);
    dim3 grid;
    int threads, shared_bytes;
  };

  static int tile(const ConvoyShape& s) {
    return s.swizzle / depthwise::kActivations / kSmallConvSplits;
  }
  static int slices(const ConvoyShape& s) {
    return 1 << s.swizzle / depthwise::kActivations % kSmallConvSplits;
  }
  static int64_t steps(const ConvoyShape& s) {
    return int64_t(s.r) * s.s * ((s.c + kChunk - 1) / kChunk);
  }

  static SmallConvShape shape_of(const ConvoyShape& s) {
    const int pixels = s.n * s.p * s.q, chunks = (s.c + kChunk - 1) / kChunk;
    return {pixels,     s.p,          s.q,          s.k, s.stride_h, s.stride_w, s.pad_top,
            s.pad_left, s.dilation_h, s.dilation_w, s.s, s.r * s.s,  chunks};
  }

  static int64_t workspace(const ConvoyShape&) { return 0; }

  static int32_t check(const ConvoyShape& s) {
    if (int32_t code = check_sizes(s)) return code;
    if (s.op != CONVOY_FPROP) return kWrongOp;
    if (s.groups != 1 || s.swizzle < 0) return kUnsupported;
    if (s.c % 8 || s.k % 8) return kMisaligned;
    if (s.split_k != 1) return kBadSplit;
    const int64_t x = int64_t(s.n) * s.h * s.w * s.c, y = int64_t(s.n) * s.p * s.q;
    const bool fits = steps(s) < 1 << 24 && x < int64_t(1) << 40 && y <= int64_t(65535) * 64;
    return fits && s.k <= 65535 * 32 ? kOk : kTooLarge;
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

 protected:
  static int32_t prepare_operands(const ConvoyShape& s, const ConvoyOperands& o,
                                  const ConvoyRowStrides& rows, State* state) {
    if (int32_t code = check_pointers(o)) return code;
    if (!is_aligned(o.bias) || !is_aligned(o.residual)) return kMisaligned;
    const int64_t shortest[] = {s.c, s.k, s.k}, given[] = {rows.a, rows.d, rows.residual};
    for (int i = 0; i < (o.residual ? 3 : 2); ++i) {
      if (given[i] < shortest[i] || given[i] > 1 << 30) return kBadShape;
      if (given[i] % kWidth) return kMisaligned;
    }
    if (int64_t(s.n) * s.h * s.w * rows.a >= int64_t(1) << 40) return kTooLarge;
    Params& params = state->params;
    params.y_pitch = int(rows.d / kWidth);
    params.residual_pitch = o.residual ? int(rows.residual / kWidth) : 0;
    params.bias = o.bias;
    params.residual = o.residual;
    params.y = o.d;
    params.shape = shape_of(s);
    params.activation = s.swizzle % depthwise::kActivations;
    params.clip_min = s.clip_min;
    params.clip_max = s.clip_max;
    params.constant_weights = 0;
    return kOk;
  }

  static int32_t encode_weights(const ConvoyShape& s, const ConvoyOperands& o, int columns,
                                Params* params) {
    const int64_t c = s.c, taps = int64_t(s.r) * s.s;
    return encode_tiled<T, 3>(&params->w, o.b, {c, taps, s.k}, {c, taps * c}, {kChunk, 1, columns});
  }

  // The launch of a Config with so many tiles of pixels.
  template <class Config>
  static int32_t prepare_launch(const ConvoyShape& s, int tiles, int shared_bytes, int most_shared,
                                State* state) {
    state->kernel = &small_conv<Config>;
    state->grid = dim3(unsigned(slices(s)),
                       unsigned((s.k + Config::kColumns - 1) / Config::kColumns), unsigned(tiles));
    state->threads = Config::kThreads;
    state->shared_bytes = shared_bytes;
    if (int64_t(state->grid.x) * state->grid.y * state->grid.z * 2 <= int64_t(s.sm_count) * 3) {
      state->shared_bytes = std::max(shared_bytes, kLeastSmallConvShared);
    }
    return allow_shared(reinterpret_cast<const void*>(state->kernel), most_shared);
  }

 private:
  static int32_t enqueue(const State& state, cudaStream_t stream, bool programmatic,
                         bool constant_weights) {
    Params params = state.params;
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
