// TMA copies of boxes of a matrix, beside those of tma.cuh.
#pragma once

#include <cuda.h>

#include <cstdint>

namespace convoy::sm90 {

__device__ __forceinline__ void load_2d(uint32_t shared, const CUtensorMap* map, uint32_t barrier,
                                        int x0, int x1) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
      " [%0], [%1, {%3, %4}], [%2];" ::"r"(shared),
      "l"(map), "r"(barrier), "r"(x0), "r"(x1)
      : "memory");
}

__device__ __forceinline__ void store_2d(const CUtensorMap* map, uint32_t shared, int x0, int x1) {
  asm volatile(
      "cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%2, %3}], [%1];" ::"l"(map),
      "r"(shared), "r"(x0), "r"(x1)
      : "memory");
}

}  // namespace convoy::sm90
