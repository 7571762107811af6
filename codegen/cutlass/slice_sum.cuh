// Adds up the slices of a wgrad whose reduction was split, in fp32 and in a fixed order, and rounds
// once. Outputs are small (a filter) and slices many (one for each SM), so that several
// threads share the slices of an output: reduce_slices of split_k.cuh gives each one thread.
#pragma once

#include <cutlass/numeric_conversion.h>

#include "abi.cuh"

namespace convoy {

template <class Element>
struct SliceSum {
  static constexpr int kVector = 4;    // consecutive outputs of a thread
  static constexpr int kColumns = 32;  // threads along the outputs of a block
  static constexpr int kGroups = 16;   // threads that share the slices of an output

  float const* partials;  // (slices, count)
  Element* out;           // (count), count a multiple of kVector
  int64_t count;
  int32_t slices;

  int32_t enqueue(cudaStream_t stream, bool overlap) const;
};

template <class Element>
__global__ void __launch_bounds__(SliceSum<Element>::kColumns* SliceSum<Element>::kGroups)
    sum_slices(SliceSum<Element> p) {
  using Sum = SliceSum<Element>;
  using Partial = cutlass::AlignedArray<float, Sum::kVector>;
  using Vector = cutlass::AlignedArray<Element, Sum::kVector>;
  __shared__ Partial shared[Sum::kGroups][Sum::kColumns];
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  cudaGridDependencySynchronize();  // launched early: the partial sums are complete after this
#endif
  int64_t index = (int64_t(blockIdx.x) * Sum::kColumns + threadIdx.x) * Sum::kVector;
  Partial sum;
#pragma unroll
  for (int i = 0; i < Sum::kVector; ++i) sum[i] = 0.f;
  if (index < p.count) {
#pragma unroll 8
    for (int slice = threadIdx.y; slice < p.slices; slice += Sum::kGroups) {
      Partial next = *reinterpret_cast<Partial const*>(p.partials + slice * p.count + index);
#pragma unroll
      for (int i = 0; i < Sum::kVector; ++i) sum[i] += next[i];
    }
  }
  shared[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y != 0 || index >= p.count) return;
#pragma unroll
  for (int group = 1; group < Sum::kGroups; ++group) {
#pragma unroll
    for (int i = 0; i < Sum::kVector; ++i) sum[i] += shared[group][threadIdx.x][i];
  }
  cutlass::NumericArrayConverter<Element, float, Sum::kVector> narrow;
  static_cast<cutlass::Array<Element, Sum::kVector>&>(*reinterpret_cast<Vector*>(p.out + index)) =
      narrow(sum);
}

// With `overlap` it may start while the kernel before it drains (sm90) and waits on the device.
template <class Element>
int32_t SliceSum<Element>::enqueue(cudaStream_t stream, bool overlap) const {
  constexpr int kPerBlock = kVector * kColumns;
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(unsigned((count + kPerBlock - 1) / kPerBlock));
  config.blockDim = dim3(kColumns, kGroups);
  config.stream = stream;
  cudaLaunchAttribute early;
  early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  early.val.programmaticStreamSerializationAllowed = 1;
  config.attrs = &early;
  config.numAttrs = overlap ? 1 : 0;
  return from_cuda(cudaLaunchKernelEx(&config, sum_slices<Element>, *this));
}

// Elements of the filter, and bytes of `slices` partial ones.
inline int64_t filter_size(ConvoyShape const& s) { return int64_t(s.k) * s.r * s.s * s.c; }

inline int64_t slices_bytes(ConvoyShape const& s) {
  return s.split_k * filter_size(s) * int64_t(sizeof(float));
}

template <class Element>
SliceSum<Element> make_slice_sum(ConvoyShape const& s, ConvoyOperands const& o) {
  return {static_cast<float const*>(o.workspace), static_cast<Element*>(o.d), filter_size(s),
          s.split_k};
}

}  // namespace convoy
