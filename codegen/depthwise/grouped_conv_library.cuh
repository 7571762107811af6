// grouped_conv behind the C ABI: fprop of one element type.
//
// ConvoyShape.swizzle is kForwardActivations * tile + activation: a place in GroupedTiles and an
// Activation.
#pragma once

#include <algorithm>
#include <utility>

#include "convoy/kernel_library.cuh"
#include "grouped.cuh"
#include "grouped_tiles.cuh"
#include "strided.cuh"

namespace convoy::depthwise {

// Shared memory that a block has on every GPU from sm_80 on.
constexpr int kMostGroupedShared = 96 << 10;

template <class T_>
struct GroupedConv {
  using T = T_;

  struct State {
    GroupedParams params;
    const void* kernel;
    dim3 grid;
    int shared_bytes;
    bool waits;
  };

  static int32_t check(const ConvoyShape& s) {
    if (s.op != CONVOY_FPROP) return kWrongOp;
    if (int32_t code = check_sizes(s)) return code;
    if (s.split_k != 1) return kBadSplit;
    if (s.groups < 2 || s.c % s.groups || s.k % s.groups) return kUnsupported;
    if (s.c / s.groups % 4 || s.k / s.groups % 2) return kWrongChannels;
    if (std::max(s.r, s.s) > kMostGroupedFilter) return kUnsupported;
    if (s.swizzle < 0 || s.swizzle / kForwardActivations >= kGroupedTileCount) return kUnsupported;
    if (shared_bytes(s, tile_of(s)) > kMostGroupedShared) return kTooLarge;
    const int64_t x = int64_t(s.n) * s.h * s.w, y = int64_t(s.n) * s.p * s.q;
    const int64_t most = std::max({x * s.c, y * s.k, int64_t(s.k) * s.r * s.s * s.c / s.groups});
    const int64_t extent =
        std::max({int64_t(s.h) + s.pad_top + s.pad_bottom, int64_t(s.w) + s.pad_left + s.pad_right,
                  int64_t(s.dilation_h) * s.r, int64_t(s.dilation_w) * s.s});
    if (most > kMostElements || y >= int64_t(1) << 30 || extent >= 1 << 15) return kTooLarge;
    return reach(s, s.c) > kMostElements ? kTooLarge : kOk;
  }

  static int64_t workspace(const ConvoyShape&) { return 0; }

  static int32_t prepare(const ConvoyShape& s, const ConvoyOperands& o, State* state) {
    return prepare_rows(s, o, compact_rows(s), state);
  }

  static int32_t prepare_strided(const ConvoyShape& s, const ConvoyOperands& o,
                                 const ConvoyRowStrides& rows, State* state) {
    if (int32_t code = check_rows(s, o, rows, 4, 2, kMostElements)) return code;
    if (reach(s, rows.a) > kMostElements) return kTooLarge;
    return prepare_rows(s, o, rows, state);
  }

  static int32_t launch(const State& state, cudaStream_t stream) {
    void* arguments[] = {const_cast<GroupedParams*>(&state.params)};
    return from_cuda(cudaLaunchKernel(state.kernel, state.grid, dim3(kGroupedThreads), arguments,
                                      size_t(state.shared_bytes), stream));
  }

  static int32_t launch_programmatic(const State& state, cudaStream_t stream,
                                     bool constant_weights) {
    return launch_early(state, kGroupedThreads, constant_weights, stream);
  }

  static int32_t footprint(const State& state, ConvoyFootprint* out) {
    return fill_footprint(state.kernel, int(state.grid.x * state.grid.y), kGroupedThreads,
                          state.shared_bytes, out);
  }

 private:
  using Places = std::make_integer_sequence<int, kGroupedTileCount>;
  static constexpr int kBlocksPerSm = 8;

  static int32_t prepare_rows(const ConvoyShape& s, const ConvoyOperands& o,
                              const ConvoyRowStrides& rows, State* state) {
    if (!o.a || !o.b || !o.d) return kMissingOperand;
    if (!is_aligned(o.a, 8) || !is_aligned(o.b, 8)) return kMisaligned;
    if (!is_aligned(o.d, 4) || !is_aligned(o.residual, 4) || !is_aligned(o.bias, 4)) {
      return kMisaligned;
    }
    const GroupedTile tile = tile_of(s);
    GroupedParams& p = state->params;
    p.x = o.a;
    p.filter = o.b;
    p.residual = o.residual;
    p.bias = o.bias;
    p.y = o.d;
    p.pixels = s.n * s.p * s.q;
    p.height = s.h;
    p.width = s.w;
    p.out_height = s.p;
    p.out_width = s.q;
    p.pitch = int(rows.a);
    p.out_pitch = int(rows.d);
    p.residual_pitch = int(rows.residual);
    p.group_channels = s.c / s.groups;
    p.group_outputs = s.k / s.groups;
    p.filter_h = s.r;
    p.filter_w = s.s;
    p.stride_h = s.stride_h;
    p.stride_w = s.stride_w;
    p.dilation_h = s.dilation_h;
    p.dilation_w = s.dilation_w;
    p.pad_top = s.pad_top;
    p.pad_left = s.pad_left;
    p.depth = s.r * s.s * p.group_channels;
    p.steps = (p.depth + kStep - 1) / kStep;
    p.weight_pitch = pitch(s);
    p.column_blocks = (p.group_outputs + 8 * tile.columns - 1) / (8 * tile.columns);
    p.activation = s.swizzle % kForwardActivations;
    p.clip_min = s.clip_min;
    p.clip_max = s.clip_max;
    p.constant_weights = 0;
    p.by_width = Divider(s.q);
    p.by_height = Divider(s.p);
    const int of_block = kGroupedWarps * 16 * tile.rows;
    const int across = s.groups * p.column_blocks;
    const int needed = (p.pixels + of_block - 1) / of_block;
    const int most = std::max(1, kBlocksPerSm * s.sm_count / across);
    const int turns = (needed + std::min(most, 65535) - 1) / std::min(most, 65535);
    state->grid = dim3(unsigned(across), unsigned((needed + turns - 1) / turns));
    state->shared_bytes = shared_bytes(s, tile);
    state->kernel = choose(s.swizzle / kForwardActivations, Places());
    state->waits = waits(state->kernel);
    // As much as any problem takes: others of the process may share the kernel.
    return allow_shared(state->kernel, kMostGroupedShared);
  }

  static bool is_aligned(const void* pointer, int bytes) {
    return reinterpret_cast<uintptr_t>(pointer) % bytes == 0;
  }

  static GroupedTile tile_of(const ConvoyShape& s) {
    return kGroupedTiles[s.swizzle / kForwardActivations];
  }

  // Elements from the first input of a window to the last one, of pixels that lie `pitch` apart.
  static int64_t reach(const ConvoyShape& s, int64_t pitch) {
    return (int64_t(s.dilation_h) * s.r * s.w + int64_t(s.dilation_w) * s.s) * pitch;
  }

  // Elements of an output's weights: whole steps, and 8 words more than a multiple of 32, so that
  // the outputs of a half warp lie in different banks.
  static int pitch(const ConvoyShape& s) {
    const int steps = (s.r * s.s * (s.c / s.groups) + kStep - 1) / kStep * kStep;
    return (steps + 47) / 64 * 64 + 16;
  }

  static int shared_bytes(const ConvoyShape& s, GroupedTile tile) {
    const int steps = (s.r * s.s * (s.c / s.groups) + kStep - 1) / kStep;
    return 8 * tile.columns * pitch(s) * int(sizeof(T)) + steps * 4 * int(sizeof(Place));
  }

  template <int... Index>
  static const void* choose(int place, std::integer_sequence<int, Index...>) {
    const void* found = nullptr;
    ((Index == place ? void(found = reinterpret_cast<const void*>(
                                &grouped_conv<GroupedConfig<T, kGroupedTiles[Index].rows,
                                                            kGroupedTiles[Index].columns>>))
                     : void()),
     ...);
    return found;
  }
};

}  // namespace convoy::depthwise
