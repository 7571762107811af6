// What dgrad_strided alone needs of wgmma and shared memory: results that are wanted transposed,
// reads of 16 bytes. See wgmma.cuh and warpgroup.cuh.
#pragma once

#include "warpgroup.cuh"
#include "wgmma.cuh"

namespace convoy::sm90 {

// mma(d, a, b, accumulate) as MmaShared, but a MN-major, b K-major.
template <class T, int kN>
struct MmaTransposed;

#define CONVOY_MMA_TRANSPOSED(T, PTX, N, COUNT, A, B, P)                                  \
  template <>                                                                             \
  struct MmaTransposed<T, N> {                                                            \
    static __device__ __forceinline__ void mma(float (&d)[COUNT], uint64_t a, uint64_t b, \
                                               int accumulate) {                          \
      asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" #P                                \
                   ", 0;\n"                                                               \
                   "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." PTX "." PTX          \
                   " {" CONVOY_LIST_##COUNT "}, %" #A ", %" #B ", p, 1, 1, 1, 0;\n}\n"    \
                   : CONVOY_D##COUNT(0)                                                   \
                   : "l"(a), "l"(b), "r"(accumulate));                                    \
    }                                                                                     \
  };

CONVOY_MMA_TRANSPOSED(__half, "f16", 64, 32, 32, 33, 34)
CONVOY_MMA_TRANSPOSED(__half, "f16", 128, 64, 64, 65, 66)
CONVOY_MMA_TRANSPOSED(__half, "f16", 256, 128, 128, 129, 130)
CONVOY_MMA_TRANSPOSED(__nv_bfloat16, "bf16", 64, 32, 32, 33, 34)
CONVOY_MMA_TRANSPOSED(__nv_bfloat16, "bf16", 128, 64, 64, 65, 66)
CONVOY_MMA_TRANSPOSED(__nv_bfloat16, "bf16", 256, 128, 128, 129, 130)

// store_matrices() of the transposed matrices: elements 2 * (l % 4), +1 of column l / 4 lie in lane
// l, whose address is still that of a row.
__device__ __forceinline__ void store_transposed_matrices(uint32_t row, uint32_t r0, uint32_t r1,
                                                          uint32_t r2, uint32_t r3) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(row),
               "r"(r0), "r"(r1), "r"(r2), "r"(r3)
               : "memory");
}

}  // namespace convoy::sm90
