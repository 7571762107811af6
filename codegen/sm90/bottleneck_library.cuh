// bottleneck behind the C ABI of convoy/bottleneck_abi.h: all sizes of one element type. The swizzle
// of a launch is the activations of the three convolutions, each a number of rounded_bounds.cuh, and
// a place in kBottleneckBlocks: the first one's + 3 * (the second one's + 3 * (the third one's + 3 *
// the place)).
#pragma once

#include <algorithm>

#include "../depthwise/early_launch.cuh"
#include "bottleneck.cuh"
#include "convoy/bottleneck_abi.h"
#include "library.cuh"
#include "problem_exports.cuh"
#include "tensor_map.cuh"

namespace convoy::sm90 {

// Warpgroups of a block that compute, and whether weights come again for each of their tiles.
struct BottleneckBlock {
  int groups;
  bool streamed;
};
constexpr BottleneckBlock kBottleneckBlocks[] = {{1, false}, {2, false}, {3, false}, {1, true}};
constexpr int kBottleneckBlockCount = 4, kLeastBottleneckStages = 6;
constexpr int kMostBottleneckShared = 226 << 10, kMostBottleneckChannels = 128;

template <class T>
struct Bottleneck {
  struct State {
    BottleneckParams params;
    const void* kernel;
    dim3 grid;
    int threads, shared_bytes;
    bool waits;  // for its predecessors, launched programmatically
  };

  static int32_t check(const ConvoyBottleneck& problem) {
    const ConvoyShape& s = problem.conv;
    if (int32_t code = check_sizes(s)) return code;
    if (s.op != CONVOY_FPROP) return kWrongOp;
    if (s.groups != 1 || s.stride_h != 1 || s.stride_w != 1) return kUnsupported;
    if (s.c % 8 || s.k % 8 || problem.expand < 1 || problem.expand % 8) return kMisaligned;
    if (problem.reduce < 0 || problem.reduce % 8) return kMisaligned;
    if (s.split_k != 1) return kBadSplit;
    if (s.swizzle < 0 || place(s) >= kBottleneckBlockCount) return kUnsupported;
    const int64_t pixels = int64_t(s.n) * s.p * s.q;
    if (pixels >= int64_t(1) << 30) return kTooLarge;
    if (std::max<int>(s.k, problem.reduce) > kMostBottleneckChannels) return kTooLarge;
    if (std::max(problem.expand, s.c) > 1 << 20) return kTooLarge;
    if (pitch(s) > 256 || rows(s) > 256) return kTooLarge;
    return with_config(problem, [&](auto config) {
      using Config = decltype(config);
      if (!has_registers<Config>()) return kUnsupported;
      return layout<Config>(problem).shared_bytes ? kOk : kTooLarge;
    });
  }

  static int32_t prepare(const ConvoyBottleneck& problem, const ConvoyBottleneckOperands& o,
                         State* state) {
    const ConvoyShape& s = problem.conv;
    if (!o.x || !o.filter || !o.expand || !o.y) return kMissingOperand;
    if (problem.reduce && (!o.reduce || !o.z)) return kMissingOperand;
    for (const void* pointer : {o.x, o.filter, o.expand, o.reduce, o.residual,
                                static_cast<const void*>(o.y), static_cast<const void*>(o.z)}) {
      if (!is_aligned(pointer)) return kMisaligned;
    }
    BottleneckParams& params = state->params;
    fill(problem, o, &params);
    if (int32_t code = encode(problem, o, &params)) return code;
    state->waits = true;
    state->grid = dim3(unsigned(std::min(params.tiles, s.sm_count)));
    return with_config(problem, [&](auto config) -> int32_t {
      using Config = decltype(config);
      if constexpr (has_registers<Config>()) {
        const Layout found = layout<Config>(problem);
        params.slots = found.slots;
        params.stages = found.stages;
        params.weight_bytes = found.weight_bytes;
        state->threads = Config::kThreads;
        state->shared_bytes = found.shared_bytes;
        state->kernel = reinterpret_cast<const void*>(&bottleneck<Config>);
        return allow_shared(state->kernel, kMostBottleneckShared);
      }
      return kUnsupported;
    });
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
  static int chunks(const ConvoyShape& s) { return bottleneck_up(s.c, 64); }
  static int rows(const ConvoyShape& s) { return kBottleneckTile + (s.r - 1) * s.dilation_h; }
  static int pitch(const ConvoyShape& s) { return kBottleneckTile + (s.s - 1) * s.dilation_w; }
  static int input_bytes(const ConvoyShape& s) { return rows(s) * pitch(s) * 128; }
  static int input_stride(const ConvoyShape& s) {
    return bottleneck_up(input_bytes(s), 1024) * 1024;
  }

  static int place(const ConvoyShape& s) {
    return s.swizzle / (kBoundsChoices * kBoundsChoices * kBoundsChoices);
  }

  // Whether its sums fit the registers of its threads.
  template <class Config>
  static constexpr bool has_registers() {
    if (Config::kGroups == 3) return Config::kMiddle == 64 && Config::kReduced <= 64;
    return Config::kGroups == 1 || Config::kMiddle + Config::kReduced <= 192;
  }

  // Calls `use` with the Config of a launch.
  template <int kPlace = 0, class Use>
  static auto with_config(const ConvoyBottleneck& problem, Use use) {
    if constexpr (kPlace + 1 < kBottleneckBlockCount) {
      if (place(problem.conv) != kPlace) return with_config<kPlace + 1>(problem, use);
    }
    return problem.conv.k <= 64 ? with_middle<64, kPlace>(problem, use)
                                : with_middle<128, kPlace>(problem, use);
  }

  template <int kMiddle, int kPlace, class Use>
  static auto with_middle(const ConvoyBottleneck& problem, Use use) {
    constexpr int kGroups = kBottleneckBlocks[kPlace].groups;
    constexpr bool kStreamed = kBottleneckBlocks[kPlace].streamed;
    if (!problem.reduce) return use(BottleneckConfig<T, kMiddle, 0, kGroups, kStreamed>());
    return problem.reduce <= 64 ? use(BottleneckConfig<T, kMiddle, 64, kGroups, kStreamed>())
                                : use(BottleneckConfig<T, kMiddle, 128, kGroups, kStreamed>());
  }

  // What the shared memory of a block holds; 0 where it has too little.
  struct Layout {
    int slots, stages, weight_bytes, shared_bytes;
  };

  template <class Config>
  static Layout layout(const ConvoyBottleneck& problem) {
    const ConvoyShape& s = problem.conv;
    const int blocks = bottleneck_up(problem.expand, 64);
    const int stride = input_stride(s);
    for (int slots = kMostBottleneckSlots; slots >= 2; --slots) {
      for (int stages = kMostBottleneckStages; stages >= kLeastBottleneckStages; --stages) {
        const int64_t weights = Config::weight_bytes(int64_t(s.r) * s.s, chunks(s), blocks, stages);
        const int64_t bytes = Config::shared_bytes(weights, chunks(s), blocks, stride, slots);
        if (bytes <= kMostBottleneckShared) return {slots, stages, int(weights), int(bytes)};
      }
    }
    return {};
  }

  static void fill(const ConvoyBottleneck& problem, const ConvoyBottleneckOperands& o,
                   BottleneckParams* params) {
    const ConvoyShape& s = problem.conv;
    const int choices = kBoundsChoices;
    params->conv = {o.bias, s.k, s.swizzle % choices, {s.clip_min, s.clip_max}};
    params->expanded = {o.expand_bias,
                        problem.expand,
                        s.swizzle / choices % choices,
                        {problem.expand_clip_min, problem.expand_clip_max}};
    params->reduced = {o.reduce_bias,
                       problem.reduce,
                       s.swizzle / (choices * choices) % choices,
                       {problem.reduce_clip_min, problem.reduce_clip_max}};
    params->residual = o.residual != nullptr;
    params->filter_w = s.s;
    params->taps = s.r * s.s;
    params->dilation_h = s.dilation_h;
    params->dilation_w = s.dilation_w;
    params->pad_top = s.pad_top;
    params->pad_left = s.pad_left;
    params->pitch = pitch(s);
    params->input_bytes = input_bytes(s);
    params->input_stride = input_stride(s);
    params->chunks = chunks(s);
    params->blocks = bottleneck_up(problem.expand, 64);
    params->reduced_blocks = bottleneck_up(problem.reduce, 64);
    params->across = bottleneck_up(s.q, kBottleneckTile);
    params->down = bottleneck_up(s.p, kBottleneckTile);
    params->tiles = s.n * params->across * params->down;
    params->by_across = Divider(params->across);
    params->by_down = Divider(params->down);
    params->constant_weights = 0;
  }

  static int32_t encode(const ConvoyBottleneck& problem, const ConvoyBottleneckOperands& o,
                        BottleneckParams* params) {
    const ConvoyShape& s = problem.conv;
    const int64_t c = s.c, w = s.w, h = s.h, taps = params->taps;
    const int middle = s.k <= 64 ? 64 : 128, reduced = problem.reduce <= 64 ? 64 : 128;
    if (int32_t code = encode_tiled<T, 4>(&params->x, o.x, {c, w, h, s.n}, {c, c * w, c * w * h},
                                          {64, params->pitch, rows(s), 1})) {
      return code;
    }
    if (int32_t code = encode_tiled<T, 3>(&params->filter, o.filter, {c, taps, s.k}, {c, c * taps},
                                          {64, 1, middle})) {
      return code;
    }
    if (int32_t code =
            encode_tiled<T, 2>(&params->expand, o.expand, {s.k, problem.expand}, {s.k}, {64, 64})) {
      return code;
    }
    if (int32_t code = encode_result(s, &params->y, o.y, problem.expand)) return code;
    if (o.residual) {
      const int32_t code = encode_result(s, &params->residuals, o.residual, problem.expand);
      if (code) return code;
    }
    if (!problem.reduce) return kOk;
    if (int32_t code =
            encode_tiled<T, 2>(&params->reduce, o.reduce, {problem.expand, problem.reduce},
                               {problem.expand}, {64, reduced})) {
      return code;
    }
    return encode_result(s, &params->z, o.z, problem.reduce);
  }

  // A result of all images, in blocks of a tile and 64 channels.
  static int32_t encode_result(const ConvoyShape& s, CUtensorMap* map, const void* base,
                               int64_t channels) {
    const int64_t p = s.p, q = s.q;
    return encode_tiled<T, 4>(map, base, {channels, q, p, s.n},
                              {channels, channels * q, channels * q * p},
                              {64, kBottleneckTile, kBottleneckTile, 1});
  }
};

}  // namespace convoy::sm90

#define CONVOY_EXPORT_BOTTLENECK(Kernel)                                                     \
  CONVOY_EXPORT_PROBLEM(Kernel, bottleneck, CONVOY_BOTTLENECK_ABI_VERSION, ConvoyBottleneck, \
                        ConvoyBottleneckOperands)
