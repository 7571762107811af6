// float32 operands of the tensor cores. These multiply tf32, the first 19 bits of a float, and ignore
// the others: a float is the sum of that and a rest.
#pragma once

#include "tensor_map.cuh"
#include "wgmma_rows.cuh"

namespace convoy::sm90 {

// A float that TMA rounds to tf32 on its way to shared memory; a plain float comes as it is.
struct Tf32 {
  float value;
};

template <>
constexpr CUtensorMapDataType map_type<Tf32>() {
  return CU_TENSOR_MAP_DATA_TYPE_TFLOAT32;
}
template <>
constexpr CUtensorMapDataType map_type<float>() {
  return CU_TENSOR_MAP_DATA_TYPE_FLOAT32;
}

__device__ __forceinline__ uint32_t leading_bits(float x) {
  return __float_as_uint(x) & 0xffffe000;
}

// What leading_bits() leaves out, exactly; NaN for an infinite x.
__device__ __forceinline__ uint32_t rest_bits(float x) {
  return __float_as_uint(x - __uint_as_float(leading_bits(x)));
}

// mma(d, a, b, accumulate) as MmaRegisters: a[0], a[2] are rows lane / 4, k lane % 4 and + 4; a[1],
// a[3] rows + 8. With accumulate == 0 d is overwritten.
template <int kN>
struct MmaTf32Registers;

#define CONVOY_MMA_TF32(N, COUNT, A, B, P, A0, A1, A2, A3, RB, RP)                               \
  template <>                                                                                    \
  struct MmaRows<Tf32, N> {                                                                      \
    static __device__ __forceinline__ void mma(float (&d)[COUNT], uint64_t a, uint64_t b,        \
                                               int accumulate) {                                 \
      asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" #P                                       \
                   ", 0;\n"                                                                      \
                   "wgmma.mma_async.sync.aligned.m64n" #N                                        \
                   "k8.f32.tf32.tf32"                                                            \
                   " {" CONVOY_LIST_##COUNT "}, %" #A ", %" #B ", p, 1, 1;\n}\n"                 \
                   : CONVOY_D##COUNT(0)                                                          \
                   : "l"(a), "l"(b), "r"(accumulate));                                           \
    }                                                                                            \
  };                                                                                             \
  template <>                                                                                    \
  struct MmaTf32Registers<N> {                                                                   \
    static __device__ __forceinline__ void mma(float (&d)[COUNT], const uint32_t (&a)[4],        \
                                               uint64_t b, int accumulate) {                     \
      asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" #RP                                      \
                   ", 0;\n"                                                                      \
                   "wgmma.mma_async.sync.aligned.m64n" #N                                        \
                   "k8.f32.tf32.tf32"                                                            \
                   " {" CONVOY_LIST_##COUNT "}, {%" #A0 ", %" #A1 ", %" #A2 ", %" #A3 "}, %" #RB \
                                            ", p, 1, 1;\n}\n"                                    \
                   : CONVOY_D##COUNT(0)                                                          \
                   : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate));       \
    }                                                                                            \
  };

CONVOY_MMA_TF32(32, 16, 16, 17, 18, 16, 17, 18, 19, 20, 21)
CONVOY_MMA_TF32(64, 32, 32, 33, 34, 32, 33, 34, 35, 36, 37)
CONVOY_MMA_TF32(128, 64, 64, 65, 66, 64, 65, 66, 67, 68, 69)

}  // namespace convoy::sm90
