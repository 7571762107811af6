// TMA, the tensor memory accelerator: loads that complete on an mbarrier, stores in bulk groups.
//
// Elements outside a tensor read as zero and are not written. Stores belong to the thread that
// issued them: it alone can wait for them.
#pragma once

#include <cuda.h>

#include <cstdint>

namespace convoy::sm90 {

__device__ __forceinline__ void prefetch_map(const CUtensorMap* map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

__device__ __forceinline__ void load_3d(uint32_t shared, const CUtensorMap* map, uint32_t barrier,
                                        int x0, int x1, int x2) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes"
      " [%0], [%1, {%3, %4, %5}], [%2];" ::"r"(shared),
      "l"(map), "r"(barrier), "r"(x0), "r"(x1), "r"(x2)
      : "memory");
}

__device__ __forceinline__ void load_4d(uint32_t shared, const CUtensorMap* map, uint32_t barrier,
                                        int x0, int x1, int x2, int x3) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes"
      " [%0], [%1, {%3, %4, %5, %6}], [%2];" ::"r"(shared),
      "l"(map), "r"(barrier), "r"(x0), "r"(x1), "r"(x2), "r"(x3)
      : "memory");
}

// Pixels of an NHWC tensor in row-major order of the map's bounding box, starting at pixel
// (n, h, w) of that box (in tensor coordinates, so negative at an upper or left border), each read
// at (h + offset_h, w + offset_w).
__device__ __forceinline__ void load_im2col(uint32_t shared, const CUtensorMap* map,
                                            uint32_t barrier, int c, int w, int h, int n,
                                            int offset_w, int offset_h) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes"
      " [%0], [%1, {%3, %4, %5, %6}], [%2], {%7, %8};" ::"r"(shared),
      "l"(map), "r"(barrier), "r"(c), "r"(w), "r"(h), "r"(n), "h"(static_cast<uint16_t>(offset_w)),
      "h"(static_cast<uint16_t>(offset_h))
      : "memory");
}

__device__ __forceinline__ void store_4d(const CUtensorMap* map, uint32_t shared, int x0, int x1,
                                         int x2, int x3) {
  asm volatile(
      "cp.async.bulk.tensor.4d.global.shared::cta.bulk_group [%0, {%2, %3, %4, %5}], [%1];" ::"l"(
          map),
      "r"(shared), "r"(x0), "r"(x1), "r"(x2), "r"(x3)
      : "memory");
}

// The inverse of load_im2col without offsets: pixels of one row-major run into an NHWC tensor.
__device__ __forceinline__ void store_im2col(const CUtensorMap* map, uint32_t shared, int c, int w,
                                             int h, int n) {
  asm volatile(
      "cp.async.bulk.tensor.4d.global.shared::cta.im2col_no_offs.bulk_group"
      " [%0, {%2, %3, %4, %5}], [%1];" ::"l"(map),
      "r"(shared), "r"(c), "r"(w), "r"(h), "r"(n)
      : "memory");
}

// A contiguous run; addresses and `bytes` are multiples of 16.
__device__ __forceinline__ void load_bulk(uint32_t shared, const void* global, uint32_t bytes,
                                          uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
          "r"(shared),
      "l"(global), "r"(bytes), "r"(barrier)
      : "memory");
}

__device__ __forceinline__ void store_bulk(void* global, uint32_t shared, uint32_t bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(global),
               "r"(shared), "r"(bytes)
               : "memory");
}

__device__ __forceinline__ void commit_stores() {
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

// Waits until at most kPending of this thread's store groups still read shared memory.
template <int kPending>
__device__ __forceinline__ void wait_stores_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(kPending) : "memory");
}

// Shared memory written by ordinary stores becomes visible to TMA and the tensor cores;
// each writing thread calls it before the barrier.
__device__ __forceinline__ void fence_shared_for_async() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

}  // namespace convoy::sm90
