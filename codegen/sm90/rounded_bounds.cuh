// Activations that are bounds, applied to pairs of rounded values: rounding does not change the
// order of values, so that it may come first. A NaN stays one.
#pragma once

#include "../cutlass/activations.cuh"
#include "warpgroup.cuh"

namespace convoy::sm90 {

// What a launch chooses among.
constexpr int kBoundsNone = 0, kBoundsRelu = 1, kBoundsClip = 2, kBoundsChoices = 3;

template <class T>
struct PairBounds {
  uint32_t lower, upper;
  __device__ PairBounds(int chosen, const ClipBounds& bounds) {
    const float infinity = __int_as_float(0x7f800000);
    const bool clips = chosen == kBoundsClip;
    const float low = clips ? bounds.lower : chosen == kBoundsRelu ? 0.0f : -infinity;
    const float high = clips ? bounds.upper : infinity;
    lower = pack<T>(low, low);
    upper = pack<T>(high, high);
  }
};

template <class Two>
__device__ __forceinline__ uint32_t clip_two(uint32_t pair, uint32_t lower, uint32_t upper) {
  const Two found =
      __hmin2_nan(__hmax2_nan(reinterpret_cast<Two&>(pair), reinterpret_cast<Two&>(lower)),
                  reinterpret_cast<Two&>(upper));
  return reinterpret_cast<const uint32_t&>(found);
}

__device__ __forceinline__ uint32_t clip_pair(uint32_t pair, const PairBounds<__half>& bounds) {
  return clip_two<__half2>(pair, bounds.lower, bounds.upper);
}

__device__ __forceinline__ uint32_t clip_pair(uint32_t pair,
                                              const PairBounds<__nv_bfloat16>& bounds) {
  return clip_two<__nv_bfloat162>(pair, bounds.lower, bounds.upper);
}

}  // namespace convoy::sm90
