// Split-K with a fused epilogue: a main kernel writes fp32 partial sums, slice after slice, into
// the workspace; this kernel adds them up and applies the epilogue. Deterministic, and unlike a
// semaphore-ordered split it never rounds a partial sum to the output type.
#pragma once

#include <cutlass/numeric_conversion.h>

#include "abi.cuh"
#include "epilogue.cuh"

namespace convoy {

template <class Element>
struct ReduceParams {
  float const* partials;  // (slices, rows, columns)
  int64_t slice_stride;   // rows * columns
  int32_t slices;
  int32_t columns;
  Element const* residual;
  Element const* bias;
  Element const* scale;
  Element const* shift;
  Element* y;
  Element* y2;
  ClipBounds bounds;
};

// kVector consecutive columns a thread.
template <class Epilogue, int kVector>
__global__ void __launch_bounds__(256) reduce_slices(ReduceParams<typename Epilogue::Element> p) {
  using Element = typename Epilogue::Element;
  using Vector = cutlass::AlignedArray<Element, kVector>;
  using Partial = cutlass::AlignedArray<float, kVector>;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  cudaGridDependencySynchronize();  // launched early: the partial sums are complete after this
#endif
  int64_t index = (int64_t(blockIdx.x) * blockDim.x + threadIdx.x) * kVector;
  if (index >= p.slice_stride) return;
  int column = int(index % p.columns);

  Partial sum = *reinterpret_cast<Partial const*>(p.partials + index);
#pragma unroll 4
  for (int slice = 1; slice < p.slices; ++slice) {
    Partial next = *reinterpret_cast<Partial const*>(p.partials + slice * p.slice_stride + index);
#pragma unroll
    for (int i = 0; i < kVector; ++i) sum[i] += next[i];
  }

  cutlass::NumericArrayConverter<float, Element, kVector> widen;
  cutlass::NumericArrayConverter<Element, float, kVector> narrow;
  auto add = [&](Element const* source) {
    auto value = widen(*reinterpret_cast<Vector const*>(source));
#pragma unroll
    for (int i = 0; i < kVector; ++i) sum[i] += value[i];
  };
  if constexpr (Epilogue::kResidual) add(p.residual + index);
  if (p.bias) add(p.bias + column);
#pragma unroll
  for (int i = 0; i < kVector; ++i) sum[i] = activate<Epilogue::kActivation>(sum[i], p.bounds);
  auto store = [&](Element* result) {
    static_cast<cutlass::Array<Element, kVector>&>(*reinterpret_cast<Vector*>(result + index)) =
        narrow(sum);
  };
  if (!Epilogue::kAffineRelu || p.y) store(p.y);

  if constexpr (Epilogue::kAffineRelu) {
    auto scale = widen(*reinterpret_cast<Vector const*>(p.scale + column));
    auto shift = widen(*reinterpret_cast<Vector const*>(p.shift + column));
#pragma unroll
    for (int i = 0; i < kVector; ++i) sum[i] = affine_relu(sum[i], scale[i], shift[i]);
    store(p.y2);
  }
}

// Bytes of the partial sums of a forward output.
inline int64_t split_k_workspace(ConvoyShape const& s) {
  return int64_t(s.split_k) * output_rows(s) * s.k * int64_t(sizeof(float));
}

template <class Epilogue>
ReduceParams<typename Epilogue::Element> make_reduce_params(ConvoyShape const& s,
                                                            ConvoyOperands const& o) {
  using Element = typename Epilogue::Element;
  ReduceParams<Element> p;
  p.partials = static_cast<float const*>(o.workspace);
  p.slice_stride = output_rows(s) * s.k;
  p.slices = s.split_k;
  p.columns = s.k;
  p.residual = static_cast<Element const*>(o.residual);
  p.bias = static_cast<Element const*>(o.bias);
  p.scale = static_cast<Element const*>(o.scale);
  p.shift = static_cast<Element const*>(o.shift);
  p.y = static_cast<Element*>(o.d);
  p.y2 = static_cast<Element*>(o.d2);
  p.bounds = {s.clip_min, s.clip_max};
  return p;
}

// Enqueues the reduction. On sm90 it may start while the main kernel drains (programmatic
// dependent launch) and waits on the device.
template <class Epilogue, int kVector, bool kOverlap>
int32_t launch_reduce(ReduceParams<typename Epilogue::Element> const& params, cudaStream_t stream) {
  constexpr int kThreads = 256;
  int64_t vectors = params.slice_stride / kVector;
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(unsigned((vectors + kThreads - 1) / kThreads));
  config.blockDim = dim3(kThreads);
  config.stream = stream;
  cudaLaunchAttribute overlap;
  overlap.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  overlap.val.programmaticStreamSerializationAllowed = 1;
  config.attrs = &overlap;
  config.numAttrs = kOverlap ? 1 : 0;
  return from_cuda(cudaLaunchKernelEx(&config, reduce_slices<Epilogue, kVector>, params));
}

}  // namespace convoy
