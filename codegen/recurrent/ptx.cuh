// The instructions of recurrent.cuh: tensor cores, matrix loads, and a cluster's copies and barriers.
#pragma once

#include "../depthwise/mma.cuh"
#include "../sm90/cluster.cuh"
#include "../sm90/cluster_copy.cuh"
#include "../sm90/mbarrier.cuh"

namespace convoy::recurrent {

// Four 8x8 matrices; lane 8 i + r gives the shared memory address of row r of matrix i.
__device__ __forceinline__ void load_matrices(uint32_t (&m)[4], uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(m[0]), "=r"(m[1]), "=r"(m[2]), "=r"(m[3])
               : "r"(address)
               : "memory");
}

// Makes what this thread stored to shared memory visible to copies that are issued behind a barrier.
__device__ __forceinline__ void fence_for_copies() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

}  // namespace convoy::recurrent
