// Kernel classes of this folder that need a workspace; see library.cuh.
#pragma once

#include "library.cuh"

namespace convoy::sm90 {

// A kernel class with a function `workspace`, as the exported functions want it.
template <class Kernel>
struct WorkspaceLibrary : Kernel {
  using State = typename Kernel::State;

  static int32_t prepare(const ConvoyShape& s, const ConvoyOperands& o, State* state) {
    if (int32_t code = check_pointers(o)) return code;
    if (!is_aligned(o.workspace)) return kMisaligned;
    return Kernel::prepare(s, o, state);
  }
};

}  // namespace convoy::sm90

#define CONVOY_EXPORT_SM90_WORKSPACE_KERNEL(Kernel) \
  CONVOY_EXPORT_KERNEL_WITH(convoy::sm90::WorkspaceLibrary<Kernel>, convoy::describe)
