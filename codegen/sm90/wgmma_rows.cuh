// wgmma with both operands in shared memory as rows of 64 consecutive k (K-major). See wgmma.cuh.
#pragma once

#include "wgmma.cuh"

namespace convoy::sm90 {

// mma(d, a, b, accumulate) as MmaShared, but b K-major.
template <class T, int kN>
struct MmaRows;

#define CONVOY_MMA_ROWS(T, PTX, N, COUNT, A, B, P)                                        \
  template <>                                                                             \
  struct MmaRows<T, N> {                                                                  \
    static __device__ __forceinline__ void mma(float (&d)[COUNT], uint64_t a, uint64_t b, \
                                               int accumulate) {                          \
      asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" #P                                \
                   ", 0;\n"                                                               \
                   "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." PTX "." PTX          \
                   " {" CONVOY_LIST_##COUNT "}, %" #A ", %" #B ", p, 1, 1, 0, 0;\n}\n"    \
                   : CONVOY_D##COUNT(0)                                                   \
                   : "l"(a), "l"(b), "r"(accumulate));                                    \
    }                                                                                     \
  };

#define CONVOY_MMA_ROWS_OF(T, PTX)            \
  CONVOY_MMA_ROWS(T, PTX, 32, 16, 16, 17, 18) \
  CONVOY_MMA_ROWS(T, PTX, 64, 32, 32, 33, 34) \
  CONVOY_MMA_ROWS(T, PTX, 128, 64, 64, 65, 66)

CONVOY_MMA_ROWS_OF(__half, "f16")
CONVOY_MMA_ROWS_OF(__nv_bfloat16, "bf16")

}  // namespace convoy::sm90
