// What happens to an accumulator before it is written, in fp32:
//   y = activation(accumulator + residual + bias),  and optionally  y2 = relu(scale * y + shift).
// Shared by the sm80 output operator, the sm90 visitor trees and the split-K reduction.
#pragma once

#include <cuda_runtime.h>

#include <cmath>

namespace convoy {

enum class Activation { kNone, kRelu, kClip, kSigmoid, kSilu };

// Bounds of Activation::kClip; the others ignore them.
struct ClipBounds {
  float lower = 0.f;
  float upper = 0.f;
};

// max(a, b) that keeps NaN, so that a broken input is not hidden by a relu.
__host__ __device__ inline float max_keep_nan(float a, float b) {
#if defined(__CUDA_ARCH__)
  float result;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(result) : "f"(a), "f"(b));
  return result;
#else
  return a != a ? a : (a > b ? a : b);
#endif
}

__host__ __device__ inline float min_keep_nan(float a, float b) { return -max_keep_nan(-a, -b); }

// numerator / (1 + exp(-x)) with the fast device functions (about 2 ulp): the exact division would
// cost the epilogue its registers. A large -x gives 0, NaN stays NaN.
__host__ __device__ inline float logistic(float numerator, float x) {
#if defined(__CUDA_ARCH__)
  return __fdividef(numerator, 1.f + __expf(-x));
#else
  return numerator / (1.f + std::exp(-x));
#endif
}

template <Activation kActivation>
__host__ __device__ inline float activate(float value, ClipBounds const& bounds) {
  if constexpr (kActivation == Activation::kRelu) {
    return max_keep_nan(value, 0.f);
  } else if constexpr (kActivation == Activation::kClip) {
    return min_keep_nan(max_keep_nan(value, bounds.lower), bounds.upper);
  } else if constexpr (kActivation == Activation::kSigmoid) {
    return logistic(1.f, value);
  } else if constexpr (kActivation == Activation::kSilu) {
    return logistic(value, value);
  } else {
    return value;
  }
}

// The batch norm and relu that open the next pre-activation block.
__host__ __device__ inline float affine_relu(float y, float scale, float shift) {
  return max_keep_nan(scale * y + shift, 0.f);
}

// Compile-time description of an epilogue. A bias is always possible: a null pointer means none.
// Element is the type of d, d2, residual, bias, scale and shift.
template <class Element_, Activation kActivation_, bool kResidual_, bool kAffineRelu_>
struct EpilogueSpec {
  using Element = Element_;
  static constexpr Activation kActivation = kActivation_;
  static constexpr bool kResidual = kResidual_;
  static constexpr bool kAffineRelu = kAffineRelu_;
  static constexpr int kOutputVector = 16 / int(sizeof(Element));  // of 16-byte accesses
};

}  // namespace convoy
