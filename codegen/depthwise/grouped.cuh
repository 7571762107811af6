// Grouped convolution of few channels a group on tensor cores: fprop of float16 and bfloat16.
//
// Of each group an implicit GEMM: rows are output pixels, columns the group's output channels, and
// the reduction runs over (r, s, c), which is the order of the weights of an output channel in
// memory. A step of the reduction is 16 of these; lane t of a quad takes elements 4t .. 4t + 3 of
// a step. These are not the columns that mma's layout gives it, but the sum does not depend on the
// order as long as both operands have the same: so inputs come as 8 bytes of channels of one tap
// straight from global memory (the L1 cache holds the halo), and weights as 8 bytes of shared
// memory. A table in shared memory says where each group of four lies relative to a pixel's window.
#pragma once

#include "activations.cuh"
#include "convoy/grid_control.cuh"
#include "mma.cuh"
#include "vector.cuh"

#include "../sm90/divider.cuh"

namespace convoy::depthwise {

using sm90::Divider;

constexpr int kGroupedWarps = 4;
constexpr int kGroupedThreads = 32 * kGroupedWarps;
// Elements of the reduction in a step.
constexpr int kStep = 16;
// Filter rows or columns: a bit of a word for each.
constexpr int kMostGroupedFilter = 32;

struct GroupedParams {
  const void *x, *filter, *residual, *bias;
  void* y;
  int pixels;  // of all images' outputs
  int height, width, out_height, out_width;
  int pitch, out_pitch, residual_pitch;  // elements from one pixel to the next
  int group_channels, group_outputs;
  int filter_h, filter_w, stride_h, stride_w, dilation_h, dilation_w, pad_top, pad_left;
  int depth, steps;   // of the reduction
  int weight_pitch;   // of an output channel in shared memory, in elements
  int column_blocks;  // blocks that share a group's outputs
  int activation;
  float clip_min, clip_max;
  int constant_weights;         // the filter is read before the wait for other kernels
  Divider by_width, by_height;  // of the output
};

template <class T_, int RowTiles_, int ColumnTiles_>
struct GroupedConfig {
  using T = T_;
  static constexpr int RowTiles = RowTiles_;        // of 16 pixels, of a warp
  static constexpr int ColumnTiles = ColumnTiles_;  // of 8 output channels
  static constexpr int Rows = kGroupedWarps * 16 * RowTiles;
  static constexpr int Columns = 8 * ColumnTiles;
};

// Where four elements of the reduction lie: element offset from a pixel's window, row and column of
// the filter.
struct Place {
  int offset;
  short row, column;
};

// A pixel of a thread: its window's first element, and which rows and columns of it are inside.
struct Window {
  uint32_t first, rows, columns;
};

__device__ __forceinline__ uint32_t inside_bits(int first, int step, int count, int extent) {
  uint32_t bits = 0;
  for (int i = 0; i < count; ++i) {
    bits |= uint32_t(unsigned(first + i * step) < unsigned(extent)) << i;
  }
  return bits;
}

__device__ __forceinline__ Window window_at(const GroupedParams& p, int pixel, int group) {
  const int row = p.by_width.divide(pixel);
  const int image = p.by_height.divide(row);
  const int h = (row - image * p.out_height) * p.stride_h - p.pad_top;
  const int w = (pixel - row * p.out_width) * p.stride_w - p.pad_left;
  Window window;
  window.first =
      uint32_t((image * p.height + h) * p.width + w) * p.pitch + group * p.group_channels;
  window.rows = inside_bits(h, p.dilation_h, p.filter_h, p.height);
  window.columns = inside_bits(w, p.dilation_w, p.filter_w, p.width);
  return window;
}

// Weights of the block's outputs and the table of places; what lies beyond either end is zero.
template <class Config>
__device__ __forceinline__ void load_group(const GroupedParams& p, int first_output, int outputs,
                                           typename Config::T* weights, Place* places) {
  using Four = Vector<typename Config::T, 4>;
  const int words = p.weight_pitch / 4, used = p.depth / 4;
  constexpr int kAtOnce = 4;
  for (int start = threadIdx.x; start < Config::Columns * words;
       start += kAtOnce * kGroupedThreads) {
    Four values[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const int index = start + i * kGroupedThreads;
      const int output = index / words, word = index - output * words;
      const bool there = index < Config::Columns * words && output < outputs && word < used;
      values[i] = load_if<typename Config::T, 4>(
          there, p.filter,
          (uint32_t(first_output + output) * used + word) * uint32_t(sizeof(Four)));
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const int index = start + i * kGroupedThreads;
      if (index < Config::Columns * words) reinterpret_cast<Four*>(weights)[index] = values[i];
    }
  }
  for (int i = threadIdx.x; i < p.steps * 4; i += kGroupedThreads) {
    const int tap = 4 * i / p.group_channels, channel = 4 * i - tap * p.group_channels;
    const int row = tap / p.filter_w, column = tap - row * p.filter_w;
    const int pixel = row * p.dilation_h * p.width + column * p.dilation_w;
    // Row 31 is inside of no window where the filter has fewer rows: beyond the end, read nothing.
    const bool there = i < used;
    places[i] = {there ? pixel * p.pitch + channel : 0, short(there ? row : kMostGroupedFilter),
                 short(column)};
  }
}

template <class Config>
__device__ __forceinline__ void load_rows(const GroupedParams& p, const Window* windows,
                                          const Place& place, uint32_t (&a)[Config::RowTiles][4]) {
  using T = typename Config::T;
#pragma unroll
  for (int i = 0; i < Config::RowTiles; ++i) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const Window& window = windows[2 * i + half];
      const bool there = place.row < kMostGroupedFilter &&
                         (window.rows >> (place.row & 31) & window.columns >> place.column & 1);
      const Vector<T, 4> four =
          load_if<T, 4>(there, p.x, (window.first + place.offset) * uint32_t(sizeof(T)));
      const uint32_t* words = reinterpret_cast<const uint32_t*>(&four);
      a[i][half] = words[0];
      a[i][half + 2] = words[1];
    }
  }
}

template <class Config>
__device__ __forceinline__ void store_tile(const GroupedParams& p, int pixel, int output,
                                           int outputs, int first_output, float (&sum)[2]) {
  using T = typename Config::T;
  const bool there = pixel < p.pixels && output < outputs;
  auto offset = [&](int pitch) {
    return (uint32_t(pixel) * pitch + first_output + output) * uint32_t(sizeof(T));
  };
  if (p.residual) {
    float other[2];
    widen(load_if<T, 2>(there, p.residual, offset(p.residual_pitch)), other);
    sum[0] += other[0], sum[1] += other[1];
  }
  activate_forward<T, 2>(sum, p.activation, p.clip_min, p.clip_max);
  store_if<T, 2>(there, p.y, offset(p.out_pitch), narrowed<T, 2>(sum));
}

template <class Config>
__global__ void __launch_bounds__(kGroupedThreads)
    grouped_conv(const __grid_constant__ GroupedParams p) {
  using T = typename Config::T;
  constexpr int RowTiles = Config::RowTiles, ColumnTiles = Config::ColumnTiles;
  extern __shared__ __align__(16) float shared[];
  T* weights = reinterpret_cast<T*>(shared);
  Place* places = reinterpret_cast<Place*>(weights + Config::Columns * p.weight_pitch);
  const int group = blockIdx.x / p.column_blocks;
  const int column = (blockIdx.x - group * p.column_blocks) * Config::Columns;
  const int first_output = group * p.group_outputs + column;
  const int outputs = min(Config::Columns, p.group_outputs - column);
  launch_dependents();
  if (!p.constant_weights) wait_for_predecessors();
  load_group<Config>(p, first_output, outputs, weights, places);
  if (p.constant_weights) wait_for_predecessors();

  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int row = lane / 4, quad = lane % 4;
  float bias[ColumnTiles][2] = {};
  if (p.bias) {
#pragma unroll
    for (int j = 0; j < ColumnTiles; ++j) {
      const int output = 8 * j + 2 * quad;
      widen(load_if<T, 2>(output < outputs, p.bias,
                          uint32_t(first_output + output) * uint32_t(sizeof(T))),
            bias[j]);
    }
  }
  __syncthreads();

  for (int start = blockIdx.y * Config::Rows; start < p.pixels; start += gridDim.y * Config::Rows) {
    const int first = start + warp * 16 * RowTiles + row;
    Window windows[2 * RowTiles];
#pragma unroll
    for (int i = 0; i < 2 * RowTiles; ++i) {
      windows[i] = window_at(p, min(first + 8 * i, p.pixels - 1), group);
    }
    float sum[RowTiles][ColumnTiles][4];
#pragma unroll
    for (int i = 0; i < RowTiles; ++i)
#pragma unroll
      for (int j = 0; j < ColumnTiles; ++j)
#pragma unroll
        for (int v = 0; v < 4; ++v) sum[i][j][v] = bias[j][v % 2];

    uint32_t next[RowTiles][4];
    load_rows<Config>(p, windows, places[quad], next);
#pragma unroll 2
    for (int step = 0; step < p.steps; ++step) {
      uint32_t a[RowTiles][4];
#pragma unroll
      for (int i = 0; i < RowTiles; ++i)
#pragma unroll
        for (int v = 0; v < 4; ++v) a[i][v] = next[i][v];
      // The inputs of the next step are on their way while this one is multiplied.
      if (step + 1 < p.steps) load_rows<Config>(p, windows, places[4 * step + 4 + quad], next);
#pragma unroll
      for (int j = 0; j < ColumnTiles; ++j) {
        const T* from = weights + (8 * j + row) * p.weight_pitch + kStep * step + 4 * quad;
        const uint2 words = *reinterpret_cast<const uint2*>(from);
        const uint32_t b[2] = {words.x, words.y};
#pragma unroll
        for (int i = 0; i < RowTiles; ++i) multiply(sum[i][j], a[i], b, T());
      }
    }
#pragma unroll
    for (int i = 0; i < RowTiles; ++i)
#pragma unroll
      for (int j = 0; j < ColumnTiles; ++j)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          float pair[2] = {sum[i][j][2 * half], sum[i][j][2 * half + 1]};
          store_tile<Config>(p, first + 16 * i + 8 * half, 8 * j + 2 * quad, outputs, first_output,
                             pair);
        }
  }
}

}  // namespace convoy::depthwise
