// Thread blocks of a cluster: they run at the same time and reach each other's shared memory.
#pragma once

#include <cstdint>

namespace convoy::sm90 {

__device__ __forceinline__ int cluster_rank() {
  uint32_t rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return static_cast<int>(rank);
}

// All threads of all blocks of the cluster, whether their warps are converged or not.
__device__ __forceinline__ void cluster_sync() {
  asm volatile(
      "barrier.cluster.arrive.release;\n"
      "barrier.cluster.wait.acquire;" ::
          : "memory");
}

// Address in the cluster's window of what lies at `shared` in block `rank`.
__device__ __forceinline__ uint32_t cluster_address(uint32_t shared, int rank) {
  uint32_t address;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(address) : "r"(shared), "r"(rank));
  return address;
}

__device__ __forceinline__ void cluster_store(uint32_t address, float a, float b, float c,
                                              float d) {
  asm volatile("st.shared::cluster.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(address), "f"(a), "f"(b),
               "f"(c), "f"(d)
               : "memory");
}

// Arrives at another block's mbarrier; what this thread stored before is visible to its waiters.
__device__ __forceinline__ void cluster_arrive(uint32_t address) {
  asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(address)
               : "memory");
}

// barrier_wait for a barrier that other blocks arrive at.
__device__ __forceinline__ void cluster_wait(uint32_t barrier, uint32_t parity) {
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "again:\n"
      "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra again;\n"
      "}\n" ::"r"(barrier),
      "r"(parity)
      : "memory");
}

}  // namespace convoy::sm90
