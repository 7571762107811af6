// Activations beyond those of epilogue.cuh, and the residual behind the activation:
//   y = activation(accumulator + bias) + residual
// In files of their own, so that kernels without them stay as they are. A parameter alpha (leaky
// relu, ELU) comes in bounds.lower.
#pragma once

#include "epilogue.cuh"

namespace convoy {

constexpr Activation kGelu = Activation(16), kGeluTanh = Activation(17);
constexpr Activation kHardSwish = Activation(18), kLeakyRelu = Activation(19);
constexpr Activation kTanh = Activation(20), kElu = Activation(21), kMish = Activation(22);
constexpr Activation kSoftplus = Activation(23);

// The activation as it is for a residual behind it.
constexpr int kResidualLastFlag = 64;
constexpr Activation residual_last(Activation a) { return Activation(int(a) | kResidualLastFlag); }
constexpr bool is_residual_last(Activation a) { return int(a) & kResidualLastFlag; }
constexpr Activation without_residual(Activation a) {
  return Activation(int(a) & ~kResidualLastFlag);
}

// Whether an epilogue with it is too much code to unroll.
constexpr bool is_heavy(Activation a) {
  a = without_residual(a);
  return !(a == Activation::kNone || a == Activation::kRelu || a == Activation::kClip ||
           a == kHardSwish || a == kLeakyRelu);
}

// An EpilogueSpec with such an activation, as a type of its own.
template <class Element, Activation kActivation, bool kResidual, bool kAffineRelu>
struct ActivatedSpec : EpilogueSpec<Element, kActivation, kResidual, kAffineRelu> {
  static_assert(kResidual || !is_residual_last(kActivation), "there is no residual");
};

// exp(x) with the fast device function (about 2 ulp for small x).
__host__ __device__ inline float fast_exp(float x) {
#if defined(__CUDA_ARCH__)
  return __expf(x);
#else
  return std::exp(x);
#endif
}

__host__ __device__ inline float fast_divide(float a, float b) {
#if defined(__CUDA_ARCH__)
  return __fdividef(a, b);
#else
  return a / b;
#endif
}

template <>
__host__ __device__ inline float activate<kGelu>(float x, ClipBounds const&) {
  return x * (0.5f + 0.5f * erff(x * 0.70710678f));
}

// (1 + tanh(u)) / 2 is 1 / (1 + exp(-2 u)), which keeps its digits where tanh(u) is near -1.
template <>
__host__ __device__ inline float activate<kGeluTanh>(float x, ClipBounds const&) {
  return logistic(x, x * (1.5957691f + 0.071354816f * x * x));
}

template <>
__host__ __device__ inline float activate<kHardSwish>(float x, ClipBounds const&) {
  return x * fminf(fmaxf(x * (1.f / 6.f) + 0.5f, 0.f), 1.f);
}

template <>
__host__ __device__ inline float activate<kLeakyRelu>(float x, ClipBounds const& bounds) {
  return x >= 0.f ? x : x * bounds.lower;
}

template <>
__host__ __device__ inline float activate<kTanh>(float x, ClipBounds const&) {
  return tanhf(x);
}

// exp(x) - 1 loses its digits near zero, where a series has them.
template <>
__host__ __device__ inline float activate<kElu>(float x, ClipBounds const& bounds) {
  float series = x * (1.f + x * (0.5f + x * (1.f / 6.f)));
  float below = x > -0.015625f ? series : fast_exp(x) - 1.f;
  return x >= 0.f ? x : bounds.lower * below;
}

// With n = e (e + 2) and e = exp(x), tanh(log(1 + e)) is n / (n + 2): 1 in float32 from x = 20 on.
template <>
__host__ __device__ inline float activate<kMish>(float x, ClipBounds const&) {
  float e = fast_exp(fminf(x, 20.f));
  float n = e * (e + 2.f);
  return x * fast_divide(n, n + 2.f);
}

// max(x, 0) + log(1 + exp(-|x|)), the logarithm near zero as a series.
template <>
__host__ __device__ inline float activate<kSoftplus>(float x, ClipBounds const&) {
  float e = fast_exp(-fabsf(x));
#if defined(__CUDA_ARCH__)
  float logarithm = __logf(1.f + e);
#else
  float logarithm = std::log(1.f + e);
#endif
  float series = e * (1.f - e * (0.5f - e * (1.f / 3.f)));
  return max_keep_nan(x, 0.f) + (e < 0.015625f ? series : logarithm);
}

}  // namespace convoy

// X(activation) of all that a residual may stand behind.
#define CONVOY_ACTIVATIONS(X) \
  X(Activation::kRelu)        \
  X(Activation::kClip)        \
  X(Activation::kSigmoid)     \
  X(Activation::kSilu)        \
  X(kGelu)                    \
  X(kGeluTanh)                \
  X(kHardSwish)               \
  X(kLeakyRelu)               \
  X(kTanh)                    \
  X(kElu)                     \
  X(kMish)                    \
  X(kSoftplus)

namespace convoy {

// What adds the residual to the accumulator cannot add it later: the reduction of split-K.
#define CONVOY_NOT_IN_A_SUM(activation) \
  template <>                           \
  float activate<residual_last(activation)>(float, ClipBounds const&) = delete;
CONVOY_ACTIVATIONS(CONVOY_NOT_IN_A_SUM)
#undef CONVOY_NOT_IN_A_SUM

}  // namespace convoy
