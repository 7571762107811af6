// What the libraries of this folder share: which problems they take, and how a block divides
// channels and strips.
#pragma once

#include <algorithm>
#include <utility>

#include "conv.cuh"
#include "convoy/kernel_library.cuh"
#include "strided.cuh"

namespace convoy::depthwise {

constexpr int64_t kMostBytes = int64_t(1) << 32;
constexpr int kMostFilter = 64;

// Whether a vector of channels has a load of its own, and the kernel an instance for the tile.
template <class T>
constexpr bool is_compiled(int filter, Tile tile, int stride) {
  const int window = (tile.columns - 1) * stride + (filter ? filter : kTapChunk);
  return tile.vector * sizeof(T) <= 16 && (stride == 1 || !tile.single()) && window <= kMostWindow;
}

// Offsets have 32 bits, and positions stay far from where they wrap.
template <class T>
int32_t check_range(const ConvoyShape& s) {
  const int64_t x = int64_t(s.n) * s.h * s.w, y = int64_t(s.n) * s.p * s.q;
  const int64_t bytes = int64_t(sizeof(T)) * std::max(x * s.c, y * s.k);
  const int64_t extent = std::max(
      {int64_t(s.h) + s.pad_top + s.pad_bottom, int64_t(s.w) + s.pad_left + s.pad_right,
       int64_t(s.dilation_h) * s.r, int64_t(s.dilation_w) * s.s, int64_t(s.k) * s.r * s.s});
  if (x >= kMostBytes / 4 || y >= kMostBytes / 4 || bytes >= kMostBytes) return kTooLarge;
  if (extent >= int64_t(1) << 28 || s.k >= 1 << 19) return kTooLarge;
  // A strip of dilated outputs may be cut to one of them.
  const int64_t strips = (int64_t(std::max(s.h, s.p)) + s.dilation_h) *
                         (int64_t(std::max(s.w, s.q)) + s.dilation_w) * s.n;
  return strips >= int64_t(1) << 30 ? kTooLarge : kOk;
}

// Any depthwise convolution with a filter that the library takes (0: any).
template <class T>
int32_t check_depthwise(const ConvoyShape& s, int filter) {
  if (int32_t code = check_sizes(s)) return code;
  if (s.split_k != 1) return kBadSplit;
  if (s.groups < 2 || s.groups != s.c || s.k % s.c) return kUnsupported;
  if (filter ? s.r != filter || s.s != filter : std::max(s.r, s.s) > kMostFilter) {
    return kUnsupported;
  }
  return check_range<T>(s);
}

// Whether a tile suits channels and strides.
template <class T>
int32_t check_tile(const ConvoyShape& s, int filter, Tile tile, const Axis& rows,
                   const Axis& columns) {
  if (tile.vector * sizeof(T) > 16 || s.k % tile.vector) return kMisaligned;
  if (s.k != s.c && tile.vector > 1) return kUnsupported;
  if (tile.single()) return kOk;
  if (columns.stride > 2 || (tile.rows > 1 && rows.stride != columns.stride)) return kUnsupported;
  return is_compiled<T>(filter, tile, columns.stride) ? kOk : kUnsupported;
}

inline bool is_aligned(const void* pointer, int bytes) {
  return reinterpret_cast<uintptr_t>(pointer) % bytes == 0;
}

// Sizes of input and output, whose pixels lie `rows` apart; those of dgrad are exchanged.
inline void set_sizes(const ConvoyShape& s, const ConvoyRowStrides& rows, ConvParams* p) {
  const bool dgrad = s.op == CONVOY_DGRAD;
  p->images = s.n;
  p->in_width = dgrad ? s.q : s.w;
  p->in_pixels = dgrad ? s.p * s.q : s.h * s.w;
  p->out_width = dgrad ? s.w : s.q;
  p->out_pixels = dgrad ? s.h * s.w : s.p * s.q;
  p->in_pitch = int(rows.a);
  p->out_pitch = int(rows.d);
  p->residual_pitch = int(rows.residual);
  p->out_channels = s.k;
  p->filter_h = s.r;
  p->filter_w = s.s;
  p->by_multiplier = Divider(s.k / s.c);
}

// Channels of a block: 64 bytes or more of a pixel, as evenly as they divide, and more of them
// where there are few strips.
template <class T>
void set_block(const ConvoyShape& s, Tile tile, int64_t strips, ConvParams* p) {
  const int vectors = s.k / tile.vector;
  int most = std::max(8, 64 / int(tile.vector * sizeof(T)));
  while (most < kThreads && strips * most < kThreads) most *= 2;
  const int blocks = (vectors + most - 1) / most;
  p->vectors = (vectors + blocks - 1) / blocks;
  p->block_strips = kThreads / p->vectors;
  p->by_vectors = Divider(p->vectors);
}

}  // namespace convoy::depthwise
