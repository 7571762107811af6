// y = activation(conv + residual + bias), the activation chosen when a launch is prepared: one
// branch that all threads take alike, so that a library serves every epilogue.
#pragma once

namespace convoy::depthwise {

// In the order of convoy.ir.workload.ACTIVATIONS.
enum Activation : int { kNone, kRelu, kClip, kSigmoid, kSilu, kActivations };

__device__ __forceinline__ float sigmoid(float x) { return __fdividef(1.0f, 1.0f + __expf(-x)); }

// Of all values of a thread, so that there is one branch. kRelu is kClip from 0 to infinity. NaN
// stays NaN.
template <int N>
__device__ __forceinline__ void activate(float* x, int activation, float low, float high) {
  if (activation == kNone) return;
  if (activation == kRelu || activation == kClip) {
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const float raised = x[i] < low ? low : x[i];
      x[i] = raised > high ? high : raised;
    }
  } else {
    const bool silu = activation == kSilu;
#pragma unroll
    for (int i = 0; i < N; ++i) x[i] = sigmoid(x[i]) * (silu ? x[i] : 1.0f);
  }
}

}  // namespace convoy::depthwise
