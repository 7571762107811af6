// Adds up what the blocks of a kernel have left in the workspace, in fp32 and in a fixed order, and
// rounds once.
#pragma once

#include "library.cuh"
#include "warpgroup.cuh"

namespace convoy::hopper {

constexpr int kSumPairs = 32;   // pairs of results of a block
constexpr int kSumShares = 16;  // threads that share a pair's partial sums

template <class T>
__global__ void __launch_bounds__(kSumPairs* kSumShares)
    block_sums(const float2* partials, uint32_t* out, int pairs, int blocks) {
  __shared__ float2 shared[kSumShares][kSumPairs];
  cudaGridDependencySynchronize();  // launched early: what it reads is there behind this
  int pair = blockIdx.x * kSumPairs + threadIdx.x;
  float2 sum = make_float2(0.0f, 0.0f);
  if (pair < pairs) {
#pragma unroll 4
    for (int block = threadIdx.y; block < blocks; block += kSumShares) {
      float2 next = partials[int64_t(block) * pairs + pair];
      sum.x += next.x;
      sum.y += next.y;
    }
  }
  shared[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y != 0 || pair >= pairs) return;
#pragma unroll
  for (int share = 1; share < kSumShares; ++share) {
    sum.x += shared[share][threadIdx.x].x;
    sum.y += shared[share][threadIdx.x].y;
  }
  out[pair] = pack<T>(sum.x, sum.y);
}

// `partials` (blocks, count), `out` (count), count even. May be launched while the kernel before it
// in the stream drains.
template <class T>
int32_t enqueue_block_sums(const float* partials, void* out, int64_t count, int blocks,
                           cudaStream_t stream) {
  cudaLaunchConfig_t config = {};
  int pairs = int(count / 2);
  config.gridDim = dim3((pairs + kSumPairs - 1) / kSumPairs);
  config.blockDim = dim3(kSumPairs, kSumShares);
  config.stream = stream;
  cudaLaunchAttribute early;
  early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  early.val.programmaticStreamSerializationAllowed = 1;
  config.attrs = &early;
  config.numAttrs = 1;
  return from_cuda(cudaLaunchKernelEx(&config, block_sums<T>,
                                      reinterpret_cast<const float2*>(partials),
                                      static_cast<uint32_t*>(out), pairs, blocks));
}

}  // namespace convoy::hopper
