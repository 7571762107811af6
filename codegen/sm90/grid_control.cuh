// Programmatic dependent launch, seen from a kernel.
#pragma once

namespace convoy::sm90 {

// The next kernel may start as soon as every block of this one has come here.
__device__ __forceinline__ void launch_dependents() {
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}

// Returns when the kernels before this one have ended and what they wrote is visible to the grid.
__device__ __forceinline__ void wait_for_predecessors() {
  asm volatile("griddepcontrol.wait;" ::: "memory");
}

}  // namespace convoy::sm90
