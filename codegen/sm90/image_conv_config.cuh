// What a launch of image_conv.cuh is given, and what lies where in the shared memory of a block.
#pragma once

#include "image_conv_layout.cuh"
#include "ptx.cuh"

namespace convoy::sm90 {

struct ImageConvParams {
  const void *x, *filter, *bias;  // bias may be null
  void* y;
  ImageConvAxis h, w;
  Divider by_steps;
  Divider by_tile;             // results of a row of a tile
  Divider by_tiles, by_image;  // tiles of a row, of an image
  int64_t image;               // elements from one to the next in x
  int channel, row, pixel;     // the same
  int channels, k, taps, steps, tiles;
  int activation;
  float clip_min, clip_max;
  int constant_weights;
};

// A warpgroup computes kSubtiles times 64 rows, kColumns channels at a time.
template <class T, class Source_, int kSubtiles_, int kColumns_>
struct ImageConvConfig {
  using Element = T;
  using Source = Source_;
  static constexpr int kThreads = 256, kWarps = kThreads / 32;
  static constexpr int kBlocksPerProcessor = kColumns_ > 32 || kSubtiles_ == 1 ? 3 : 4;
  static constexpr int kSubtiles = kSubtiles_, kRows = kThreads / 2 * kSubtiles;
  static constexpr int kColumns = kColumns_, kVectors = kColumns / 8;
  static constexpr int kResultPitch = 2 * kColumns + 16;  // rows of 16 bytes in different banks
  static constexpr int kResultBytes = kRows * kResultPitch;

  // In this order, from a 1024-byte aligned base.
  static CONVOY_HD constexpr int filter_bytes(int k, int steps) {
    return (k + kColumns - 1) / kColumns * ((steps + 3) / 4) * kColumns * 128;
  }
  static CONVOY_HD constexpr int bias_bytes(int k) {
    return (k + kColumns - 1) / kColumns * kColumns * 4;
  }
  static constexpr int shared_bytes(int k, int steps, int pixels) {
    return 1024 + filter_bytes(k, steps) + kResultBytes + bias_bytes(k) +
           4 * kImageStepTaps * steps + kImagePixelBytes * pixels;
  }
};

template <class Config>
struct ImageConvShared {
  uint32_t filter, results, bias, offsets, patch;
  int groups;  // of 64 k
  __device__ ImageConvShared(const void* raw, const ImageConvParams& params)
      : filter((shared_address(raw) + 1023) & ~1023u),
        results(filter + Config::filter_bytes(params.k, params.steps)),
        bias(results + Config::kResultBytes),
        offsets(bias + Config::bias_bytes(params.k)),
        patch(offsets + 4 * kImageStepTaps * params.steps),
        groups((params.steps + 3) / 4) {}
  __device__ uint32_t columns(int block, int group) const {
    return filter + (block * groups + group) * Config::kColumns * 128;
  }
};

__device__ __forceinline__ void store_shared(uint32_t address, uint2 v) {
  asm volatile("st.shared.v2.u32 [%0], {%1, %2};" ::"r"(address), "r"(v.x), "r"(v.y) : "memory");
}
__device__ __forceinline__ void store_shared(uint32_t address, uint32_t v) {
  asm volatile("st.shared.u32 [%0], %1;" ::"r"(address), "r"(v) : "memory");
}
__device__ __forceinline__ uint2 load_shared_u64(uint32_t address) {
  uint2 v;
  asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];" : "=r"(v.x), "=r"(v.y) : "r"(address) : "memory");
  return v;
}
__device__ __forceinline__ float2 load_shared_float2(uint32_t address) {
  float2 v;
  asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(v.x), "=f"(v.y) : "r"(address) : "memory");
  return v;
}
__device__ __forceinline__ uint4 load_shared_u128(uint32_t address) {
  uint4 v;
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "r"(address)
               : "memory");
  return v;
}

// The place of a tile: its image, and its first sum in both directions.
struct ImageConvTile {
  int n, tile_h, tile_w, h, w;
  __device__ ImageConvTile(const ImageConvParams& params, int number) {
    n = params.by_image.divide(number);
    const int rest = number - n * params.h.tiles * params.w.tiles;
    tile_h = params.by_tiles.divide(rest);
    tile_w = rest - tile_h * params.w.tiles;
    h = image_conv_first_sum(params.h, tile_h);
    w = image_conv_first_sum(params.w, tile_w);
  }
};

}  // namespace convoy::sm90
