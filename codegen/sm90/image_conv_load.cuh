// How image_conv.cuh fills shared memory: the filter and the bias once, the pixels of each tile.
#pragma once

#include "convoy/grid_control.cuh"
#include "image_conv_config.cuh"

namespace convoy::sm90 {

// All consumers: the filter (k, taps, 4) as rows of 64 k for each output channel, and where the pixel
// of each tap is. The lower 8 k of a step are the first two channels of its taps, the upper ones the
// others, as a thread has them in its registers. Zeros behind the last tap and channel.
template <class Config>
__device__ void pack_filter(const ImageConvParams& params, const ImageConvShared<Config>& shared) {
  constexpr int kAtOnce = 3, kStepTaps = 4;
  const int total = Config::padded(params.k) * shared.groups * 4;
  const uint2* filter = static_cast<const uint2*>(params.filter);
  for (int begin = threadIdx.x; begin < total; begin += kAtOnce * Config::kConsumers) {
    uint2 taps[kAtOnce][kStepTaps];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const int item = begin + i * Config::kConsumers, k = params.by_groups.divide(item / 4);
      const int tap = (item - k * shared.groups * 4) * kStepTaps;
#pragma unroll
      for (int t = 0; t < kStepTaps; ++t) {
        const bool there = k < params.k && tap + t < params.taps;
        taps[i][t] = there ? filter[int64_t(k) * params.taps + tap + t] : make_uint2(0, 0);
      }
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const int item = begin + i * Config::kConsumers, k = params.by_groups.divide(item / 4);
      if (item >= total) break;
      const int group = item / 4 - k * shared.groups, column = k % Config::kColumns;
      const uint32_t rows = shared.columns(k / Config::kColumns, group);
      const uint2(&v)[kStepTaps] = taps[i];
      store_shared(rows + swizzled(column, item % 4 * 2),
                   make_uint4(v[0].x, v[1].x, v[2].x, v[3].x));
      store_shared(rows + swizzled(column, item % 4 * 2 + 1),
                   make_uint4(v[0].y, v[1].y, v[2].y, v[3].y));
    }
  }
  // A pixel is at the row's first one times the first number, plus the second one. Taps that only fill
  // up the last group have a pixel of zeros: zero times an infinite pixel is not zero.
  for (int i = threadIdx.x; i < shared.groups * kImageGroupTaps; i += Config::kConsumers) {
    const int tap = image_conv_tap_in(i);
    const bool there = tap < params.taps;
    store_shared(shared.taps + 8 * i,
                 there ? make_uint2(1, uint32_t(image_conv_tap(params.h, params.w, tap)))
                       : make_uint2(0, shared.zeros));
  }
  if (threadIdx.x == 0) store_shared(shared.zeros, make_uint2(0, 0));
  fence_shared_for_async();
}

__device__ __forceinline__ float as_float(float value) { return value; }
__device__ __forceinline__ float as_float(__half value) { return __half2float(value); }
__device__ __forceinline__ float as_float(__nv_bfloat16 value) { return __bfloat162float(value); }

// All consumers: the bias as floats, zeros where there is none.
template <class Config>
__device__ void unpack_bias(const ImageConvParams& params, const ImageConvShared<Config>& shared) {
  using T = typename Config::Element;
  const T* bias = static_cast<const T*>(params.bias);
  for (int k = threadIdx.x; k < Config::padded(params.k); k += Config::kConsumers) {
    const float value = bias && k < params.k ? as_float(bias[k]) : 0.0f;
    store_shared(shared.bias + 4 * k, __float_as_uint(value));
  }
}

// All loaders: the pixels that a tile reads, zeros outside the image. A thread has kAtOnce of them on
// their way.
template <int kChannels, class Config>
__device__ void load_pixels(const ImageConvParams& params, const ImageConvTile& tile,
                            uint32_t patch) {
  using T = typename Config::Element;
  using Source = typename Config::Source;
  constexpr int kAtOnce = Config::kPixelsAtOnce;
  const int first_h = image_conv_first_pixel(params.h, tile.h);
  const int first_w = image_conv_first_pixel(params.w, tile.w);
  const int pixels = params.h.pixels * params.w.pixels;
  const Source* planes[kChannels];  // not computed again for each pixel
#pragma unroll
  for (int c = 0; c < kChannels; ++c) {
    planes[c] = static_cast<const Source*>(params.x) + tile.n * params.image + c * params.channel;
    asm volatile("" : "+l"(planes[c]));
  }
  for (int begin = threadIdx.x - Config::kConsumers; begin < pixels;
       begin += kAtOnce * kImageLoaders) {
    Source values[kAtOnce][4] = {};
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const int pixel = begin + i * kImageLoaders, row = params.by_pixels.divide(pixel);
      const int h = first_h + row, w = first_w + pixel - row * params.w.pixels;
      if (pixel < pixels && unsigned(h) < unsigned(params.h.inputs) &&
          unsigned(w) < unsigned(params.w.inputs)) {
        const unsigned from = h * params.row + w * params.pixel;
#pragma unroll
        for (int c = 0; c < kChannels; ++c) values[i][c] = planes[c][from];
      }
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const int pixel = begin + i * kImageLoaders;
      const Source(&v)[4] = values[i];
      if (pixel < pixels) {
        store_shared(patch + kImagePixelBytes * pixel,
                     make_uint2(pack<T>(as_float(v[0]), as_float(v[1])),
                                pack<T>(as_float(v[2]), as_float(v[3]))));
      }
    }
  }
}

// The loaders: the pixels of one tile after the other.
template <class Config>
__device__ void load_patches(const ImageConvParams& params, const ImageConvShared<Config>& shared) {
  wait_for_predecessors();
  Ring<Config::kPatches> ring(1);
  for (int number = blockIdx.x; number < params.tiles; number += gridDim.x, ring.advance()) {
    barrier_wait(shared.empty(ring.stage), ring.parity);
    const ImageConvTile tile(params, number);
    const uint32_t patch = shared.patch(ring.stage);
    if (params.channels == 3) {
      load_pixels<3, Config>(params, tile, patch);
    } else if (params.channels == 1) {
      load_pixels<1, Config>(params, tile, patch);
    } else if (params.channels == 2) {
      load_pixels<2, Config>(params, tile, patch);
    } else {
      load_pixels<4, Config>(params, tile, patch);
    }
    __syncwarp();
    if (threadIdx.x % 32 == 0) barrier_arrive(shared.full(ring.stage));
  }
}

}  // namespace convoy::sm90
