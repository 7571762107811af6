// Copies from global to shared memory that a thread does not wait for (cp.async, sm_80 and later).
#pragma once

#include <cstdint>
#include <cstring>

namespace convoy::depthwise {

// Copies 8 or 16 bytes, or writes zeros unless `there`.
template <int Bytes>
__device__ __forceinline__ void copy_async(bool there, void* shared, const void* global) {
  static_assert(Bytes == 8 || Bytes == 16);
#ifdef __CUDA_ARCH__
  const uint32_t address = uint32_t(__cvta_generic_to_shared(shared));
  const int bytes = there ? Bytes : 0;
  if constexpr (Bytes == 16) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(address), "l"(global),
                 "r"(bytes)
                 : "memory");
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 8, %2;" ::"r"(address), "l"(global),
                 "r"(bytes)
                 : "memory");
  }
#else
  if (there) std::memcpy(shared, global, Bytes);
  if (!there) std::memset(shared, 0, Bytes);
#endif
}

// Ends a group of the thread's copies.
__device__ __forceinline__ void commit_copies() {
#ifdef __CUDA_ARCH__
  asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

// Waits until at most so many of the thread's groups are not complete.
template <int Pending>
__device__ __forceinline__ void wait_for_copies() {
#ifdef __CUDA_ARCH__
  asm volatile("cp.async.wait_group %0;" ::"n"(Pending) : "memory");
#endif
}

}  // namespace convoy::depthwise
