// What all kernel libraries of this folder share beyond convoy/kernel_library.cuh.
#pragma once

#include "convoy/kernel_library.cuh"
#include "cutlass/cutlass.h"

namespace convoy {

inline int32_t from_cutlass(cutlass::Status status) {
  return status == cutlass::Status::kSuccess ? int32_t(kOk) : kCutlass + int32_t(status);
}

inline char const* describe_with_cutlass(int32_t code) {
  if (code < kCutlass || code >= kDriver) return describe(code);
  return cutlass::cutlassGetStatusString(cutlass::Status(code - kCutlass));
}

// Rows of the output seen as a matrix.
inline int64_t output_rows(ConvoyShape const& s) { return int64_t(s.n) * s.p * s.q; }

inline int32_t blocks(dim3 grid) { return int32_t(grid.x * grid.y * grid.z); }

// The pointers that an epilogue reads and writes. Bias may be null, and so may d where d2 is
// written: then nobody reads the plain result.
template <class Epilogue>
int32_t check_operands(ConvoyOperands const& o) {
  bool ok = o.a && o.b && (!Epilogue::kResidual || o.residual);
  ok = ok && (Epilogue::kAffineRelu ? o.d2 && o.scale && o.shift : o.d != nullptr);
  return ok ? kOk : kMissingOperand;
}

}  // namespace convoy

#define CONVOY_EXPORT_KERNEL(Kernel) \
  CONVOY_EXPORT_KERNEL_WITH(Kernel, convoy::describe_with_cutlass)
