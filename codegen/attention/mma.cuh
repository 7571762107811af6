// PTX of sm_80 that the kernels of this folder use: asynchronous copies, matrix loads from shared
// memory, and the 16-bit tensor core instruction with float32 accumulators.
//
// Fragments of mma.m16n8k16 in a thread, with g = lane / 4 and t = lane % 4:
//   a[4]  (g, 2t), (g + 8, 2t), (g, 2t + 8), (g + 8, 2t + 8), two neighbouring columns each
//   b[2]  rows 2t and 2t + 1 of column g, and rows 2t + 8 and 2t + 9
//   c[4]  (g, 2t), (g, 2t + 1), (g + 8, 2t), (g + 8, 2t + 1)
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

namespace convoy::attention {

__device__ inline uint32_t shared_address(const void* pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

// Copies 16 bytes to shared memory, or writes zeros there where `inside` is false.
__device__ inline void copy_async(void* shared, const void* global, bool inside) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(shared)),
               "l"(global), "r"(inside ? 16 : 0)
               : "memory");
}

__device__ inline void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// Waits until at most kPending groups of this thread are under way.
template <int kPending>
__device__ inline void wait_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

// Four 8x8 matrices; lane 8 i + r gives the address of row r of matrix i.
__device__ inline void load_matrices(uint32_t (&to)[4], const void* shared) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(shared_address(shared))
               : "memory");
}

__device__ inline void load_transposed(uint32_t (&to)[4], const void* shared) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(shared_address(shared))
               : "memory");
}

template <class T>
struct Numbers;

template <>
struct Numbers<__half> {
  static __device__ uint32_t pack(float low, float high) {
    __half2 both = __floats2half2_rn(low, high);
    return *reinterpret_cast<uint32_t*>(&both);
  }
  static __device__ float widen(__half value) { return __half2float(value); }
  static __device__ void mma(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  }
};

template <>
struct Numbers<__nv_bfloat16> {
  static __device__ uint32_t pack(float low, float high) {
    __nv_bfloat162 both = __floats2bfloat162_rn(low, high);
    return *reinterpret_cast<uint32_t*>(&both);
  }
  static __device__ float widen(__nv_bfloat16 value) { return __bfloat162float(value); }
  static __device__ void mma(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  }
};

// 2^x; 0 for minus infinity.
__device__ inline float exp2_approx(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

}  // namespace convoy::attention
