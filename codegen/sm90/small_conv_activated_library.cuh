// small_conv with an activation of its own: those of activations.cuh, or with the residual behind
// it. ConvoyShape.swizzle is that of small_conv_library.cuh with the activation kNone.
#pragma once

#include "../cutlass/activations.cuh"
#include "small_conv_library.cuh"

namespace convoy::sm90 {

template <convoy::Activation kActivation>
struct FixedActivation {
  static constexpr bool kResidualLast = is_residual_last(kActivation);
  static constexpr convoy::Activation kFunction = without_residual(kActivation);
  template <int N>
  static __device__ void apply(float (&x)[N], const SmallConvParams& params) {
    const ClipBounds bounds{params.clip_min, params.clip_max};
#pragma unroll
    for (float& value : x) value = activate<kFunction>(value, bounds);
  }
};

}  // namespace convoy::sm90
