// Grouped convolution on tensor cores from inputs in shared memory: fprop of float16 and bfloat16.
//
// A block has the weights of a few groups in shared memory and goes over tiles of output pixels. The
// inputs of a tile, halo included, are copied to shared memory once, while the tile before is
// computed. So an input is read from global memory once and not once for each filter position, as
// in grouped.cuh, whose order of the reduction this kernel has as well: (r, s, c) in steps of 16, of
// which lane t of a quad takes elements 4t .. 4t + 3.
#pragma once

#include "activations.cuh"
#include "async_copy.cuh"
#include "convoy/grid_control.cuh"
#include "mma.cuh"
#include "staged_tiles.cuh"
#include "vector.cuh"

#include "../sm90/divider.cuh"

namespace convoy::depthwise {

using sm90::Divider;

struct StagedParams {
  const void *x, *filter, *residual, *bias;
  void* y;
  int images, height, width, out_height, out_width, channels;
  int pitch, out_pitch, residual_pitch;  // elements from one pixel to the next
  int groups, group_channels, group_outputs;
  int filter_w, stride_h, stride_w, dilation_h, dilation_w, pad_top, pad_left;
  int depth;  // of the reduction
  StagedBlock block;
  int column_blocks;                   // blocks that share a group's outputs
  int tile_rows, tile_columns, tiles;  // tiles of an image; of all images
  int stages;                          // tiles whose inputs are in shared memory
  int input_vector, weight_vector;     // elements that are copied at a time: 4 or 8
  int activation;
  float clip_min, clip_max;
  int constant_weights;  // the filter is read before the wait for other kernels
  Divider by_tile_rows, by_tile_columns, by_vectors, by_input_rows, by_input_columns, by_rows,
      by_columns;
};

template <class T_, int RowTiles_, int ColumnTiles_>
struct StagedConfig {
  using T = T_;
  static constexpr int RowTiles = RowTiles_;        // of 16 pixels, of a warp
  static constexpr int ColumnTiles = ColumnTiles_;  // of 8 output channels
  static constexpr int Columns = 8 * ColumnTiles;
  // The output of column n of a column tile. Of two tiles, a lane's columns are four consecutive
  // outputs, which it stores at once.
  __device__ static int output_of(int tile, int n) {
    const bool paired = tile / 2 * 2 + 1 < ColumnTiles;
    return paired ? tile / 2 * 16 + n / 2 * 4 + tile % 2 * 2 + n % 2 : 8 * tile + n;
  }
};

// First image, row and column of a tile's outputs.
struct TileOrigin {
  int image, row, column;
};

__device__ __forceinline__ TileOrigin origin_of(const StagedParams& p, int tile) {
  const int row = p.by_tile_columns.divide(tile);
  const int image = p.by_tile_rows.divide(row);
  return {image * p.block.images, (row - image * p.tile_rows) * p.block.rows,
          (tile - row * p.tile_columns) * p.block.columns};
}

// A pixel of a tile's outputs.
struct TilePixel {
  int image, row, column;
};

__device__ __forceinline__ TilePixel pixel_of(const StagedParams& p, int index) {
  const int row = p.by_columns.divide(index);
  const int image = p.by_rows.divide(row);
  return {image, row - image * p.block.rows, index - row * p.block.columns};
}

// Copies the inputs of a tile, zeros outside of the images.
template <class T, int V>
__device__ __forceinline__ void stage_inputs(const StagedParams& p, const TileOrigin& origin,
                                             int first_channel, T* inputs) {
  const StagedBlock& b = p.block;
  const int vectors = b.groups * p.group_channels / V;
  const int count = b.images * b.input_rows * b.input_columns * vectors;
  const int top = origin.row * p.stride_h - p.pad_top;
  const int left = origin.column * p.stride_w - p.pad_left;
  for (int index = threadIdx.x; index < count; index += kStagedThreads) {
    const int pixel = p.by_vectors.divide(index), channel = (index - pixel * vectors) * V;
    const int line = p.by_input_columns.divide(pixel);
    const int slice = p.by_input_rows.divide(line);
    const int image = origin.image + slice, h = top + line - slice * b.input_rows;
    const int w = left + pixel - line * b.input_columns;
    const bool there = image < p.images && unsigned(h) < unsigned(p.height) &&
                       unsigned(w) < unsigned(p.width) && first_channel + channel < p.channels;
    const uint32_t from =
        uint32_t((image * p.height + h) * p.width + w) * p.pitch + first_channel + channel;
    copy_async<V * sizeof(T)>(there, inputs + pixel * b.input_pitch + channel,
                              static_cast<const T*>(p.x) + (there ? from : 0));
  }
}

// Copies the weights of a block's groups in the order of the columns; what lies beyond the
// reduction, the outputs or the groups is zero.
template <class Config, int V>
__device__ __forceinline__ void stage_weights(const StagedParams& p, int first_group, int column,
                                              typename Config::T* weights) {
  using T = typename Config::T;
  const int vectors = p.block.steps * kStagedStep / V;
  const int count = p.block.groups * Config::Columns * vectors;
  for (int index = threadIdx.x; index < count; index += kStagedThreads) {
    const int line = index / vectors, element = (index - line * vectors) * V;
    const int group = line / Config::Columns, place = line - group * Config::Columns;
    const int output = column + Config::output_of(place / 8, place % 8);
    const bool there =
        first_group + group < p.groups && output < p.group_outputs && element < p.depth;
    const uint32_t from =
        uint32_t((first_group + group) * p.group_outputs + output) * p.depth + element;
    copy_async<V * sizeof(T)>(there, weights + line * p.block.weight_pitch + element,
                              static_cast<const T*>(p.filter) + (there ? from : 0));
  }
}

// Where each four elements of the reduction lie, relative to the first of a pixel's window.
__device__ __forceinline__ void fill_places(const StagedParams& p, int* places) {
  for (int i = threadIdx.x; i < 4 * p.block.steps; i += kStagedThreads) {
    const int tap = 4 * i / p.group_channels, channel = 4 * i - tap * p.group_channels;
    const int row = tap / p.filter_w, column = tap - row * p.filter_w;
    const int pixel = row * p.dilation_h * p.block.input_columns + column * p.dilation_w;
    places[i] = 4 * i < p.depth ? pixel * p.block.input_pitch + channel : 0;
  }
}

// Sums of a warp's pixels and columns, which begin with the bias.
template <class Config>
struct Sums {
  static constexpr int RowTiles = Config::RowTiles, ColumnTiles = Config::ColumnTiles;
  float of[RowTiles][ColumnTiles][4];

  __device__ __forceinline__ Sums(const StagedParams& p, int first_output, int outputs, int quad) {
    using T = typename Config::T;
#pragma unroll
    for (int j = 0; j < ColumnTiles; ++j) {
      const int output = Config::output_of(j, 2 * quad);
      float bias[2] = {};
      if (p.bias) {
        const uint32_t offset = uint32_t(first_output + output) * uint32_t(sizeof(T));
        widen(load_if<T, 2>(output < outputs, p.bias, offset), bias);
      }
#pragma unroll
      for (int i = 0; i < RowTiles; ++i)
#pragma unroll
        for (int v = 0; v < 4; ++v) of[i][j][v] = bias[v % 2];
    }
  }

  // Adds a step. A lane whose elements lie beyond the reduction adds zeros, whatever the inputs are.
  __device__ __forceinline__ void add(const typename Config::T* inputs,
                                      const int (&first)[2 * RowTiles], int place, bool there,
                                      const typename Config::T* weights, int pitch) {
    uint32_t a[RowTiles][4];
#pragma unroll
    for (int i = 0; i < RowTiles; ++i)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        uint2 words = *reinterpret_cast<const uint2*>(inputs + first[2 * i + half] + place);
        a[i][half] = there ? words.x : 0, a[i][half + 2] = there ? words.y : 0;
      }
#pragma unroll
    for (int j = 0; j < ColumnTiles; ++j) {
      const uint2 words = *reinterpret_cast<const uint2*>(weights + 8 * j * pitch);
      const uint32_t b[2] = {words.x, words.y};
#pragma unroll
      for (int i = 0; i < RowTiles; ++i) multiply(of[i][j], a[i], b, typename Config::T());
    }
  }
};

// Stores V outputs of a pixel.
template <class T, int V>
__device__ __forceinline__ void store_outputs(const StagedParams& p, bool there, uint32_t pixel,
                                              int channel, float (&sum)[V]) {
  auto offset = [&](int pitch) { return (pixel * pitch + channel) * uint32_t(sizeof(T)); };
  if (p.residual) {
    float other[V];
    widen(load_if<T, V>(there, p.residual, offset(p.residual_pitch)), other);
#pragma unroll
    for (int v = 0; v < V; ++v) sum[v] += other[v];
  }
  activate_forward<T, V>(sum, p.activation, p.clip_min, p.clip_max);
  store_if<T, V>(there, p.y, offset(p.out_pitch), narrowed<T, V>(sum));
}

// Stores a pixel's outputs of a lane: four at a time of two column tiles, two of a last one.
template <class Config>
__device__ __forceinline__ void store_pixel(const StagedParams& p, bool there, uint32_t pixel,
                                            int first, int outputs, int quad,
                                            const float (&sum)[Config::ColumnTiles][4], int half) {
  using T = typename Config::T;
#pragma unroll
  for (int j = 0; j + 1 < Config::ColumnTiles; j += 2) {
    const int output = Config::output_of(j, 2 * quad);
    float four[4] = {sum[j][2 * half], sum[j][2 * half + 1], sum[j + 1][2 * half],
                     sum[j + 1][2 * half + 1]};
    store_outputs<T, 4>(p, there && output < outputs, pixel, first + output, four);
  }
  if constexpr (Config::ColumnTiles % 2) {
    constexpr int j = Config::ColumnTiles - 1;
    const int output = Config::output_of(j, 2 * quad);
    float two[2] = {sum[j][2 * half], sum[j][2 * half + 1]};
    store_outputs<T, 2>(p, there && output < outputs, pixel, first + output, two);
  }
}

// Pixels and columns of one group: a warp's share of a tile.
template <class Config>
__device__ __forceinline__ void compute(const StagedParams& p, const TileOrigin& origin,
                                        const typename Config::T* inputs,
                                        const typename Config::T* weights, const int* places,
                                        int group, int first_group, int column, int first_pixel) {
  constexpr int RowTiles = Config::RowTiles;
  const StagedBlock& b = p.block;
  const int lane = threadIdx.x % 32, row = lane / 4, quad = lane % 4;
  const int pixels = b.images * b.rows * b.columns;
  int first[2 * RowTiles];
#pragma unroll
  for (int i = 0; i < 2 * RowTiles; ++i) {
    const TilePixel pixel = pixel_of(p, min(first_pixel + 8 * i + row, pixels - 1));
    const int line = pixel.image * b.input_rows + pixel.row * p.stride_h;
    first[i] = (line * b.input_columns + pixel.column * p.stride_w) * b.input_pitch +
               group * p.group_channels;
  }
  const int outputs = min(Config::Columns, p.group_outputs - column);
  const int first_output = (first_group + group) * p.group_outputs + column;
  Sums<Config> sums(p, first_output, outputs, quad);
  const typename Config::T* from =
      weights + (group * Config::Columns + row) * b.weight_pitch + 4 * quad;
  const int whole = p.depth / kStagedStep;
#pragma unroll 4
  for (int step = 0; step < whole; ++step) {
    sums.add(inputs, first, places[4 * step + quad], true, from + kStagedStep * step,
             b.weight_pitch);
  }
  if (whole < b.steps) {
    const bool there = kStagedStep * whole + 4 * quad < p.depth;
    sums.add(inputs, first, places[4 * whole + quad], there, from + kStagedStep * whole,
             b.weight_pitch);
  }
#pragma unroll
  for (int i = 0; i < 2 * RowTiles; ++i) {
    const int index = first_pixel + 8 * i + row;
    const TilePixel pixel = pixel_of(p, index);
    const int image = origin.image + pixel.image, h = origin.row + pixel.row;
    const int w = origin.column + pixel.column;
    const bool there = index < pixels && image < p.images && h < p.out_height && w < p.out_width;
    const uint32_t output = uint32_t((image * p.out_height + h) * p.out_width + w);
    store_pixel<Config>(p, there, output, first_output, outputs, quad, sums.of[i / 2], i % 2);
  }
}

template <class Config>
__global__ void __launch_bounds__(kStagedThreads, 4)
    staged_conv(const __grid_constant__ StagedParams p) {
  using T = typename Config::T;
  extern __shared__ __align__(16) float shared[];
  const StagedBlock& b = p.block;
  T* weights = reinterpret_cast<T*>(shared);
  T* inputs = weights + b.groups * Config::Columns * b.weight_pitch;
  const int stage = b.images * b.input_rows * b.input_columns * b.input_pitch;
  int* places = reinterpret_cast<int*>(inputs + p.stages * stage);
  const int slab = blockIdx.x / p.column_blocks;
  const int column = (blockIdx.x - slab * p.column_blocks) * Config::Columns;
  const int first_group = slab * b.groups, first_channel = first_group * p.group_channels;

  const auto load = [&](int tile, int turn) {
    T* to = inputs + (p.stages > 1 ? turn % 2 : 0) * stage;
    const TileOrigin origin = origin_of(p, tile);
    if (p.input_vector == 8) {
      stage_inputs<T, 8>(p, origin, first_channel, to);
    } else {
      stage_inputs<T, 4>(p, origin, first_channel, to);
    }
  };
  launch_dependents();
  if (!p.constant_weights) wait_for_predecessors();
  if (p.weight_vector == 8) {
    stage_weights<Config, 8>(p, first_group, column, weights);
  } else {
    stage_weights<Config, 4>(p, first_group, column, weights);
  }
  fill_places(p, places);
  if (p.constant_weights) wait_for_predecessors();
  load(blockIdx.y, 0);
  commit_copies();

  constexpr int kPixels = 16 * Config::RowTiles;
  const int parts = (b.images * b.rows * b.columns + kPixels - 1) / kPixels;
  const int tasks = min(b.groups, p.groups - first_group) * parts;
  for (int tile = blockIdx.y, turn = 0; tile < p.tiles; tile += gridDim.y, ++turn) {
    const int next = tile + gridDim.y;
    const bool ahead = p.stages > 1 && next < p.tiles;
    if (ahead) load(next, turn + 1);
    commit_copies();
    wait_for_copies<1>();
    __syncthreads();
    const TileOrigin origin = origin_of(p, tile);
    const T* from = inputs + (p.stages > 1 ? turn % 2 : 0) * stage;
    for (int task = threadIdx.x / 32; task < tasks; task += kStagedWarps) {
      const int group = task / parts;
      compute<Config>(p, origin, from, weights, places, group, first_group, column,
                      (task - group * parts) * kPixels);
    }
    __syncthreads();
    if (!ahead && next < p.tiles) load(next, turn + 1);
    commit_copies();
  }
}

}  // namespace convoy::depthwise
