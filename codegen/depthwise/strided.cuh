// Operands whose pixels lie further apart than their channels: slices of the channels of wider
// tensors (convoy/strided_abi.h).
#pragma once

#include "convoy/strided_abi.h"
#include "early_launch.cuh"

namespace convoy::depthwise {

// Elements of a tensor of the kernels for groups of several channels.
constexpr int64_t kMostElements = (int64_t(1) << 31) - 1;

// The distances of compact operands.
inline ConvoyRowStrides compact_rows(const ConvoyShape& s) { return {s.c, s.k, s.k}; }

// Whether pixels of so many channels may lie so far apart: a multiple of the elements that are read
// or written at a time, in a tensor of at most so many elements.
inline int32_t check_pitch(int64_t pitch, int64_t channels, int vector, int64_t pixels,
                           int64_t most) {
  if (pitch < channels) return kBadShape;
  if (pitch % vector) return kMisaligned;
  return pitch > most / pixels ? kTooLarge : kOk;
}

// The same of all operands of an fprop.
inline int32_t check_rows(const ConvoyShape& s, const ConvoyOperands& o,
                          const ConvoyRowStrides& rows, int in_vector, int out_vector,
                          int64_t most) {
  if (s.op != CONVOY_FPROP) return kWrongOp;
  const int64_t x = int64_t(s.n) * s.h * s.w, y = int64_t(s.n) * s.p * s.q;
  if (int32_t code = check_pitch(rows.a, s.c, in_vector, x, most)) return code;
  if (int32_t code = check_pitch(rows.d, s.k, out_vector, y, most)) return code;
  return o.residual ? check_pitch(rows.residual, s.k, out_vector, y, most) : int32_t(kOk);
}

}  // namespace convoy::depthwise

#define CONVOY_EXPORT_STRIDED_DEPTHWISE(Kernel)                                                  \
  CONVOY_EXPORT_DEPTHWISE(Kernel)                                                                \
  CONVOY_API int32_t convoy_kernel_prepare_strided(                                              \
      const ConvoyShape* shape, const ConvoyOperands* operands, const ConvoyRowStrides* strides, \
      void* buffer) {                                                                            \
    if (int32_t code = Kernel::check(*shape)) return code;                                       \
    auto* state = new (convoy::state_at<Kernel::State>(buffer)) Kernel::State();                 \
    return Kernel::prepare_strided(*shape, *operands, *strides, state);                          \
  }
