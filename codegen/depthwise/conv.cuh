// Depthwise convolution of NHWC activations by a KRSC filter (one input channel a filter): fprop
// with its epilogue, and dgrad as the same sum over dy (axis.cuh).
//
// A thread computes a strip of rows x columns outputs in `vector` channels. It reads each input of
// its window once, as a vector of channels, and keeps accumulators in registers; the weights of the
// block's channels lie in shared memory as float32. Neighbouring threads of a block have
// neighbouring channels, then neighbouring strips, so that the halo of a strip hits the L1 cache.
// A block takes strips until none are left, so that weights are read once for many of them.
#pragma once

#include "activations.cuh"
#include "axis.cuh"
#include "convoy/grid_control.cuh"
#include "tiles.cuh"
#include "vector.cuh"

namespace convoy::depthwise {

// Strides of a dgrad, and so the phases of an axis, at most.
constexpr int kMostPhases = 4;
constexpr int kThreads = 128;
// Blocks of an SM at least: 128 registers a thread.
constexpr int kBlocks = 4;
// Columns of a strip's window: a bit of a word for each.
constexpr int kMostWindow = 32;

struct ConvParams {
  const void *in, *filter, *residual, *bias;
  void* out;
  Axis rows[kMostPhases], columns[kMostPhases];
  int column_phases;
  int images, in_pixels, out_pixels;  // pixels of an image
  int in_width, out_width;
  int in_pitch, out_pitch, residual_pitch;  // elements from one pixel to the next
  int out_channels;
  int filter_h, filter_w;
  int vectors;       // of channels, of a block
  int block_strips;  // strips of a block at a time: kThreads / vectors
  int weight_rows;   // filter rows in shared memory at a time
  int activation;
  float clip_min, clip_max;
  int constant_weights;  // the filter is read before the wait for other kernels
  Divider by_vectors, by_multiplier;
};

template <class T_, int Filter_, int Stride_, int Vector_, int Rows_, int Columns_>
struct ConvConfig {
  using T = T_;
  static constexpr int Filter = Filter_;  // 0: any
  static constexpr int Stride = Stride_;
  static constexpr int V = Vector_, Rows = Rows_, Columns = Columns_;
  static constexpr int Taps = Filter ? Filter : kTapChunk;  // of a row, at a time
  static constexpr int Window = (Columns - 1) * Stride + Taps;
  static_assert(Window <= kMostWindow);
  static_assert(Filter || Rows == 1, "a filter of any size takes one row of outputs at a time");
};

// Filter taps of a row as they lie in shared memory.
template <class Config>
CONVOY_HD int padded_taps(int taps) {
  return Config::Filter ? Config::Filter : (taps + kTapChunk - 1) / kTapChunk * kTapChunk;
}

// A row of weights in shared memory: the block's channels, and 4 floats for fewer bank conflicts
// when it is written.
CONVOY_HD int weight_stride(int channels) { return channels + 4; }

// Where a strip lies and which of its columns are inside.
struct Strip {
  int row, column;        // first output, as j of axis.cuh
  uint32_t image;         // first input element of the image
  uint32_t out_image;     // first output pixel
  int in_row, in_column;  // of the first tap
};

// Strips are numbered along a row, then by row, then by image.
template <class Config>
__device__ __forceinline__ Strip strip_at(const ConvParams& p, const Axis& rows,
                                          const Axis& columns, int index) {
  const int above = columns.by_strips.divide(index);
  const int image = rows.by_strips.divide(above);
  Strip strip;
  strip.row = rows.start(above - image * rows.strips, Config::Rows);
  strip.column = columns.start(index - above * columns.strips, Config::Columns);
  strip.image = uint32_t(image) * p.in_pixels * p.in_pitch;
  strip.out_image = uint32_t(image) * p.out_pixels;
  strip.in_row = rows.a * strip.row + rows.b;
  strip.in_column = columns.a * strip.column + columns.b;
  return strip;
}

// Filter rows first_row .. first_row + count - 1 of the block's channels, as (row, tap, channel) in
// float32. Loads come several at a time: a block waits for them before it does anything else.
template <class Config>
__device__ __forceinline__ void load_weights(const ConvParams& p, const Axis& rows,
                                             const Axis& columns, int first_channel, int first_row,
                                             int count, float* weights) {
  using T = typename Config::T;
  constexpr int kAtOnce = 8;
  const int channels = p.vectors * Config::V, stride = weight_stride(channels);
  const int taps = padded_taps<Config>(columns.taps);
  const int positions = Config::Filter ? Config::Filter * Config::Filter : count * taps;
  for (int start = threadIdx.x; start < channels * positions; start += kAtOnce * kThreads) {
    Vector<T, 1> values[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const int index = start + i * kThreads;
      const int channel = index / positions, place = index - channel * positions;
      const int r = place / taps, s = place - r * taps;
      const int row = rows.w0 + rows.w1 * (first_row + r), column = columns.w0 + columns.w1 * s;
      const bool there = index < channels * positions && first_channel + channel < p.out_channels &&
                         s < columns.taps;
      values[i] =
          load_if<T, 1>(there, p.filter,
                        (((first_channel + channel) * p.filter_h + row) * p.filter_w + column) *
                            uint32_t(sizeof(T)));
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const int index = start + i * kThreads;
      const int channel = index / positions, place = index - channel * positions;
      if (index < channels * positions)
        weights[place * stride + channel] = widen(values[i].data[0]);
    }
  }
}

// A row of the strip's window in float32; zeros where `inside` has no bit.
template <class Config>
__device__ __forceinline__ void load_window(const void* in, uint32_t offset, uint32_t step,
                                            uint32_t inside,
                                            float (&x)[Config::Window][Config::V]) {
  using T = typename Config::T;
  Vector<T, Config::V> raw[Config::Window];
#pragma unroll
  for (int i = 0; i < Config::Window; ++i) {
    raw[i] = load_if<T, Config::V>(inside >> i & 1, in, offset + i * step);
  }
#pragma unroll
  for (int i = 0; i < Config::Window; ++i) widen(raw[i], x[i]);
}

template <class Config>
__device__ __forceinline__ void add_taps(const float* weights, int stride,
                                         const float (&x)[Config::Window][Config::V],
                                         float (&sum)[Config::Columns][Config::V]) {
#pragma unroll
  for (int s = 0; s < Config::Taps; ++s) {
    float w[Config::V];
    load_shared(weights + s * stride, w);
#pragma unroll
    for (int column = 0; column < Config::Columns; ++column)
#pragma unroll
      for (int v = 0; v < Config::V; ++v)
        sum[column][v] += x[column * Config::Stride + s][v] * w[v];
  }
}

// Bits of the window's columns that are inside the input.
template <class Config>
__device__ __forceinline__ uint32_t columns_inside(const Axis& columns, int first) {
  uint32_t inside = 0;
#pragma unroll
  for (int i = 0; i < Config::Window; ++i) {
    inside |= uint32_t(unsigned(first + i * columns.d) < unsigned(columns.in)) << i;
  }
  return inside;
}

// All rows of a filter of fixed size: each input row is read once for all output rows.
template <class Config>
__device__ __forceinline__ void add_fixed(const ConvParams& p, const Axis& rows,
                                          const Axis& columns, const Strip& strip, uint32_t channel,
                                          const float* weights,
                                          float (&sum)[Config::Rows][Config::Columns][Config::V]) {
  constexpr uint32_t size = sizeof(typename Config::T);
  const int stride = weight_stride(p.vectors * Config::V);
  const uint32_t inside = columns_inside<Config>(columns, strip.in_column);
  const uint32_t step = columns.d * p.in_pitch * size;
  const uint32_t base = (strip.image + channel) * size;
#pragma unroll
  for (int i = 0; i < (Config::Rows - 1) * Config::Stride + Config::Filter; ++i) {
    const int row = strip.in_row + i * rows.d;
    const bool there = unsigned(row) < unsigned(rows.in);
    float x[Config::Window][Config::V];
    load_window<Config>(p.in,
                        base + uint32_t(row * p.in_width + strip.in_column) * (p.in_pitch * size),
                        step, there ? inside : 0, x);
#pragma unroll
    for (int j = 0; j < Config::Rows; ++j) {
      const int r = i - j * Config::Stride;
      if (r < 0 || r >= Config::Filter) continue;
      add_taps<Config>(weights + r * Config::Filter * stride, stride, x, sum[j]);
    }
  }
}

// Filter rows first .. first + count - 1 of any filter, kTapChunk taps at a time.
template <class Config>
__device__ __forceinline__ void add_any(const ConvParams& p, const Axis& rows, const Axis& columns,
                                        const Strip& strip, uint32_t channel, int first, int count,
                                        const float* weights,
                                        float (&sum)[Config::Columns][Config::V]) {
  constexpr uint32_t size = sizeof(typename Config::T);
  const int stride = weight_stride(p.vectors * Config::V);
  const int taps = padded_taps<Config>(columns.taps);
  const uint32_t step = columns.d * p.in_pitch * size;
  const uint32_t base = (strip.image + channel) * size;
  for (int s = 0; s < taps; s += kTapChunk) {
    const int column = strip.in_column + s * columns.d;
    const uint32_t inside = columns_inside<Config>(columns, column);
    if (!inside) continue;
#pragma unroll 2
    for (int r = 0; r < count; ++r) {
      const int row = strip.in_row + (first + r) * rows.d;
      if (unsigned(row) >= unsigned(rows.in)) continue;
      float x[Config::Window][Config::V];
      load_window<Config>(p.in, base + uint32_t(row * p.in_width + column) * (p.in_pitch * size),
                          step, inside, x);
      add_taps<Config>(weights + (r * taps + s) * stride, stride, x, sum);
    }
  }
}

// Calls visit(i, j, there, offset) for the outputs (i, j) of the strip, with byte offsets in a tensor
// whose pixels lie `pitch` elements apart; those that are not `there` lie outside of it.
template <class Config, class Visit>
__device__ __forceinline__ void for_outputs(const ConvParams& p, const Axis& rows,
                                            const Axis& columns, const Strip& strip, int pitch,
                                            int channel, Visit visit) {
#pragma unroll
  for (int i = 0; i < Config::Rows; ++i) {
    const int row = strip.row + i * rows.spread;
    const uint32_t pixel = strip.out_image + uint32_t(rows.position(row)) * p.out_width;
#pragma unroll
    for (int j = 0; j < Config::Columns; ++j) {
      const int column = strip.column + j * columns.spread;
      visit(i, j, row < rows.count && column < columns.count,
            ((pixel + columns.position(column)) * pitch + channel) *
                uint32_t(sizeof(typename Config::T)));
    }
  }
}

template <class Config>
__device__ __forceinline__ void finish_strip(
    const ConvParams& p, const Axis& rows, const Axis& columns, const Strip& strip, int channel,
    float (&sum)[Config::Rows][Config::Columns][Config::V]) {
  using T = typename Config::T;
  constexpr int V = Config::V;
  if (p.residual) {
    for_outputs<Config>(p, rows, columns, strip, p.residual_pitch, channel,
                        [&](int i, int j, bool there, uint32_t offset) {
                          float other[V];
                          widen(load_if<T, V>(there, p.residual, offset), other);
#pragma unroll
                          for (int v = 0; v < V; ++v) sum[i][j][v] += other[v];
                        });
  }
  activate_forward<T, Config::Rows * Config::Columns * V>(&sum[0][0][0], p.activation, p.clip_min,
                                                          p.clip_max);
  for_outputs<Config>(p, rows, columns, strip, p.out_pitch, channel,
                      [&](int i, int j, bool there, uint32_t offset) {
                        store_if<T, V>(there, p.out, offset, narrowed<T, V>(sum[i][j]));
                      });
}

template <class Config>
__global__ void __launch_bounds__(kThreads, kBlocks)
    depthwise_conv(const __grid_constant__ ConvParams p) {
  using T = typename Config::T;
  constexpr int V = Config::V;
  extern __shared__ __align__(16) float weights[];
  const int phase = blockIdx.z / p.column_phases;
  const Axis& rows = p.rows[phase];
  const Axis& columns = p.columns[blockIdx.z - phase * p.column_phases];

  const int lane = p.by_vectors.divide(threadIdx.x);
  const int vector = threadIdx.x - lane * p.vectors;
  const int first_channel = blockIdx.y * p.vectors * V, channel = first_channel + vector * V;
  const bool active = lane < p.block_strips && channel < p.out_channels;
  const float* own_weights = weights + vector * V;
  const int in_channel = V == 1 ? p.by_multiplier.divide(channel) : channel;

  const int strips = rows.strips * columns.strips * p.images;
  const int whole = p.weight_rows >= rows.taps;  // all weights fit: they are read once
  launch_dependents();
  if (!p.constant_weights) wait_for_predecessors();
  if (whole) load_weights<Config>(p, rows, columns, first_channel, 0, rows.taps, weights);
  if (p.constant_weights) wait_for_predecessors();
  if (whole) __syncthreads();
  float bias[V] = {};
  if (p.bias) widen(load_if<T, V>(active, p.bias, channel * sizeof(T)), bias);

  for (int start = blockIdx.x * p.block_strips; start < strips;
       start += gridDim.x * p.block_strips) {
    const int index = start + lane;
    const bool mine = active && index < strips;
    const Strip strip = strip_at<Config>(p, rows, columns, index);

    float sum[Config::Rows][Config::Columns][V];
#pragma unroll
    for (int i = 0; i < Config::Rows; ++i)
#pragma unroll
      for (int j = 0; j < Config::Columns; ++j)
#pragma unroll
        for (int v = 0; v < V; ++v) sum[i][j][v] = bias[v];
    if constexpr (Config::Filter != 0) {
      if (mine) add_fixed<Config>(p, rows, columns, strip, in_channel, own_weights, sum);
    } else {
      for (int r = 0; r < rows.taps; r += p.weight_rows) {
        const int count = min(p.weight_rows, rows.taps - r);
        if (!whole) {
          __syncthreads();  // the rows before are not read any more
          load_weights<Config>(p, rows, columns, first_channel, r, count, weights);
          __syncthreads();
        }
        if (mine) {
          add_any<Config>(p, rows, columns, strip, in_channel, r, count, own_weights, sum[0]);
        }
      }
    }
    if (mine) finish_strip<Config>(p, rows, columns, strip, channel, sum);
  }
}

}  // namespace convoy::depthwise
