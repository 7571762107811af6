// mbarriers in shared memory: the handshake between TMA and the warpgroups.
//
// A barrier counts phases. wait(parity) returns once the phase of that parity has completed, and it
// can only tell a phase from its direct neighbours: a waiter must never be two phases off. A fresh
// barrier counts as having completed a phase of parity 1, so "wait for an empty stage" starts at 1.
#pragma once

#include <cstdint>

namespace convoy::sm90 {

__device__ __forceinline__ uint32_t shared_address(const void* pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

// `barrier` is a shared memory address throughout.
__device__ __forceinline__ void barrier_init(uint32_t barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}

// Makes initialised barriers visible to TMA; followed by __syncthreads().
__device__ __forceinline__ void fence_barrier_init() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

__device__ __forceinline__ void barrier_arrive(uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

// One arrival, and the phase also waits until TMA has delivered `bytes`.
__device__ __forceinline__ void barrier_expect(uint32_t barrier, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
               : "memory");
}

__device__ __forceinline__ void barrier_wait(uint32_t barrier, uint32_t parity) {
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "again:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra again;\n"
      "}\n" ::"r"(barrier),
      "r"(parity)
      : "memory");
}

// Position in a ring of kDepth stages and the parity of the current round.
template <int kDepth>
struct Ring {
  int stage = 0;
  uint32_t parity;

  __device__ __forceinline__ explicit Ring(uint32_t first_parity) : parity(first_parity) {}

  __device__ __forceinline__ void advance() {
    if (++stage == kDepth) {
      stage = 0;
      parity ^= 1;
    }
  }

  // Passes over `count` stages that another warpgroup uses.
  __device__ __forceinline__ void skip(int count) {
    int end = stage + count;
    parity ^= (end / kDepth) & 1;
    stage = end % kDepth;
  }
};

}  // namespace convoy::sm90
