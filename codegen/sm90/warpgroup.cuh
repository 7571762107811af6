// What the warps of a warpgroup do together: registers, barriers, 8x8 matrices to and from shared.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

namespace convoy::sm90 {

template <int kRegisters>
__device__ __forceinline__ void grow_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

template <int kRegisters>
__device__ __forceinline__ void shrink_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

// Hardware barrier `id` (0 is __syncthreads) of `threads` threads, whole warps.
__device__ __forceinline__ void sync_threads(int id, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

// 128-byte swizzle: within 1024-byte aligned blocks of eight 128-byte rows, 16-byte chunk c of row
// r lies at chunk c ^ (r mod 8). TMA and wgmma apply the same rule.
__device__ __forceinline__ uint32_t swizzled(int row, int chunk) {
  return static_cast<uint32_t>(row * 128 + ((chunk ^ (row & 7)) << 4));
}

// Four 8x8 matrices of 16-bit elements. Lane l gives the row address of row l % 8 of matrix l / 8,
// and holds elements 2 * (l % 4), +1 of row l / 4 of matrix i in the i-th register.
__device__ __forceinline__ void load_matrices(uint32_t (&r)[4], uint32_t row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(row)
               : "memory");
}

__device__ __forceinline__ void store_matrices(uint32_t row, uint32_t r0, uint32_t r1, uint32_t r2,
                                               uint32_t r3) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(row),
               "r"(r0), "r"(r1), "r"(r2), "r"(r3)
               : "memory");
}

__device__ __forceinline__ void store_shared(uint32_t address, uint16_t value) {
  asm volatile("st.shared.u16 [%0], %1;" ::"r"(address), "h"(value) : "memory");
}

__device__ __forceinline__ void store_shared(uint32_t address, uint4 v) {
  asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(v.x), "r"(v.y),
               "r"(v.z), "r"(v.w)
               : "memory");
}

__device__ __forceinline__ uint16_t load_shared_u16(uint32_t address) {
  uint16_t value;
  asm volatile("ld.shared.u16 %0, [%1];" : "=h"(value) : "r"(address) : "memory");
  return value;
}

__device__ __forceinline__ uint32_t load_shared_u32(uint32_t address) {
  uint32_t value;
  asm volatile("ld.shared.u32 %0, [%1];" : "=r"(value) : "r"(address) : "memory");
  return value;
}

__device__ __forceinline__ float4 load_shared_float4(uint32_t address) {
  float4 v;
  asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
               : "r"(address)
               : "memory");
  return v;
}

// Rounds to the 16-bit element type; `low` goes to the lower half.
template <class T>
__device__ __forceinline__ uint32_t pack(float low, float high);

template <>
__device__ __forceinline__ uint32_t pack<__half>(float low, float high) {
  __half2 pair = __floats2half2_rn(low, high);
  return *reinterpret_cast<uint32_t*>(&pair);
}

template <>
__device__ __forceinline__ uint32_t pack<__nv_bfloat16>(float low, float high) {
  __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
  return *reinterpret_cast<uint32_t*>(&pair);
}

// max(x, 0) of both halves; a NaN stays one.
template <class T>
__device__ __forceinline__ uint32_t relu_pair(uint32_t pair);

template <>
__device__ __forceinline__ uint32_t relu_pair<__half>(uint32_t pair) {
  __half2 value = __hmax2_nan(*reinterpret_cast<__half2*>(&pair), __half2(0.0f, 0.0f));
  return *reinterpret_cast<uint32_t*>(&value);
}

template <>
__device__ __forceinline__ uint32_t relu_pair<__nv_bfloat16>(uint32_t pair) {
  __nv_bfloat162 value =
      __hmax2_nan(*reinterpret_cast<__nv_bfloat162*>(&pair), __nv_bfloat162(0.0f, 0.0f));
  return *reinterpret_cast<uint32_t*>(&value);
}

// The halves of such a pair.
template <class T>
__device__ __forceinline__ float unpack_low(uint32_t pair) {
  T value = reinterpret_cast<const T*>(&pair)[0];
  return static_cast<float>(value);
}

template <class T>
__device__ __forceinline__ float unpack_high(uint32_t pair) {
  T value = reinterpret_cast<const T*>(&pair)[1];
  return static_cast<float>(value);
}

}  // namespace convoy::sm90
