// image_conv behind the C ABI, for all sizes of an element type. ConvoyShape.swizzle is
// kImageActivations * tile + activation: tiles of 256 (0) or 128 (1) sums, and a place in
// kImageActivationList.
#pragma once

#include <algorithm>

#include "../depthwise/early_launch.cuh"
#include "convoy/stem_abi.h"
#include "image_conv.cuh"
#include "library.cuh"
#include "problem_exports.cuh"

namespace convoy::sm90 {

constexpr int kMostImageShared = 226 << 10;

template <class T>
struct ImageConv {
  struct State {
    ImageConvParams params;
    const void* kernel;
    dim3 grid;
    int threads, shared_bytes;
    bool waits;  // for its predecessors, launched programmatically
  };

  static int32_t check(const ConvoyStem& stem) {
    const ConvoyShape& s = stem.conv;
    if (int32_t code = check_sizes(s)) return code;
    if (s.op != CONVOY_FPROP) return kWrongOp;
    if (s.groups != 1 || s.swizzle < 0 || s.swizzle >= 2 * kImageActivations) return kUnsupported;
    if (s.c != 4 || stem.channels < 1 || stem.channels > 4) return kWrongChannels;
    if (s.k % 8) return kMisaligned;
    if (s.split_k != 1) return kBadSplit;
    if (!fits_pool(stem.p, s.p, stem.pool_h, stem.pool_stride_h, stem.pool_top) ||
        !fits_pool(stem.q, s.q, stem.pool_w, stem.pool_stride_w, stem.pool_left) ||
        (stem.pool_h == 0) != (stem.pool_w == 0)) {
      return kBadShape;
    }
    const int64_t pixels = int64_t(s.h) * s.w * 4, images = int64_t(s.n) * s.p * s.q;
    if (pixels >= 1 << 30 || images >= 1 << 30 || int64_t(s.r) * s.s > 1024 || s.k > 1 << 16)
      return kTooLarge;
    return layout(stem).h.tile ? kOk : kTooLarge;
  }

  static int32_t prepare(const ConvoyStem& stem, const ConvoyOperands& o, State* state) {
    const ConvoyShape& s = stem.conv;
    if (int32_t code = check_pointers(o)) return code;
    if (!is_aligned(o.bias)) return kMisaligned;  // null is
    ImageConvParams& params = state->params = layout(stem);
    params.x = o.a;
    params.filter = o.b;
    params.bias = o.bias;
    params.y = o.d;
    params.by_groups = Divider(params.groups);
    params.by_pixels = Divider(params.w.pixels);
    params.by_tile = Divider(params.w.tile);
    params.by_tiles = Divider(params.w.tiles);
    params.by_image = Divider(params.h.tiles * params.w.tiles);
    params.tiles = s.n * params.h.tiles * params.w.tiles;
    params.image = int64_t(s.h) * s.w * stem.channels;
    params.channel = stem.channels_last ? 1 : s.h * s.w;
    params.pixel = stem.channels_last ? stem.channels : 1;
    params.row = s.w * params.pixel;
    params.channels = stem.channels;
    params.activation = s.swizzle % kImageActivations;
    params.clip_min = s.clip_min;
    params.clip_max = s.clip_max;
    if (stem.is_float32) return prepare_source<float>(s, state);
    return prepare_source<T>(s, state);
  }

  static int32_t launch(State state, cudaStream_t stream) {
    state.waits = false;
    return depthwise::launch_early(state, state.threads, false, stream);
  }

  static int32_t launch_programmatic(const State& state, cudaStream_t stream,
                                     bool constant_weights) {
    return depthwise::launch_early(state, state.threads, constant_weights, stream);
  }

  static int32_t footprint(const State& state, ConvoyFootprint* out) {
    return fill_footprint(state.kernel, int(state.grid.x), state.threads, state.shared_bytes, out);
  }

 private:
  static bool fits_pool(int results, int sums, int window, int stride, int before) {
    if (window == 0) return results == sums;
    if (window < 1 || window > 16 || stride < 1 || stride > 16) return false;
    // Every window has a sum of the tensor.
    return before >= 0 && before < window && results >= 1 &&
           int64_t(results - 1) * stride - before < sums;
  }

  static int rows(const ConvoyShape& s) { return s.swizzle / kImageActivations ? 128 : 256; }
  static int columns(const ConvoyShape& s) { return s.k <= 32 ? 32 : 64; }

  static ImageConvParams layout(const ConvoyStem& stem) {
    const ConvoyShape& s = stem.conv;
    ImageConvParams params = {};
    const bool pools = stem.pool_h > 0;
    params.h = {stem.p,
                s.p,
                s.h,
                pools ? stem.pool_h : 1,
                pools ? stem.pool_stride_h : 1,
                pools ? stem.pool_top : 0,
                s.stride_h,
                s.dilation_h,
                s.pad_top,
                s.r};
    params.w = {stem.q,
                s.q,
                s.w,
                pools ? stem.pool_w : 1,
                pools ? stem.pool_stride_w : 1,
                pools ? stem.pool_left : 0,
                s.stride_w,
                s.dilation_w,
                s.pad_left,
                s.s};
    params.k = s.k;
    params.taps = s.r * s.s;
    params.groups = (params.taps + kImageGroupTaps - 1) / kImageGroupTaps;
    with_config<T>(s, [&](auto config) {
      using Config = decltype(config);
      const int rest = kMostImageShared - Config::shared_bytes(s.k, params.groups);
      choose_image_conv_tile(&params.h, &params.w, Config::kRows, params.groups,
                             kImageLoaders * Config::kPixelsAtOnce, rest / Config::kPatches);
      return 0;
    });
    return params;
  }

  // Calls `use` with the Config of a launch.
  template <class Source, class Use>
  static auto with_config(const ConvoyShape& s, Use use) {
    if (rows(s) == 256) {
      if (columns(s) == 32) return use(ImageConvConfig<T, Source, 2, 32>());
      return use(ImageConvConfig<T, Source, 2, 64>());
    }
    if (columns(s) == 32) return use(ImageConvConfig<T, Source, 1, 32>());
    return use(ImageConvConfig<T, Source, 1, 64>());
  }

  template <class Source>
  static int32_t prepare_source(const ConvoyShape& s, State* state) {
    const ImageConvParams& params = state->params;
    state->waits = true;
    with_config<Source>(s, [&](auto config) {
      using Config = decltype(config);
      state->kernel = reinterpret_cast<const void*>(&image_conv<Config>);
      state->threads = Config::kThreads;
      state->shared_bytes = Config::shared_bytes(s.k, params.groups) +
                            Config::kPatches * kImagePixelBytes * params.h.pixels * params.w.pixels;
      return 0;
    });
    if (int32_t code = allow_shared(state->kernel, kMostImageShared)) return code;
    int resident = 1;
    if (int32_t code = from_cuda(cudaOccupancyMaxActiveBlocksPerMultiprocessor(
            &resident, state->kernel, state->threads, size_t(state->shared_bytes)))) {
      return code;
    }
    // All blocks at once, with as many tiles each or one less.
    const int most = std::max(1, resident) * s.sm_count;
    const int turns = (params.tiles + most - 1) / most;
    state->grid = dim3(unsigned((params.tiles + turns - 1) / turns));
    return kOk;
  }
};

}  // namespace convoy::sm90

#define CONVOY_EXPORT_STEM(Kernel) \
  CONVOY_EXPORT_PROBLEM(Kernel, stem, CONVOY_STEM_ABI_VERSION, ConvoyStem, ConvoyOperands)
