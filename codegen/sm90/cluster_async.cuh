// Stores into the shared memory of another block of the cluster that complete on an mbarrier there,
// as copies of TMA do: neither side needs a fence.
#pragma once

#include <cstdint>

namespace convoy::sm90 {

// 16 bytes; `address` and `barrier` lie in the same block (cluster_address), which expects them.
__device__ __forceinline__ void store_async(uint32_t address, uint32_t barrier, float a, float b,
                                            float c, float d) {
  asm volatile(
      "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.f32"
      " [%0], {%2, %3, %4, %5}, [%1];" ::"r"(address),
      "r"(barrier), "f"(a), "f"(b), "f"(c), "f"(d)
      : "memory");
}

}  // namespace convoy::sm90
