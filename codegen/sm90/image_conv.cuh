// The first convolution of a network on sm_90a, from the image as the network is given it to the
// maxima of its result.
//
// A tile of results needs a patch of the image. A block reads it once, whatever the layout and type,
// and keeps it in shared memory as pixels of four 16-bit channels. The first operand of wgmma comes
// from there without an im2col matrix: a step of 16 k is four taps of the filter, a thread's word of
// 8 bytes is the pixel under one of them. The filter of all output channels stays in shared memory
// while the block takes tile after tile. Results go through shared memory too, where maxima are
// taken, so that nothing but the image is read and nothing but these is written.
#pragma once

#include "convoy/grid_control.cuh"
#include "image_conv_load.cuh"
#include "image_conv_sums.cuh"

namespace convoy::sm90 {

template <class T>
__device__ __forceinline__ uint32_t larger_pair(uint32_t a, uint32_t b);
template <>
__device__ __forceinline__ uint32_t larger_pair<__half>(uint32_t a, uint32_t b) {
  __half2 v = __hmax2_nan(*reinterpret_cast<__half2*>(&a), *reinterpret_cast<__half2*>(&b));
  return *reinterpret_cast<uint32_t*>(&v);
}
template <>
__device__ __forceinline__ uint32_t larger_pair<__nv_bfloat16>(uint32_t a, uint32_t b) {
  __nv_bfloat162 v =
      __hmax2_nan(*reinterpret_cast<__nv_bfloat162*>(&a), *reinterpret_cast<__nv_bfloat162*>(&b));
  return *reinterpret_cast<uint32_t*>(&v);
}
template <class T>
__device__ __forceinline__ uint4 larger_vector(uint4 a, uint4 b) {
  return make_uint4(larger_pair<T>(a.x, b.x), larger_pair<T>(a.y, b.y), larger_pair<T>(a.z, b.z),
                    larger_pair<T>(a.w, b.w));
}

// All threads: the maxima of a tile's results, 8 channels each, to memory.
template <class Config>
__device__ void store_maxima(const ImageConvParams& params, const ImageConvShared<Config>& shared,
                             int number, int block) {
  using T = typename Config::Element;
  const ImageConvAxis &h = params.h, &w = params.w;
  const ImageConvTile tile(params, number);
  const int vector = threadIdx.x % Config::kVectors;
  const int channel = block * Config::kColumns + vector * 8;
  if (channel >= params.k) return;
  const int p = tile.tile_h * h.tile, q = tile.tile_w * w.tile, pitch = params.k / 8;
  uint4* y = static_cast<uint4*>(params.y) + ((int64_t(tile.n) * h.size + p) * w.size + q) * pitch +
             channel / 8;
  const int rows = min(h.tile, h.size - p), columns = min(w.tile, w.size - q);
  const int lowest_h = image_conv_lowest(tile.h), highest_h = image_conv_highest(h, tile.h);
  const int lowest_w = image_conv_lowest(tile.w), highest_w = image_conv_highest(w, tile.w);
  const uint32_t from = shared.results + vector * 16;
  const bool pools = h.window * w.window > 1, is_3x3 = h.window == 3 && w.window == 3;
  for (int i = threadIdx.x / Config::kVectors; i < rows * w.tile;
       i += Config::kThreads / Config::kVectors) {
    const int row = params.by_tile.divide(i), column = i - row * w.tile;
    if (column >= columns) continue;
    const auto sum_row = [&](int r) {
      return min(max(row * h.step + r, lowest_h), highest_h) * w.sums * Config::kResultPitch;
    };
    const auto sum_column = [&](int s) {
      return min(max(column * w.step + s, lowest_w), highest_w) * Config::kResultPitch;
    };
    uint4 largest;
    if (is_3x3) {
      const int down[] = {sum_row(0), sum_row(1), sum_row(2)};
      const int across[] = {sum_column(0), sum_column(1), sum_column(2)};
      largest = load_shared_u128(from + down[0] + across[0]);
#pragma unroll
      for (int j = 1; j < 9; ++j) {
        largest = larger_vector<T>(largest, load_shared_u128(from + down[j / 3] + across[j % 3]));
      }
    } else if (pools) {
      largest = load_shared_u128(from + sum_row(0) + sum_column(0));
      for (int r = 0; r < h.window; ++r) {
        for (int s = 0; s < w.window; ++s) {
          const uint4 sum = load_shared_u128(from + sum_row(r) + sum_column(s));
          largest = larger_vector<T>(largest, sum);
        }
      }
    } else {
      largest =
          load_shared_u128(from + (row * h.step * w.sums + column * w.step) * Config::kResultPitch);
    }
    y[int64_t(row * w.size + column) * pitch] = largest;
  }
}

template <class Config>
__global__ void __launch_bounds__(Config::kThreads, Config::kBlocksPerProcessor)
    image_conv(const __grid_constant__ ImageConvParams params) {
  extern __shared__ uint8_t raw[];
  launch_dependents();
  const ImageConvShared<Config> shared(raw, params);
  if (!params.constant_weights) wait_for_predecessors();
  pack_filter(params, shared);
  if (params.constant_weights) wait_for_predecessors();
  unpack_bias(params, shared);
  // Known to the compiler to be the same for all threads of a warp.
  const int warp = __shfl_sync(~0u, threadIdx.x / 32, 0), group = warp / 4;
  uint32_t upper[Config::kSubtiles], lower[Config::kSubtiles];
#pragma unroll
  for (int i = 0; i < Config::kSubtiles; ++i) {
    const int m = (group * Config::kSubtiles + i) * 64 + warp % 4 * 16 + threadIdx.x % 32 / 4;
    upper[i] = shared.patch + image_conv_row(params.h, params.w, m);
    lower[i] = shared.patch + image_conv_row(params.h, params.w, m + 8);
  }
  for (int number = blockIdx.x; number < params.tiles; number += gridDim.x) {
    load_patch(params, shared, number, warp);
    for (int block = 0; block * Config::kColumns < params.k; ++block) {
      __syncthreads();
#pragma unroll 1
      for (int i = 0; i < Config::kSubtiles; ++i) {
        const int row = (group * Config::kSubtiles + i) * 64, last = Config::kSubtiles - 1;
        if (row >= params.h.sums * params.w.sums) break;
        float d[Config::kColumns / 2];
        multiply_image(params, shared, i ? upper[last] : upper[0], i ? lower[last] : lower[0],
                       block, d);
        keep_sums(params, shared, row, d);
      }
      __syncthreads();
      store_maxima(params, shared, number, block);
    }
    __syncthreads();  // the patch is free
  }
}

}  // namespace convoy::sm90
