// y = activation(conv + residual + bias), the activation chosen when a launch is prepared: one
// branch that all threads take alike, so that a library serves every epilogue.
#pragma once

namespace convoy::depthwise {

// In the order of convoy.ir.workload.ACTIVATIONS.
enum Activation : int { kNone, kRelu, kClip, kSigmoid, kSilu, kActivations };

__device__ __forceinline__ float sigmoid(float x) { return 1.0f / (1.0f + __expf(-x)); }

template <int N>
__device__ __forceinline__ void activate(float (&x)[N], int activation, float low, float high) {
  switch (activation) {
    case kRelu:  // NaN stays NaN
#pragma unroll
      for (int i = 0; i < N; ++i) x[i] = x[i] < 0.0f ? 0.0f : x[i];
      break;
    case kClip:
#pragma unroll
      for (int i = 0; i < N; ++i) x[i] = x[i] < low ? low : x[i] > high ? high : x[i];
      break;
    case kSigmoid:
#pragma unroll
      for (int i = 0; i < N; ++i) x[i] = sigmoid(x[i]);
      break;
    case kSilu:
#pragma unroll
      for (int i = 0; i < N; ++i) x[i] *= sigmoid(x[i]);
      break;
    default:
      break;
  }
}

}  // namespace convoy::depthwise
