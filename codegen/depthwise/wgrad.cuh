// Depthwise wgrad: dw[k][r][s] = sum over n, p, q of dy[n][p][q][k] * x[n][..][..][k].
//
// A thread keeps the sums of `vector` channels and a few filter positions (all of 3x3, 5x5 and 7x7)
// in registers and adds strips of outputs to them, with the window of x as in conv.cuh. A block
// adds up its threads and writes partial sums, one slice for each block; a second kernel adds the
// slices. Every sum has a fixed order: results do not change from run to run.
#pragma once

#include "conv.cuh"

namespace convoy::depthwise {

struct WgradParams {
  ConvParams conv;  // in = x, filter = dy, out = dw
  float* slices;    // (slice, r, s, k)
  int slice_count, tap_columns;
};

// A thread has as many filter rows as taps of a row.
template <class Config>
__device__ __forceinline__ void add_strip(const ConvParams& p, const Strip& strip, int channel,
                                          int in_channel, int first_tap_row,
                                          float (&sum)[Config::Taps][Config::Taps][Config::V]) {
  using T = typename Config::T;
  constexpr int V = Config::V;
  constexpr uint32_t size = sizeof(T);
  const Axis &rows = p.rows[0], &columns = p.columns[0];
  float dy[Config::Columns][V];
#pragma unroll
  for (int i = 0; i < Config::Columns; ++i) {
    const int column = strip.column + i * columns.spread;
    const uint32_t pixel = strip.out_image + uint32_t(strip.row) * p.out_width + column;
    const bool there = strip.row < rows.count && column < columns.count;
    widen(load_if<T, V>(there, p.filter, (pixel * p.out_channels + channel) * size), dy[i]);
  }
  const uint32_t inside = columns_inside<Config>(columns, strip.in_column);
  const uint32_t step = columns.d * p.in_pitch * size;
#pragma unroll
  for (int r = 0; r < Config::Taps; ++r) {
    if (!Config::Filter && first_tap_row + r >= rows.taps) break;
    const int row = strip.in_row + r * rows.d;
    const bool there = unsigned(row) < unsigned(rows.in);
    const uint32_t first = uint32_t(row * p.in_width + strip.in_column) * p.in_pitch;
    float x[Config::Window][V];
    load_window<Config>(p.in, (strip.image + first + in_channel) * size, step, there ? inside : 0,
                        x);
#pragma unroll
    for (int s = 0; s < Config::Taps; ++s)
#pragma unroll
      for (int i = 0; i < Config::Columns; ++i)
#pragma unroll
        for (int v = 0; v < V; ++v) sum[r][s][v] += dy[i][v] * x[i * Config::Stride + s][v];
  }
}

template <class Config>
__global__ void __launch_bounds__(kThreads)
    depthwise_wgrad(const __grid_constant__ WgradParams params) {
  constexpr int V = Config::V, Taps = Config::Taps;
  extern __shared__ __align__(16) float weights[];  // (lane, tap, channel) of one filter row
  const ConvParams& p = params.conv;
  const Axis &rows = p.rows[0], &columns = p.columns[0];
  const int tap_row = int(blockIdx.z) / params.tap_columns * Taps;
  const int tap_column = int(blockIdx.z) % params.tap_columns * Taps;
  const int lane = p.by_vectors.divide(threadIdx.x);
  const int vector = threadIdx.x - lane * p.vectors;
  const int channels = p.vectors * V, first_channel = blockIdx.y * channels;
  const int channel = first_channel + vector * V;
  const int in_channel = V == 1 ? p.by_multiplier.divide(channel) : channel;
  const bool active = lane < p.block_strips && channel < p.out_channels;

  float sum[Taps][Taps][V] = {};
  const int strips = rows.strips * columns.strips * p.images;
  for (int index = blockIdx.x * p.block_strips + lane; active && index < strips;
       index += gridDim.x * p.block_strips) {
    Strip strip = strip_at<Config>(p, rows, columns, index);
    strip.in_row += tap_row * rows.d;
    strip.in_column += tap_column * columns.d;
    add_strip<Config>(p, strip, channel, in_channel, tap_row, sum);
  }

  float* slice = params.slices + size_t(blockIdx.x) * rows.taps * columns.taps * p.out_channels;
#pragma unroll
  for (int r = 0; r < Taps; ++r) {
    if (tap_row + r >= rows.taps) break;
    if (lane < p.block_strips) {
#pragma unroll
      for (int s = 0; s < Taps; ++s)
#pragma unroll
        for (int v = 0; v < V; ++v)
          weights[(lane * Taps + s) * channels + vector * V + v] = sum[r][s][v];
    }
    __syncthreads();
    for (int i = threadIdx.x; i < Taps * channels; i += kThreads) {
      const int s = i / channels, c = i - s * channels;
      if (tap_column + s >= columns.taps || first_channel + c >= p.out_channels) continue;
      float total = 0.0f;
      for (int from = 0; from < p.block_strips; ++from) {
        total += weights[from * Taps * channels + i];
      }
      const int tap = (tap_row + r) * columns.taps + tap_column + s;
      slice[size_t(tap) * p.out_channels + first_channel + c] = total;
    }
    __syncthreads();
  }
}

// Channels and slices that a block of sum_slices has threads for.
constexpr int kSumChannels = 8, kSumLanes = 32;

// dw from the slices; blockIdx.y is the filter position.
template <class T>
__global__ void __launch_bounds__(kSumChannels* kSumLanes)
    sum_slices(const float* slices, void* dw, int slice_count, int channels, int taps) {
  extern __shared__ __align__(16) float weights[];  // (lane, channel)
  const int lane = threadIdx.x / kSumChannels, column = threadIdx.x % kSumChannels;
  const int channel = blockIdx.x * kSumChannels + column, tap = blockIdx.y;
  float sum = 0.0f;
  if (channel < channels) {
    const float* from = slices + size_t(tap) * channels + channel;
#pragma unroll 4
    for (int i = lane; i < slice_count; i += kSumLanes) {
      sum += from[size_t(i) * taps * channels];
    }
  }
  weights[threadIdx.x] = sum;
  __syncthreads();
  if (lane == 0 && channel < channels) {
    for (int i = 1; i < kSumLanes; ++i) sum += weights[i * kSumChannels + column];
    narrow(sum, static_cast<T*>(dw) + size_t(channel) * taps + tap);
  }
}

}  // namespace convoy::depthwise
