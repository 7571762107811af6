// expand_depthwise behind the C ABI, for all sizes of an element type. ConvoyShape.swizzle is
// (kExpandActivations * tile + depthwise activation) * kExpandActivations + the 1x1's activation:
// a place in kExpandTiles and two in kExpandActivationList.
#pragma once

#include <algorithm>

#include "../depthwise/early_launch.cuh"
#include "convoy/expansion_abi.h"
#include "expand_depthwise.cuh"
#include "library.cuh"
#include "problem_exports.cuh"
#include "tensor_map.cuh"

namespace convoy::sm90 {

// Pixels of a chunk at most, and channels of a block.
struct ExpandTileLimit {
  int pixels, columns;
};
constexpr ExpandTileLimit kExpandTiles[] = {{64, 64}, {128, 64}, {192, 64}, {256, 64},
                                            {64, 48}, {128, 48}, {192, 48}, {256, 48}};
constexpr int kExpandTileCount = 8, kMostExpandShared = 226 << 10;

template <class T>
struct ExpandDepthwise {
  struct State {
    ExpandParams params;
    const void* kernel;
    dim3 grid;
    int threads, shared_bytes;
    bool waits;  // for its predecessors, launched programmatically
  };

  static int32_t check(const ConvoyExpansion& problem) {
    const ConvoyShape& s = problem.conv;
    if (int32_t code = check_sizes(s)) return code;
    if (s.op != CONVOY_FPROP) return kWrongOp;
    if (s.groups != s.c || s.c != s.k) return kUnsupported;
    if (s.dilation_h != 1 || s.dilation_w != 1 || s.swizzle < 0 || tile_of(s) >= kExpandTileCount)
      return kUnsupported;
    if (s.k % 8 || problem.channels < 1 || problem.channels % 8) return kMisaligned;
    if (s.split_k != 1) return kBadSplit;
    if (s.r != s.s || (s.r != 3 && s.r != 5)) return kUnsupported;
    if (s.stride_h != s.stride_w || s.stride_w > 2) return kUnsupported;
    if (std::max({s.pad_top, s.pad_left, s.pad_bottom, s.pad_right}) >= s.r) return kUnsupported;
    const int64_t pixels = int64_t(s.n) * s.p * s.q;
    if (pixels >= int64_t(1) << 30 || s.k > 1 << 20 || problem.channels > 1 << 20) return kTooLarge;
    if (shared_bytes(problem, kExpandTiles[tile_of(s)].pixels / 64) > kMostExpandShared) {
      return kTooLarge;
    }
    return layout(problem).width ? kOk : kTooLarge;
  }

  static int32_t prepare(const ConvoyExpansion& problem, const ConvoyExpansionOperands& o,
                         State* state) {
    const ConvoyShape& s = problem.conv;
    if (!o.x || !o.filter || !o.expand || !o.y) return kMissingOperand;
    for (const void* pointer : {o.x, o.expand, static_cast<const void*>(o.y)}) {
      if (!is_aligned(pointer)) return kMisaligned;
    }
    ExpandParams& params = state->params;
    params.filter = o.filter;
    params.expand_bias = o.expand_bias;
    params.bias = o.bias;
    params.y = o.y;
    params.shape = shape_of(s);
    const ExpandTile tile = params.tile = layout(problem);
    params.k = s.k;
    params.slabs = slabs(problem);
    params.steps = (problem.channels + 15) / 16;
    params.tiles = expand_up(s.n, tile.images) * tile.across * tile.down;
    params.by_rows = Divider(tile.rows);
    params.by_across = Divider(tile.across);
    params.by_down = Divider(tile.down);
    params.by_strips = Divider(tile.strips);
    params.expand_activation = s.swizzle % kExpandActivations;
    params.activation = s.swizzle / kExpandActivations % kExpandActivations;
    params.expand_bounds = {problem.clip_min, problem.clip_max};
    params.bounds = {s.clip_min, s.clip_max};
    params.constant_weights = 0;
    const int64_t c = problem.channels, w = s.w, h = s.h;
    if (int32_t code = encode_tiled<T, 4>(&params.x, o.x, {c, w, h, s.n}, {c, c * w, c * w * h},
                                          {64, tile.pitch, tile.rows, tile.images})) {
      return code;
    }
    if (int32_t code = encode_tiled<T, 2>(&params.w, o.expand, {c, s.k}, {c}, {64, columns(s)})) {
      return code;
    }
    return prepare_launch(problem, state);
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
    return fill_footprint(state.kernel, int(state.grid.x * state.grid.y), state.threads,
                          state.shared_bytes, out);
  }

 private:
  static int tile_of(const ConvoyShape& s) {
    return s.swizzle / (kExpandActivations * kExpandActivations);
  }

  static ExpandShape shape_of(const ConvoyShape& s) {
    return {s.n, s.h, s.w, s.p, s.q, s.r, s.stride_h, s.pad_top, s.pad_left};
  }

  static int columns(const ConvoyShape& s) { return kExpandTiles[tile_of(s)].columns; }

  static int slabs(const ConvoyExpansion& problem) { return expand_up(problem.channels, 64); }

  static ExpandTile layout(const ConvoyExpansion& problem) {
    const ConvoyShape& s = problem.conv;
    const int pixels = kExpandTiles[tile_of(s)].pixels;
    return with_config(s, [&](auto config) {
      using Config = decltype(config);
      const int64_t shared = Config::shared_bytes(slabs(problem), pixels / 64) + 1024;
      const int held = std::max(1, std::min(Config::kBlocksOfSm, int((227 << 10) / shared)));
      const int blocks = expand_up(s.k, Config::kColumns);
      return expand_tile(shape_of(s), {blocks, Config::kUnits, held * s.sm_count}, pixels);
    });
  }

  // Calls `use` with the Config of a launch.
  template <class Use>
  static auto with_config(const ConvoyShape& s, Use use) {
    return columns(s) == 48 ? with_columns<48>(s, use) : with_columns<64>(s, use);
  }

  template <int kColumns, class Use>
  static auto with_columns(const ConvoyShape& s, Use use) {
    return s.r == 3 ? with_filter<kColumns, 3>(s, use) : with_filter<kColumns, 5>(s, use);
  }

  template <int kColumns, int kFilter, class Use>
  static auto with_filter(const ConvoyShape& s, Use use) {
    return s.stride_w == 1 ? use(ExpandConfig<T, kColumns, kFilter, 1>())
                           : use(ExpandConfig<T, kColumns, kFilter, 2>());
  }

  static int64_t shared_bytes(const ConvoyExpansion& problem, int groups) {
    return with_config(problem.conv, [&](auto config) {
      return decltype(config)::shared_bytes(slabs(problem), groups);
    });
  }

  static int32_t prepare_launch(const ConvoyExpansion& problem, State* state) {
    const ConvoyShape& s = problem.conv;
    const ExpandParams& params = state->params;
    state->waits = true;
    state->shared_bytes = int(shared_bytes(problem, params.tile.groups));
    state->kernel = with_config(s, [&](auto config) {
      return reinterpret_cast<const void*>(&expand_depthwise<decltype(config)>);
    });
    state->threads = 128;
    if (int32_t code = allow_shared(state->kernel, kMostExpandShared)) return code;
    int resident = 1;
    if (int32_t code = from_cuda(cudaOccupancyMaxActiveBlocksPerMultiprocessor(
            &resident, state->kernel, state->threads, size_t(state->shared_bytes)))) {
      return code;
    }
    // All blocks at once, with as many tiles each or one less.
    const int blocks = expand_up(s.k, columns(s));
    const int most = std::max(1, std::max(1, resident) * s.sm_count / blocks);
    const int turns = (params.tiles + most - 1) / most;
    state->grid =
        dim3(unsigned(blocks), unsigned(std::min((params.tiles + turns - 1) / turns, 65535)));
    return kOk;
  }
};

}  // namespace convoy::sm90

#define CONVOY_EXPORT_EXPANSION(Kernel)                                                   \
  CONVOY_EXPORT_PROBLEM(Kernel, expansion, CONVOY_EXPANSION_ABI_VERSION, ConvoyExpansion, \
                        ConvoyExpansionOperands)
