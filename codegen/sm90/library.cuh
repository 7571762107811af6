// What all kernel libraries of this folder share beyond convoy/kernel_library.cuh. The emitted
// source ends with CONVOY_EXPORT_SM90_KERNEL(Class); a class needs no workspace function.
#pragma once

#include "convoy/kernel_library.cuh"

namespace convoy::sm90 {

// The problem is this operation, neither dilated nor grouped nor split.
inline int32_t check_conv(const ConvoyShape& s, ConvoyOp op) {
  if (s.op != op) return kWrongOp;
  if (int32_t code = check_sizes(s)) return code;
  if (s.dilation_h != 1 || s.dilation_w != 1 || s.groups != 1) return kUnsupported;
  return s.split_k == 1 ? kOk : kBadSplit;
}

inline bool is_aligned(const void* pointer) {
  return reinterpret_cast<uintptr_t>(pointer) % 16 == 0;
}

inline int32_t check_pointers(const ConvoyOperands& o) {
  if (!o.a || !o.b || !o.d) return kMissingOperand;
  return is_aligned(o.a) && is_aligned(o.b) && is_aligned(o.d) ? kOk : kMisaligned;
}

// A kernel class as the exported functions want it.
template <class Kernel>
struct Library : Kernel {
  using State = typename Kernel::State;

  static int64_t workspace(const ConvoyShape&) { return 0; }

  static int32_t prepare(const ConvoyShape& s, const ConvoyOperands& o, State* state) {
    if (int32_t code = check_pointers(o)) return code;
    return Kernel::prepare(s, o, state);
  }
};

}  // namespace convoy::sm90

#define CONVOY_EXPORT_SM90_KERNEL(Kernel) \
  CONVOY_EXPORT_KERNEL_WITH(convoy::sm90::Library<Kernel>, convoy::describe)
