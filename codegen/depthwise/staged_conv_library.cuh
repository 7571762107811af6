// staged_conv behind the C ABI: fprop of one element type.
//
// ConvoyShape.swizzle is kForwardActivations * tile + activation: a place in kStagedTiles and an
// Activation.
#pragma once

#include <algorithm>
#include <utility>

#include "convoy/kernel_library.cuh"
#include "staged.cuh"
#include "strided.cuh"

namespace convoy::depthwise {

// Shared memory that a block has on every GPU from sm_80 on.
constexpr int kMostStagedShared = 96 << 10;

template <class T_>
struct StagedConv {
  using T = T_;

  struct State {
    StagedParams params;
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
    if (s.c / s.groups % 4 || s.k / s.groups % 4) return kWrongChannels;
    if (s.swizzle < 0 || s.swizzle / kForwardActivations >= kStagedTileCount) return kUnsupported;
    const int64_t x = int64_t(s.n) * s.h * s.w, y = int64_t(s.n) * s.p * s.q;
    const int64_t most = std::max({x * s.c, y * s.k, int64_t(s.k) * s.r * s.s * s.c / s.groups});
    const int64_t extent =
        std::max({int64_t(s.h) + s.pad_top + s.pad_bottom, int64_t(s.w) + s.pad_left + s.pad_right,
                  int64_t(s.dilation_h) * s.r, int64_t(s.dilation_w) * s.s});
    if (most > kMostElements || y >= int64_t(1) << 30 || extent >= 1 << 15) return kTooLarge;
    const StagedTile tile = tile_of(s);
    return staged_block(s, tile).shared_bytes(tile, 1) > kMostStagedShared ? kTooLarge : kOk;
  }

  static int64_t workspace(const ConvoyShape&) { return 0; }

  static int32_t prepare(const ConvoyShape& s, const ConvoyOperands& o, State* state) {
    return prepare_rows(s, o, compact_rows(s), state);
  }

  static int32_t prepare_strided(const ConvoyShape& s, const ConvoyOperands& o,
                                 const ConvoyRowStrides& rows, State* state) {
    if (int32_t code = check_rows(s, o, rows, 4, 4, kMostElements)) return code;
    return prepare_rows(s, o, rows, state);
  }

  static int32_t launch(const State& state, cudaStream_t stream) {
    void* arguments[] = {const_cast<StagedParams*>(&state.params)};
    return from_cuda(cudaLaunchKernel(state.kernel, state.grid, dim3(kStagedThreads), arguments,
                                      size_t(state.shared_bytes), stream));
  }

  static int32_t launch_programmatic(const State& state, cudaStream_t stream,
                                     bool constant_weights) {
    return launch_early(state, kStagedThreads, constant_weights, stream);
  }

  static int32_t footprint(const State& state, ConvoyFootprint* out) {
    return fill_footprint(state.kernel, int(state.grid.x * state.grid.y), kStagedThreads,
                          state.shared_bytes, out);
  }

 private:
  using Places = std::make_integer_sequence<int, kStagedTileCount>;
  // Blocks that run on an SM at a time, as its registers and its shared memory allow.
  static constexpr int kBlocksPerSm = 4;
  static constexpr int64_t kSharedPerSm = 224 << 10;

  static int32_t prepare_rows(const ConvoyShape& s, const ConvoyOperands& o,
                              const ConvoyRowStrides& rows, State* state) {
    if (!o.a || !o.b || !o.d) return kMissingOperand;
    if (!is_aligned(o.a, 8) || !is_aligned(o.b, 8) || !is_aligned(o.d, 8)) return kMisaligned;
    if (!is_aligned(o.residual, 8) || !is_aligned(o.bias, 4)) return kMisaligned;
    const StagedTile tile = tile_of(s);
    const StagedBlock block = staged_block(s, tile);
    const int channels = s.c / s.groups, outputs = s.k / s.groups;
    const int column_blocks = parts(outputs, tile.outputs());
    const int across = parts(s.groups, block.groups) * column_blocks;
    const int tile_rows = parts(s.p, block.rows), tile_columns = parts(s.q, block.columns);
    const int tiles = parts(s.n, block.images) * tile_rows * tile_columns;
    const bool twice = block.shared_bytes(tile, 2) <= kMostStagedShared;
    const int64_t bytes = block.shared_bytes(tile, twice ? 2 : 1);
    const int resident = std::max(1, std::min(kBlocksPerSm, int(kSharedPerSm / bytes)));
    const int most = std::min(std::max(1, resident * s.sm_count / across), 65535);
    const int turns = parts(tiles, most);
    StagedParams& p = state->params;
    p = {o.a,
         o.b,
         o.residual,
         o.bias,
         o.d,
         s.n,
         s.h,
         s.w,
         s.p,
         s.q,
         s.c,
         int(rows.a),
         int(rows.d),
         int(rows.residual),
         s.groups,
         channels,
         outputs,
         s.s,
         s.stride_h,
         s.stride_w,
         s.dilation_h,
         s.dilation_w,
         s.pad_top,
         s.pad_left,
         s.r * s.s * channels,
         block,
         column_blocks,
         tile_rows,
         tile_columns,
         tiles,
         twice && turns > 1 ? 2 : 1};
    p.input_vector = vector(rows.a, block.groups * channels, o.a);
    p.weight_vector = vector(p.depth, p.depth, o.b);
    p.activation = s.swizzle % kForwardActivations;
    p.clip_min = s.clip_min;
    p.clip_max = s.clip_max;
    p.constant_weights = 0;
    p.by_tile_rows = Divider(tile_rows);
    p.by_tile_columns = Divider(tile_columns);
    p.by_vectors = Divider(block.groups * channels / p.input_vector);
    p.by_input_rows = Divider(block.input_rows);
    p.by_input_columns = Divider(block.input_columns);
    p.by_rows = Divider(block.rows);
    p.by_columns = Divider(block.columns);
    state->grid = dim3(unsigned(across), unsigned(parts(tiles, turns)));
    state->shared_bytes = int(block.shared_bytes(tile, p.stages));
    state->kernel = choose(s.swizzle / kForwardActivations, Places());
    state->waits = waits(state->kernel);
    // As much as any problem takes: others of the process may share the kernel.
    return allow_shared(state->kernel, kMostStagedShared);
  }

  static bool is_aligned(const void* pointer, int bytes) {
    return reinterpret_cast<uintptr_t>(pointer) % bytes == 0;
  }

  static int parts(int length, int part) { return (length + part - 1) / part; }

  // Elements that may be copied at a time: of pixels that lie so far apart, a part of each, from here.
  static int vector(int64_t pitch, int part, const void* from) {
    return pitch % 8 || part % 8 || !is_aligned(from, 16) ? 4 : 8;
  }

  static StagedTile tile_of(const ConvoyShape& s) {
    return kStagedTiles[s.swizzle / kForwardActivations];
  }

  template <int... Index>
  static const void* choose(int place, std::integer_sequence<int, Index...>) {
    const void* found = nullptr;
    ((Index == place
          ? void(found = reinterpret_cast<const void*>(
                     &staged_conv<
                         StagedConfig<T, kStagedTiles[Index].rows, kStagedTiles[Index].columns>>))
          : void()),
     ...);
    return found;
  }
};

}  // namespace convoy::depthwise
