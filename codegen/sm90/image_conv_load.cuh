// How image_conv.cuh fills shared memory: the filter once, the pixels of a tile, the bias.
#pragma once

#include "image_conv_config.cuh"

namespace convoy::sm90 {

// All threads: the filter (k, taps, 4) as rows of 64 k for each output channel, and the bytes to the
// pixel of each tap. The lower 8 k of a step are the first two channels of its taps, the upper ones
// the others, as a thread has them in its registers. Zeros behind the last tap and channel.
template <class Config>
__device__ void pack_filter(const ImageConvParams& params, const ImageConvShared<Config>& shared) {
  constexpr int kAtOnce = 4;
  const int padded = (params.k + Config::kColumns - 1) / Config::kColumns * Config::kColumns;
  const int total = padded * params.steps;
  const uint2* filter = static_cast<const uint2*>(params.filter);
  for (int begin = threadIdx.x; begin < total; begin += kAtOnce * Config::kThreads) {
    uint2 taps[kAtOnce][kImageStepTaps];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const int item = begin + i * Config::kThreads, k = params.by_steps.divide(item);
      const int tap = (item - k * params.steps) * kImageStepTaps;
#pragma unroll
      for (int t = 0; t < kImageStepTaps; ++t) {
        const bool there = k < params.k && tap + t < params.taps;
        taps[i][t] = there ? filter[int64_t(k) * params.taps + tap + t] : make_uint2(0, 0);
      }
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const int item = begin + i * Config::kThreads, k = params.by_steps.divide(item);
      if (item >= total) break;
      const int step = item - k * params.steps, column = k % Config::kColumns;
      const uint32_t rows = shared.columns(k / Config::kColumns, step / 4);
      const uint2(&v)[kImageStepTaps] = taps[i];
      store_shared(rows + swizzled(column, step % 4 * 2),
                   make_uint4(v[0].x, v[1].x, v[2].x, v[3].x));
      store_shared(rows + swizzled(column, step % 4 * 2 + 1),
                   make_uint4(v[0].y, v[1].y, v[2].y, v[3].y));
    }
  }
  for (int i = threadIdx.x; i < params.steps * kImageStepTaps; i += Config::kThreads) {
    store_shared(shared.offsets + 4 * i, uint32_t(image_conv_tap(params.h, params.w, i)));
  }
  fence_shared_for_async();
}

__device__ __forceinline__ float as_float(float value) { return value; }
__device__ __forceinline__ float as_float(__half value) { return __half2float(value); }
__device__ __forceinline__ float as_float(__nv_bfloat16 value) { return __bfloat162float(value); }

// All threads: the bias as floats, zeros where there is none.
template <class Config>
__device__ void unpack_bias(const ImageConvParams& params, const ImageConvShared<Config>& shared) {
  using T = typename Config::Element;
  const T* bias = static_cast<const T*>(params.bias);
  for (int k = threadIdx.x; k < Config::bias_bytes(params.k) / 4; k += Config::kThreads) {
    const float value = bias && k < params.k ? as_float(bias[k]) : 0.0f;
    store_shared(shared.bias + 4 * k, __float_as_uint(value));
  }
}

// A warp: every eighth row of the pixels that a tile reads, zeros outside the image. With kInside none
// of them is.
template <int kChannels, bool kInside, class Config>
__device__ void load_rows(const ImageConvParams& params, const ImageConvShared<Config>& shared,
                          const ImageConvTile& tile, int warp) {
  using T = typename Config::Element;
  using Source = typename Config::Source;
  constexpr int kAtOnce = kImageRowsAtOnce;
  const int first_h = image_conv_first_pixel(params.h, tile.h);
  const int first_w = image_conv_first_pixel(params.w, tile.w);
  const Source* x = static_cast<const Source*>(params.x) + tile.n * params.image;
  for (int column = threadIdx.x % 32; column < params.w.pixels; column += 32) {
    const int w = first_w + column;
    const int rows = unsigned(w) < unsigned(params.w.inputs) ? params.h.inputs : 0;
    uint32_t to = shared.patch + kImagePixelBytes * (warp * params.w.pixels + column);
    for (int row = warp; row < params.h.pixels; row += kAtOnce * Config::kWarps) {
      const int left = params.h.pixels - row;  // rows below, and this one
      Source values[kAtOnce][4] = {};
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        const int h = first_h + row + i * Config::kWarps;
        const Source* pixel = x + (h * params.row + w * params.pixel);
        if (i * Config::kWarps < left && (kInside || unsigned(h) < unsigned(rows))) {
#pragma unroll
          for (int c = 0; c < kChannels; ++c) values[i][c] = pixel[c * params.channel];
        }
      }
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        const Source(&v)[4] = values[i];
        if (i * Config::kWarps < left) {
          store_shared(to, make_uint2(pack<T>(as_float(v[0]), as_float(v[1])),
                                      pack<T>(as_float(v[2]), as_float(v[3]))));
        }
        to += kImagePixelBytes * Config::kWarps * params.w.pixels;
      }
    }
  }
}

template <class Config>
__device__ void load_patch(const ImageConvParams& params, const ImageConvShared<Config>& shared,
                           int number, int warp) {
  const ImageConvTile tile(params, number);
  if (params.channels != 3) {
    if (params.channels == 1) return load_rows<1, false>(params, shared, tile, warp);
    if (params.channels == 2) return load_rows<2, false>(params, shared, tile, warp);
    return load_rows<4, false>(params, shared, tile, warp);
  }
  if (is_inside(params.h, tile.h) && is_inside(params.w, tile.w)) {
    return load_rows<3, true>(params, shared, tile, warp);
  }
  load_rows<3, false>(params, shared, tile, warp);
}

}  // namespace convoy::sm90
