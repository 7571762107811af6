// What a launch of image_conv.cuh is given, and what lies where in the shared memory of a block.
#pragma once

#include "image_conv_layout.cuh"
#include "ptx.cuh"

namespace convoy::sm90 {

struct ImageConvParams {
  const void *x, *filter, *bias;  // bias may be null
  void* y;
  ImageConvAxis h, w;
  Divider by_groups;           // of taps
  Divider by_pixels;           // pixels of a row of a tile
  Divider by_tile;             // results of a row of a tile
  Divider by_tiles, by_image;  // tiles of a row, of an image
  int64_t image;               // elements from one to the next in x
  int channel, row, pixel;     // the same
  int channels, k, taps, groups, tiles;
  int activation;
  float clip_min, clip_max;
  int constant_weights;
};

// Two warpgroups compute kSubtiles times 64 rows each, kColumns channels at a time; a third one loads.
template <class T, class Source_, int kSubtiles_, int kColumns_>
struct ImageConvConfig {
  using Element = T;
  using Source = Source_;
  static constexpr int kConsumers = 256, kThreads = kConsumers + kImageLoaders;
  static constexpr bool kFewColumns = kColumns_ <= 32;
  static constexpr int kBlocksPerProcessor = kFewColumns ? 3 : 2;
  static constexpr int kConsumerRegisters = kFewColumns ? 64 : 88;
  static constexpr int kLoaderRegisters = kFewColumns ? 40 : 64;
  static constexpr int kPixelsAtOnce = kFewColumns ? 5 : 9;  // of a loader, on their way
  static constexpr int kPatches = 2;
  static constexpr int kSubtiles = kSubtiles_, kRows = kConsumers / 2 * kSubtiles;
  static constexpr int kColumns = kColumns_, kVectors = kColumns / 8;
  static constexpr int kResultPitch = 2 * kColumns + 16;  // rows of 16 bytes in different banks
  static constexpr int kResultBytes = kRows * kResultPitch;
  static constexpr int kBarrierBytes = 16 * kPatches;

  static CONVOY_HD constexpr int padded(int k) { return (k + kColumns - 1) / kColumns * kColumns; }
  static CONVOY_HD constexpr int filter_bytes(int k, int groups) {
    return padded(k) * groups * 128;
  }
  // Beside the pixels of kPatches tiles.
  static constexpr int shared_bytes(int k, int groups) {
    return 1024 + filter_bytes(k, groups) + kResultBytes + 4 * padded(k) +
           kImageGroupBytes * groups + 16 + kBarrierBytes;
  }
};

// In this order, from a 1024-byte aligned base, and behind them the pixels of kPatches tiles.
template <class Config>
struct ImageConvShared {
  uint32_t filter;   // (columns, groups), each kColumns rows of 64 k
  uint32_t results;  // sums, rounded
  uint32_t bias;     // floats
  uint32_t taps;     // where the pixel under each tap is
  uint32_t zeros;    // a pixel
  uint32_t barriers, patches;
  int groups;  // of taps
  int patch_bytes;
  __device__ ImageConvShared(const void* raw, const ImageConvParams& params)
      : filter((shared_address(raw) + 1023) & ~1023u),
        results(filter + Config::filter_bytes(params.k, params.groups)),
        bias(results + Config::kResultBytes),
        taps(bias + 4 * Config::padded(params.k)),
        zeros(taps + kImageGroupBytes * params.groups),
        barriers(zeros + 16),
        patches(barriers + Config::kBarrierBytes),
        groups(params.groups),
        patch_bytes(kImagePixelBytes * params.h.pixels * params.w.pixels) {}
  __device__ uint32_t columns(int block, int group) const {
    return filter + (block * groups + group) * Config::kColumns * 128;
  }
  __device__ uint32_t patch(int i) const { return patches + i * patch_bytes; }
  __device__ uint32_t full(int i) const { return barriers + 16 * i; }
  __device__ uint32_t empty(int i) const { return barriers + 16 * i + 8; }
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
