// y = activation(conv + residual + bias), the activation chosen when a launch is prepared: one
// branch that all threads take alike, so that a library serves every epilogue.
#pragma once

namespace convoy::depthwise {

// In the order of convoy.ir.workload.ACTIVATIONS.
enum Activation : int { kNone, kRelu, kClip, kSigmoid, kSilu, kActivations };

// 1 / (1 + exp(-x)) by the special function unit, with a relative error of a few 2^-23.
__device__ __forceinline__ float sigmoid(float x) {
#ifdef __CUDA_ARCH__
  float power, result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(-1.4426950408889634f * x));
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(1.0f + power));
  return result;
#else
  return 1.0f / (1.0f + __builtin_expf(-x));
#endif
}

// The larger and the smaller of two values; NaN stays NaN.
__device__ __forceinline__ float larger(float a, float b) {
#ifdef __CUDA_ARCH__
  float result;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(result) : "f"(a), "f"(b));
  return result;
#else
  return a < b ? b : a;
#endif
}

__device__ __forceinline__ float smaller(float a, float b) { return -larger(-a, -b); }

// Of all values of a thread, so that there is one branch.
template <int N>
__device__ __forceinline__ void activate(float* x, int activation, float low, float high) {
  if (activation == kNone) return;
  if (activation == kRelu) {
#pragma unroll
    for (int i = 0; i < N; ++i) x[i] = larger(x[i], 0.0f);
  } else if (activation == kClip) {
#pragma unroll
    for (int i = 0; i < N; ++i) x[i] = smaller(larger(x[i], low), high);
  } else {
    const bool silu = activation == kSilu;
#pragma unroll
    for (int i = 0; i < N; ++i) x[i] = sigmoid(x[i]) * (silu ? x[i] : 1.0f);
  }
}

}  // namespace convoy::depthwise
