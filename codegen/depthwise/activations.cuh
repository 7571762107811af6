// The activations of the forward kernels: those of epilogue.cuh, GELU and hard swish. A launch
// chooses one.
#pragma once

#include "../cutlass/gelu16.cuh"
#include "epilogue.cuh"

namespace convoy::depthwise {

// Behind those of epilogue.cuh, in the order of space.ACTIVATIONS.
enum ForwardActivation : int {
  kForwardGelu = kActivations,
  kForwardHardSwish,
  kForwardActivations
};

// Of all values of a thread, which are rounded to T, so that there is one branch.
template <class T, int N>
__device__ __forceinline__ void activate_forward(float* x, int activation, float low, float high) {
  constexpr convoy::Activation kGeluOf = sizeof(T) == 4 ? convoy::kGelu : convoy::kGelu16;
  if (activation < kActivations) {
    activate<N>(x, activation, low, high);
  } else if (activation == kForwardGelu) {
#pragma unroll
    for (int i = 0; i < N; ++i) x[i] = convoy::activate<kGeluOf>(x[i], {});
  } else {
#pragma unroll
    for (int i = 0; i < N; ++i) x[i] = convoy::activate<convoy::kHardSwish>(x[i], {});
  }
}

}  // namespace convoy::depthwise
