// Copies into the shared memory of another block of the cluster by TMA, which complete on an mbarrier
// there. What was written by ordinary stores is fenced first (fence_shared_for_async).
#pragma once

#include <cstdint>

namespace convoy::sm90 {

// `to` and `barrier` lie in the same block (cluster_address), which expects the bytes: a multiple of
// 16. The block that copies may not end before.
__device__ __forceinline__ void copy_to_block(uint32_t to, uint32_t from, uint32_t bytes,
                                              uint32_t barrier) {
  // clang-format off
  asm volatile(
      "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
      ::"r"(to), "r"(from), "r"(bytes), "r"(barrier)
      : "memory");
  // clang-format on
}

// The two halves of a barrier of all threads of the cluster, which orders no memory accesses.
__device__ __forceinline__ void cluster_barrier_arrive_relaxed() {
  asm volatile("barrier.cluster.arrive.relaxed;" ::: "memory");
}
__device__ __forceinline__ void cluster_barrier_wait() {
  asm volatile("barrier.cluster.wait;" ::: "memory");
}

}  // namespace convoy::sm90
