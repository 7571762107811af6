// Sizes of a block of pointwise_conv.cuh, and what lies where in its shared memory.
#pragma once

#include "small_conv.cuh"

namespace convoy::sm90 {

struct PointwiseParams : SmallConvParams {  // x: (c, pixels), w: (c, k)
  CUtensorMap residuals, stores;            // (k, pixels), boxes of 64 x 64
  int steps;                                // of 16 input channels
};

template <class T, int kColumns_, class Activation_>
struct PointwiseConfig {
  using Element = T;
  using Activation = Activation_;
  static constexpr int kColumns = kColumns_, kBlocks = kColumns / 64;  // output channels
  static constexpr int kRows = 64, kChunk = 64;                        // pixels, input channels
  static constexpr int kGroups = 2, kConsumers = 128 * kGroups, kThreads = kConsumers + 32;
  static constexpr int kBlocksOfSm = kColumns <= 128 ? 2 : 1;
  static constexpr int kPixelBytes = kRows * 128, kWeightBytes = kColumns * 128;  // of a chunk
  static constexpr int kStoreBytes = kBlocks * kRows * 128;

  static constexpr int64_t shared_bytes(int64_t chunks, int stages) {
    const int64_t pixels = stages * (chunks * kPixelBytes + 16);
    return 1024 + chunks * kWeightBytes + pixels + kGroups * (kStoreBytes + 8) + kColumns * 4 + 8;
  }
};

// Weights, pixels and what is stored, all in rows of 128 bytes; bias; barriers.
template <class Config>
struct PointwiseShared {
  uint32_t base;
  int chunks, stages;
  __device__ PointwiseShared(const void* raw, const PointwiseParams& params)
      : base((shared_address(raw) + 1023) & ~1023u),
        chunks(params.shape.chunks),
        stages(params.stages) {}
  __device__ uint32_t weights(int chunk) const { return base + chunk * Config::kWeightBytes; }
  __device__ uint32_t pixels(int stage, int chunk) const {
    return weights(chunks) + (stage * chunks + chunk) * Config::kPixelBytes;
  }
  __device__ uint32_t stored(int group, int block) const {
    return pixels(stages, 0) + group * Config::kStoreBytes + block * Config::kRows * 128;
  }
  __device__ uint32_t bias() const { return stored(Config::kGroups, 0); }
  __device__ uint32_t full(int stage) const { return bias() + Config::kColumns * 4 + 8 * stage; }
  __device__ uint32_t empty(int stage) const { return full(stages + stage); }
  __device__ uint32_t residual_full(int group) const { return full(2 * stages + group); }
  __device__ uint32_t weights_full() const { return residual_full(Config::kGroups); }
};

__device__ __forceinline__ float2 load_shared_float2(uint32_t address) {
  float2 v;
  asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(v.x), "=f"(v.y) : "r"(address) : "memory");
  return v;
}

__device__ __forceinline__ void store_shared(uint32_t address, float value) {
  asm volatile("st.shared.f32 [%0], %1;" ::"r"(address), "f"(value) : "memory");
}

}  // namespace convoy::sm90
