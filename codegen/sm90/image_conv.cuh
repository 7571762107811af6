// The first convolution of a network on sm_90a, from the image as the network is given it to the
// maxima of its result.
//
// A tile of results needs a patch of the image. One warpgroup of a block reads it once, whatever the
// layout and type, while two others compute the tile before, and keeps it in shared memory as pixels
// of four 16-bit channels. The first operand of wgmma comes from there without an im2col matrix: a
// step of 16 k is four taps of the filter, a thread's word of 8 bytes is the pixel under one of them.
// The filter of all output channels stays in shared memory. Results go through shared memory too,
// where maxima are taken, so that nothing but the image is read and nothing but these is written.
#pragma once

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

// The largest of a window's rounded sums, 8 channels of each: `down` and `across` are the bytes to the
// sums of a row and a column of the window.
template <class T, class Down, class Across>
__device__ __forceinline__ uint4 largest(uint32_t from, int rows, int columns, const Down& down,
                                         const Across& across) {
  uint4 found = load_shared_u128(from + down(0) + across(0));
  if (rows == 3 && columns == 3) {
#pragma unroll
    for (int i = 1; i < 9; ++i) {
      found = larger_vector<T>(found, load_shared_u128(from + down(i / 3) + across(i % 3)));
    }
    return found;
  }
  for (int r = 0; r < rows; ++r) {
    for (int s = 0; s < columns; ++s) {
      found = larger_vector<T>(found, load_shared_u128(from + down(r) + across(s)));
    }
  }
  return found;
}

// All consumers: the maxima of a tile's results, 8 channels each, to memory.
template <class Config>
__device__ void store_maxima(const ImageConvParams& params, const ImageConvShared<Config>& shared,
                             const ImageConvTile& tile, int block) {
  using T = typename Config::Element;
  constexpr int kPitch = Config::kResultPitch;
  const ImageConvAxis &h = params.h, &w = params.w;
  const int vector = threadIdx.x % Config::kVectors;
  const int channel = block * Config::kColumns + vector * 8;
  if (channel >= params.k) return;
  const int p = tile.tile_h * h.tile, q = tile.tile_w * w.tile, pitch = params.k / 8;
  uint4* y = static_cast<uint4*>(params.y) + ((int64_t(tile.n) * h.size + p) * w.size + q) * pitch +
             channel / 8;
  const int rows = min(h.tile, h.size - p), columns = min(w.tile, w.size - q);
  const int lowest_h = image_conv_lowest(tile.h), highest_h = image_conv_highest(h, tile.h);
  const int lowest_w = image_conv_lowest(tile.w), highest_w = image_conv_highest(w, tile.w);
  const bool whole = has_all_sums(h, tile.h) && has_all_sums(w, tile.w);
  const bool pools = h.window * w.window > 1;
  for (int i = threadIdx.x / Config::kVectors; i < rows * w.tile;
       i += Config::kConsumers / Config::kVectors) {
    const int row = params.by_tile.divide(i), column = i - row * w.tile;
    if (column >= columns) continue;
    const int top = row * h.step, left = column * w.step;
    const uint32_t from = shared.results + vector * 16;
    uint4 result;
    if (!pools) {
      result = load_shared_u128(from + (top * w.sums + left) * kPitch);
    } else if (whole) {
      const uint32_t first = from + (top * w.sums + left) * kPitch;
      result = largest<T>(
          first, h.window, w.window, [&](int r) { return r * w.sums * kPitch; },
          [&](int s) { return s * kPitch; });
    } else {
      result = largest<T>(
          from, h.window, w.window,
          [&](int r) { return min(max(top + r, lowest_h), highest_h) * w.sums * kPitch; },
          [&](int s) { return min(max(left + s, lowest_w), highest_w) * kPitch; });
    }
    y[int64_t(row * w.size + column) * pitch] = result;
  }
}

// The consumers: one tile after the other.
template <class Config>
__device__ void compute_tiles(const ImageConvParams& params, const ImageConvShared<Config>& shared,
                              int warp) {
  if (!params.constant_weights) wait_for_predecessors();
  pack_filter(params, shared);
  if (params.constant_weights) wait_for_predecessors();
  unpack_bias(params, shared);
  uint32_t upper[Config::kSubtiles], lower[Config::kSubtiles];
#pragma unroll
  for (int i = 0; i < Config::kSubtiles; ++i) {
    const int m = (warp / 4 * Config::kSubtiles + i) * 64 + warp % 4 * 16 + threadIdx.x % 32 / 4;
    upper[i] = image_conv_row(params.h, params.w, m);
    lower[i] = image_conv_row(params.h, params.w, m + 8);
  }
  sync_threads(1, Config::kConsumers);
  Ring<Config::kPatches> ring(0);
  for (int number = blockIdx.x; number < params.tiles; number += gridDim.x, ring.advance()) {
    const uint32_t patch = shared.patch(ring.stage);
    const ImageConvTile tile(params, number);
    barrier_wait(shared.full(ring.stage), ring.parity);
    for (int block = 0; block * Config::kColumns < params.k; ++block) {
#pragma unroll 1
      for (int i = 0; i < Config::kSubtiles; ++i) {
        const int row = (warp / 4 * Config::kSubtiles + i) * 64, last = Config::kSubtiles - 1;
        if (row >= params.h.sums * params.w.sums) break;
        float d[Config::kColumns / 2];
        multiply_image(shared, patch + (i ? upper[last] : upper[0]),
                       patch + (i ? lower[last] : lower[0]), block, d);
        keep_sums(params, shared, row, d);
      }
      sync_threads(1, Config::kConsumers);
      if ((block + 1) * Config::kColumns >= params.k && threadIdx.x == 0) {
        barrier_arrive(shared.empty(ring.stage));
      }
      store_maxima(params, shared, tile, block);
      sync_threads(1, Config::kConsumers);
    }
  }
}

template <class Config>
__global__ void __launch_bounds__(Config::kThreads, Config::kBlocksPerProcessor)
    image_conv(const __grid_constant__ ImageConvParams params) {
  extern __shared__ uint8_t raw[];
  launch_dependents();
  const ImageConvShared<Config> shared(raw, params);
  if (threadIdx.x == 0) {
    for (int i = 0; i < Config::kPatches; ++i) {
      barrier_init(shared.full(i), kImageLoaders / 32);
      barrier_init(shared.empty(i), 1);
    }
  }
  __syncthreads();
  // Known to the compiler to be the same for all threads of a warp.
  const int warp = __shfl_sync(~0u, threadIdx.x / 32, 0);
  if (warp < Config::kConsumers / 32) {
    grow_registers<Config::kConsumerRegisters>();
    compute_tiles(params, shared, warp);
  } else {
    shrink_registers<Config::kLoaderRegisters>();
    load_patches(params, shared);
  }
}

}  // namespace convoy::sm90
