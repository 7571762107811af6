// squeeze_excite behind the C ABI of convoy/squeeze_excite_abi.h: all sizes of one element type. The
// swizzle of a launch is the activations of the first product, of the gates and of y, numbers of the
// lists of squeeze_excite.cuh and rounded_bounds.cuh, and a place in kSqueezeClusters:
// squeeze + 6 * (gate + 2 * (y + 3 * place)).
#pragma once

#include <algorithm>

#include "convoy/squeeze_excite_abi.h"
#include "library.cuh"
#include "problem_exports.cuh"
#include "squeeze_excite.cuh"

namespace convoy::sm90 {

constexpr int kSqueezeClusters[] = {1, 2, 4, 8, 16};  // blocks of an image
constexpr int kSqueezeClusterCount = 5;
constexpr int kMostSqueezeShared = 226 << 10, kMostSqueezeWeights = 96 << 10;
constexpr int kMostRepeatedWeights = 48 << 10;  // of a product that each block computes
constexpr int kLeastSqueezeChannels = 32;       // of a block, where channels are shared

template <class T>
struct SqueezeExcite {
  struct State {
    SqueezeExciteParams params;
    int images, shared_bytes;
  };

  static int32_t check(const ConvoySqueezeExcite& problem) {
    const ConvoyShape& s = problem.image;
    if (int32_t code = check_sizes(s)) return code;
    if (s.op != CONVOY_FPROP) return kWrongOp;
    if (s.groups != 1 || s.r * s.s != 1 || s.k != s.c) return kUnsupported;
    if (s.p != s.h || s.q != s.w || s.swizzle < 0) return kUnsupported;
    if (place(s) >= kSqueezeClusterCount) return kUnsupported;
    if (s.c % 8) return kMisaligned;
    if (problem.squeezed < 1) return kBadShape;
    if (s.split_k != 1) return kBadSplit;
    if (int64_t(s.h) * s.w >= 1 << 24 || s.c > 1 << 16 || problem.squeezed > 1 << 14) {
      return kTooLarge;
    }
    if (int64_t(s.n) * kSqueezeClusters[place(s)] >= int64_t(1) << 30) return kTooLarge;
    const SqueezeExciteParams params = sizes(problem);
    if (params.part_vectors > kSqueezeThreads) return kTooLarge;
    return SqueezeExciteLayout(params).bytes <= kMostSqueezeShared ? kOk : kTooLarge;
  }

  static int32_t prepare(const ConvoySqueezeExcite& problem, const ConvoySqueezeExciteOperands& o,
                         State* state) {
    const ConvoyShape& s = problem.image;
    if (!o.x || !o.squeeze || !o.excite || !o.y) return kMissingOperand;
    for (const void* pointer :
         {o.x, o.squeeze, o.excite, o.residual, static_cast<const void*>(o.y)}) {
      if (!is_aligned(pointer)) return kMisaligned;
    }
    SqueezeExciteParams& params = state->params = sizes(problem);
    params.x = o.x;
    params.residual = o.residual;
    params.y = o.y;
    params.squeeze = {o.squeeze,
                      o.squeeze_bias,
                      s.swizzle % kSqueezeActivations,
                      {problem.squeeze_clip_min, problem.squeeze_clip_max}};
    params.excite = {o.excite,
                     o.excite_bias,
                     s.swizzle / kSqueezeActivations % kGateActivations,
                     {problem.gate_clip_min, problem.gate_clip_max}};
    params.activation = s.swizzle / (kSqueezeActivations * kGateActivations) % kBoundsChoices;
    params.bounds = {s.clip_min, s.clip_max};
    params.constant_weights = 0;
    state->images = s.n;
    state->shared_bytes = SqueezeExciteLayout(params).bytes;
    const void* kernel = reinterpret_cast<const void*>(&squeeze_excite<T>);
    if (int32_t code = from_cuda(
            cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1))) {
      return code;
    }
    return allow_shared(kernel, kMostSqueezeShared);
  }

  static int32_t launch(const State& state, cudaStream_t stream) {
    return enqueue(state, stream, false, false);
  }

  static int32_t launch_programmatic(const State& state, cudaStream_t stream,
                                     bool constant_weights) {
    return enqueue(state, stream, true, constant_weights);
  }

  static int32_t footprint(const State& state, ConvoyFootprint* out) {
    return fill_footprint(reinterpret_cast<const void*>(&squeeze_excite<T>),
                          state.images * state.params.cluster, kSqueezeThreads, state.shared_bytes,
                          out);
  }

 private:
  static int place(const ConvoyShape& s) {
    return s.swizzle / (kSqueezeActivations * kGateActivations * kBoundsChoices);
  }

  // Logarithm of the threads that share each of some sums of so many terms: a warp's at most.
  static int shares(int64_t sums, int terms) {
    int shift = 0;
    while (shift < 5 && sums << (shift + 1) <= kSqueezeThreads && 1 << shift < terms) ++shift;
    return shift;
  }

  // How a cluster shares an image: channels as long as each block has some in a row, then pixels.
  static SqueezeExciteParams sizes(const ConvoySqueezeExcite& problem) {
    const ConvoyShape& s = problem.image;
    SqueezeExciteParams params = {};
    params.pixels = s.h * s.w;
    params.channels = s.c;
    params.vectors = s.c / 8;
    params.squeezed = problem.squeezed;
    params.cluster = kSqueezeClusters[place(s)];
    params.channel_parts = params.cluster;
    while (params.channel_parts > 1 && s.c < kLeastSqueezeChannels * params.channel_parts) {
      params.channel_parts /= 2;
    }
    params.part_vectors = squeeze_up(params.vectors, params.channel_parts);
    params.part_pixels = squeeze_up(params.pixels, params.cluster / params.channel_parts);
    const bool repeats = int64_t(2) * s.c * problem.squeezed <= kMostRepeatedWeights;
    params.part_squeezed =
        repeats ? problem.squeezed : squeeze_up(problem.squeezed, params.cluster);
    const int64_t own = params.part_vectors * 8;
    while (1 << params.cluster_shift < params.cluster) ++params.cluster_shift;
    while (1 << params.vector_shift < params.part_vectors) ++params.vector_shift;
    params.squeeze_shift = shares(params.part_squeezed, params.vectors);
    params.excite_shift = shares(own, problem.squeezed);
    const int64_t weights = 2 * (int64_t(params.part_squeezed) * s.c + own * problem.squeezed);
    params.keeps_weights = weights <= kMostSqueezeWeights;
    const int64_t pixels = int64_t(16) * params.part_pixels * params.part_vectors;
    params.keeps_pixels = SqueezeExciteLayout(params).bytes + pixels <= kMostSqueezeShared;
    return params;
  }

  static int32_t enqueue(const State& state, cudaStream_t stream, bool programmatic,
                         bool constant_weights) {
    SqueezeExciteParams params = state.params;
    params.constant_weights = constant_weights;
    cudaLaunchAttribute attributes[2];
    attributes[0].id = cudaLaunchAttributeClusterDimension;
    attributes[0].val.clusterDim = {unsigned(params.cluster), 1, 1};
    attributes[1].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[1].val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(unsigned(state.images * params.cluster));
    config.blockDim = dim3(kSqueezeThreads);
    config.dynamicSmemBytes = size_t(state.shared_bytes);
    config.stream = stream;
    config.attrs = attributes;
    config.numAttrs = programmatic ? 2 : 1;
    return from_cuda(cudaLaunchKernelEx(&config, &squeeze_excite<T>, params));
  }
};

}  // namespace convoy::sm90

#define CONVOY_EXPORT_SQUEEZE_EXCITE(Kernel)                                       \
  CONVOY_EXPORT_PROBLEM(Kernel, squeeze_excite, CONVOY_SQUEEZE_EXCITE_ABI_VERSION, \
                        ConvoySqueezeExcite, ConvoySqueezeExciteOperands)
