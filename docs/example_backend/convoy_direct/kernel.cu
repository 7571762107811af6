// Depthwise convolution with everything behind it, one thread for each output. Compiled by nvcc for
// a GPU, by any C++ compiler for host memory (device arch 0), which is how it is tested.
//
// ELEMENT is the element type, ACTIVATION 0 none, 1 relu, 2 clip.
#include <cstring>

#include "convoy/kernel_abi.h"

#ifdef __CUDACC__
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#define EVERYWHERE __host__ __device__
#else
#define EVERYWHERE
#endif

namespace {

struct State {
  ConvoyShape shape;
  ConvoyOperands operands;
};

enum Code : int32_t { kOk = 0, kNotDepthwise = 1, kMissingOperand = 2, kCuda = 10000 };

EVERYWHERE inline float Load(const void* base, int64_t i) {
  return static_cast<float>(static_cast<const ELEMENT*>(base)[i]);
}

// y(n, p, q, k) of the flat index `i`, k fastest. Products are summed in float32.
EVERYWHERE inline void ComputeOne(const ConvoyShape& s, const ConvoyOperands& o, int64_t i) {
  int k = i % s.k, q = i / s.k % s.q, p = i / s.k / s.q % s.p;
  int64_t n = i / s.k / s.q / s.p;
  int c = k / (s.k / s.groups);
  float sum = 0;
  for (int r = 0; r < s.r; ++r) {
    int h = p * s.stride_h - s.pad_top + r * s.dilation_h;
    if (h < 0 || h >= s.h) continue;
    for (int t = 0; t < s.s; ++t) {
      int w = q * s.stride_w - s.pad_left + t * s.dilation_w;
      if (w < 0 || w >= s.w) continue;
      sum += Load(o.a, ((n * s.h + h) * s.w + w) * s.c + c) *
             Load(o.b, (int64_t{k} * s.r + r) * s.s + t);
    }
  }
  if (o.residual) sum += Load(o.residual, i);
  if (o.bias) sum += Load(o.bias, k);
#if ACTIVATION == 1
  sum = sum > 0 ? sum : 0;
#elif ACTIVATION == 2
  sum = sum < s.clip_min ? s.clip_min : sum > s.clip_max ? s.clip_max : sum;
#endif
  static_cast<ELEMENT*>(o.d)[i] = static_cast<ELEMENT>(sum);
}

EVERYWHERE inline int64_t Outputs(const ConvoyShape& s) { return int64_t{s.n} * s.p * s.q * s.k; }

#ifdef __CUDACC__
constexpr int kThreads = 256;

__global__ void __launch_bounds__(kThreads) Kernel(State state) {
  int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i < Outputs(state.shape)) ComputeOne(state.shape, state.operands, i);
}

int Blocks(const ConvoyShape& s) {
  return static_cast<int>((Outputs(s) + kThreads - 1) / kThreads);
}
#endif

}  // namespace

#define API extern "C" __attribute__((visibility("default")))

API int32_t convoy_kernel_abi(void) { return CONVOY_KERNEL_ABI_VERSION; }

API int32_t convoy_kernel_check(const ConvoyShape* s) {
  return s->op == CONVOY_FPROP && s->groups == s->c ? kOk : kNotDepthwise;
}

API int64_t convoy_kernel_workspace(const ConvoyShape*) { return 0; }

API int64_t convoy_kernel_state_bytes(void) { return sizeof(State); }

API int32_t convoy_kernel_prepare(const ConvoyShape* s, const ConvoyOperands* o, void* state) {
  if (int32_t code = convoy_kernel_check(s)) return code;
  if (!o->a || !o->b || !o->d) return kMissingOperand;
  State made{*s, *o};
  std::memcpy(state, &made, sizeof(made));
  return kOk;
}

API int32_t convoy_kernel_launch(const void* buffer, void* stream) {
  const State& state = *static_cast<const State*>(buffer);
#ifdef __CUDACC__
  Kernel<<<Blocks(state.shape), kThreads, 0, static_cast<cudaStream_t>(stream)>>>(state);
  cudaError_t error = cudaGetLastError();
  return error == cudaSuccess ? kOk : kCuda + error;
#else
  for (int64_t i = 0; i < Outputs(state.shape); ++i) ComputeOne(state.shape, state.operands, i);
  return kOk;
#endif
}

API int32_t convoy_kernel_footprint(const void* buffer, ConvoyFootprint* footprint) {
#ifdef __CUDACC__
  const State& state = *static_cast<const State*>(buffer);
  *footprint = {Blocks(state.shape), kThreads, 0, 32};
#else
  *footprint = {1, 1, 0, 0};
#endif
  return kOk;
}

API const char* convoy_kernel_error(int32_t code) {
#ifdef __CUDACC__
  if (code >= kCuda) return cudaGetErrorString(static_cast<cudaError_t>(code - kCuda));
#endif
  switch (code) {
    case kOk: return "success";
    case kNotDepthwise: return "not a forward depthwise convolution";
    case kMissingOperand: return "a pointer that the kernel needs is null";
    default: return "unknown code";
  }
}
