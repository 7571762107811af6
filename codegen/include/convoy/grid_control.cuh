// Programmatic dependent launch, seen from a kernel; nothing before sm_90, and on the host.
#pragma once

namespace convoy {

// The next kernel may start as soon as every block of this one has come here.
__device__ __forceinline__ void launch_dependents() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// Returns when the kernels before this one have ended and what they wrote is visible to the grid.
__device__ __forceinline__ void wait_for_predecessors() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

}  // namespace convoy
