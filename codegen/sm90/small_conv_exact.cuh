// The sums of small_conv.cuh for float32 operands as they are, in three products of tf32.
//
// Of a = a' + r and b = b' + q, a' and b' tf32, r b' + a' q + a' b' lacks r q, 2^-22 of the product.
// The tensor cores add up without rounding: the sums of a step start at zero, with the small
// products, and ordinary additions add the steps up.
#pragma once

#include "float32.cuh"
#include "small_conv_config.cuh"

namespace convoy::sm90 {

// A thread's elements of 64 x 32 floats for four mma, and their rests.
struct SplitFragments {
  uint32_t leading[4][4], rest[4][4];

  __device__ SplitFragments(uint32_t tile) {
    const int lane = threadIdx.x % 32, row = threadIdx.x % 128 / 32 * 16 + lane / 4;
#pragma unroll
    for (int i = 0; i < 16; ++i) {
      const uint32_t at = tile + swizzled(row + i % 2 * 8, i / 2) + lane % 4 * 4;
      const float x = __uint_as_float(load_shared_u32(at));
      leading[i / 4][i % 4] = leading_bits(x);
      rest[i / 4][i % 4] = rest_bits(x);
    }
  }
};

// A warpgroup: the sums of its 64 rows over the steps of this block.
template <class Config>
__device__ void multiply_exactly(const SmallConvShared<Config>& shared, int count,
                                 float (&sums)[Config::kColumns / 2]) {
  using Mma = MmaTf32Registers<Config::kColumns>;
  float d[Config::kColumns / 2];
#pragma unroll
  for (float& sum : sums) sum = 0.0f;
  int stage = 0;
  uint32_t parity = 0;
  for (int i = 0; i < count; ++i) {
    barrier_wait(shared.full(stage), parity);
    const SplitFragments a(shared.a(stage) + threadIdx.x / 128 * 8192);
    // No warp still multiplies by the rests of the step before last: all have met since.
    const uint32_t weights = shared.b(stage), rests = shared.rest(i % 2);
#pragma unroll
    for (int j = 0; j < Config::kRestBytes / (Config::kConsumers * 16); ++j) {
      const int at = (threadIdx.x + j * Config::kConsumers) * 16;
      const float4 v = load_shared_float4(weights + at);
      store_shared(rests + at,
                   make_uint4(rest_bits(v.x), rest_bits(v.y), rest_bits(v.z), rest_bits(v.w)));
    }
    fence_shared_for_async();
    sync_threads(1, Config::kConsumers);
    const uint64_t b = operand(weights, 16, 1024), q = operand(rests, 16, 1024);
    mma_fence();
#pragma unroll
    for (int k = 0; k < 4; ++k) Mma::mma(d, a.rest[k], b + 2 * k, k > 0);
#pragma unroll
    for (int k = 0; k < 4; ++k) Mma::mma(d, a.leading[k], q + 2 * k, 1);
#pragma unroll
    for (int k = 0; k < 4; ++k) Mma::mma(d, a.leading[k], b + 2 * k, 1);
    mma_commit();
    mma_wait<0>();
    pin(d);
    if (threadIdx.x % 128 == 0) barrier_arrive(shared.empty(stage));
#pragma unroll
    for (int j = 0; j < Config::kColumns / 2; ++j) sums[j] += d[j];
    if (++stage == shared.stages) stage = 0, parity ^= 1;
  }
}

}  // namespace convoy::sm90
