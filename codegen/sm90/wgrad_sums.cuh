// Adds up the sums that the warpgroups of stem_wgrad have left in the workspace, in fp32 and in a
// fixed order, rounds once and writes dw.
#pragma once

#include "library.cuh"

namespace convoy::sm90 {

constexpr int kSumColumns = 64;  // output channels of a block, a pair to a thread
constexpr int kSumShares = 32;   // threads that share the slices of a pair

struct WgradSums {
  const float2* partials;  // (slices, blocks of 64 channels, weights, 64)
  void* dw;                // (k, weights)
  int slices, k, weights;
};

// A block has one weight (blockIdx.x) of 64 channels (blockIdx.y).
template <class T>
__global__ void __launch_bounds__(kSumColumns / 2 * kSumShares) wgrad_sums(WgradSums params) {
  __shared__ float2 shared[kSumShares][kSumColumns / 2];
  cudaGridDependencySynchronize();  // launched early: what it reads is there behind this
  const int64_t slice_pairs = int64_t(gridDim.y) * params.weights * (kSumColumns / 2);
  const float2* from = params.partials +
                       (int64_t(blockIdx.y) * params.weights + blockIdx.x) * (kSumColumns / 2) +
                       threadIdx.x;
  float2 sum = make_float2(0.0f, 0.0f);
#pragma unroll 8
  for (int slice = threadIdx.y; slice < params.slices; slice += kSumShares) {
    float2 next = from[slice * slice_pairs];
    sum.x += next.x;
    sum.y += next.y;
  }
  shared[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  int column = blockIdx.y * kSumColumns + 2 * threadIdx.x;
  if (threadIdx.y != 0 || column >= params.k) return;
#pragma unroll
  for (int share = 1; share < kSumShares; ++share) {
    sum.x += shared[share][threadIdx.x].x;
    sum.y += shared[share][threadIdx.x].y;
  }
  T* to = static_cast<T*>(params.dw) + int64_t(column) * params.weights + blockIdx.x;
  to[0] = T(sum.x);
  to[params.weights] = T(sum.y);
}

// May be launched while the kernel before it in the stream drains.
template <class T>
int32_t enqueue_wgrad_sums(const WgradSums& params, cudaStream_t stream) {
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(params.weights, (params.k + kSumColumns - 1) / kSumColumns);
  config.blockDim = dim3(kSumColumns / 2, kSumShares);
  config.stream = stream;
  cudaLaunchAttribute early;
  early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  early.val.programmaticStreamSerializationAllowed = 1;
  config.attrs = &early;
  config.numAttrs = 1;
  return from_cuda(cudaLaunchKernelEx(&config, wgrad_sums<T>, params));
}

}  // namespace convoy::sm90
