// Warpgroup matrix multiply: d (64 x kN, fp32 registers) += a (64 x 16) * b (16 x kN).
//
// Thread t of the warpgroup holds of d, with warp = t / 32, lane = t % 32, for column block j of 8:
//   d[4j], d[4j+1]   row 16 * warp + lane / 4,      columns 8j + 2 * (lane % 4), +1
//   d[4j+2], d[4j+3] row 16 * warp + lane / 4 + 8,  the same columns
// Operands in shared memory are 128-byte rows with 128-byte swizzle (see swizzled()):
//   K-major: a row is one row of a (or column of b), 64 consecutive k;
//   MN-major (b only): a row is one k, 64 consecutive columns.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

namespace convoy::sm90 {

// Shared memory operand. `step` is the distance in bytes between blocks of eight 128-byte rows,
// `leading` that between groups of 64 columns of an MN-major operand (ignored for K-major).
// Adding n to a descriptor moves its start by 16 n bytes.
__device__ __forceinline__ uint64_t operand(uint32_t shared, uint32_t leading, uint32_t step) {
  constexpr uint64_t kSwizzle128 = uint64_t(1) << 62;
  return uint64_t((shared & 0x3ffff) >> 4) | uint64_t(leading >> 4) << 16 |
         uint64_t(step >> 4) << 32 | kSwizzle128;
}

// Registers written by ordinary instructions become visible to the wgmma that follow.
__device__ __forceinline__ void mma_fence() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

__device__ __forceinline__ void mma_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

// Waits until at most kPending groups are in flight; registers of the others may be used again.
template <int kPending>
__device__ __forceinline__ void mma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}

// Keeps the compiler from moving uses of accumulators across a wait.
template <int kCount>
__device__ __forceinline__ void pin(float (&d)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) asm volatile("" : "+f"(d[i])::"memory");
}

// mma(d, a, b, accumulate): both operands in shared memory, a K-major, b MN-major.
// With accumulate == 0 d is overwritten.
template <class T, int kN>
struct MmaShared;

// mma(d, a, b): a in registers (a[0], a[2]: rows lane / 4, k 2 * (lane % 4) and + 8; a[1], a[3]:
// rows + 8), b in shared memory, K-major.
template <class T, int kN>
struct MmaRegisters;

// Inline assembly numbers its operands: first the accumulators, then the rest.
#define CONVOY_LIST_0_8 "%0, %1, %2, %3, %4, %5, %6, %7"
#define CONVOY_LIST_8_16 "%8, %9, %10, %11, %12, %13, %14, %15"
#define CONVOY_LIST_16_24 "%16, %17, %18, %19, %20, %21, %22, %23"
#define CONVOY_LIST_24_32 "%24, %25, %26, %27, %28, %29, %30, %31"
#define CONVOY_LIST_32_64                                                  \
  "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, " \
  "%46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, " \
  "%60, %61, %62, %63"
#define CONVOY_LIST_64_128                                                               \
  "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, "               \
  "%78, %79, %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, "               \
  "%92, %93, %94, %95, %96, %97, %98, %99, %100, %101, %102, %103, %104, %105, "         \
  "%106, %107, %108, %109, %110, %111, %112, %113, %114, %115, %116, %117, %118, %119, " \
  "%120, %121, %122, %123, %124, %125, %126, %127"
#define CONVOY_LIST_8 CONVOY_LIST_0_8
#define CONVOY_LIST_16 CONVOY_LIST_8 ", " CONVOY_LIST_8_16
#define CONVOY_LIST_24 CONVOY_LIST_16 ", " CONVOY_LIST_16_24
#define CONVOY_LIST_32 CONVOY_LIST_24 ", " CONVOY_LIST_24_32
#define CONVOY_LIST_64 CONVOY_LIST_32 ", " CONVOY_LIST_32_64
#define CONVOY_LIST_128 CONVOY_LIST_64 ", " CONVOY_LIST_64_128

#define CONVOY_D4(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define CONVOY_D8(i) CONVOY_D4(i), CONVOY_D4(i + 4)
#define CONVOY_D16(i) CONVOY_D8(i), CONVOY_D8(i + 8)
#define CONVOY_D24(i) CONVOY_D16(i), CONVOY_D8(i + 16)
#define CONVOY_D32(i) CONVOY_D16(i), CONVOY_D16(i + 16)
#define CONVOY_D64(i) CONVOY_D32(i), CONVOY_D32(i + 32)
#define CONVOY_D128(i) CONVOY_D64(i), CONVOY_D64(i + 64)

#define CONVOY_MMA_SHARED(T, PTX, N, COUNT, A, B, P)                                      \
  template <>                                                                             \
  struct MmaShared<T, N> {                                                                \
    static __device__ __forceinline__ void mma(float (&d)[COUNT], uint64_t a, uint64_t b, \
                                               int accumulate) {                          \
      asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" #P                                \
                   ", 0;\n"                                                               \
                   "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." PTX "." PTX          \
                   " {" CONVOY_LIST_##COUNT "}, %" #A ", %" #B ", p, 1, 1, 0, 1;\n}\n"    \
                   : CONVOY_D##COUNT(0)                                                   \
                   : "l"(a), "l"(b), "r"(accumulate));                                    \
    }                                                                                     \
  };

#define CONVOY_MMA_REGISTERS(T, PTX, N, COUNT, A0, A1, A2, A3, B)                                \
  template <>                                                                                    \
  struct MmaRegisters<T, N> {                                                                    \
    static __device__ __forceinline__ void mma(float (&d)[COUNT], uint32_t a0, uint32_t a1,      \
                                               uint32_t a2, uint32_t a3, uint64_t b) {           \
      asm volatile(                                                                              \
          "{\n.reg .pred p;\nsetp.eq.u32 p, 0, 0;\n"                                             \
          "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." PTX "." PTX " {" CONVOY_LIST_##COUNT \
          "}, {%" #A0 ", %" #A1 ", %" #A2 ", %" #A3 "}, %" #B ", p, 1, 1, 0;\n}\n"               \
          : CONVOY_D##COUNT(0)                                                                   \
          : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "l"(b));                                         \
    }                                                                                            \
  };

#define CONVOY_MMA(T, PTX)                                 \
  CONVOY_MMA_SHARED(T, PTX, 64, 32, 32, 33, 34)            \
  CONVOY_MMA_SHARED(T, PTX, 128, 64, 64, 65, 66)           \
  CONVOY_MMA_SHARED(T, PTX, 256, 128, 128, 129, 130)       \
  CONVOY_MMA_REGISTERS(T, PTX, 16, 8, 8, 9, 10, 11, 12)    \
  CONVOY_MMA_REGISTERS(T, PTX, 32, 16, 16, 17, 18, 19, 20) \
  CONVOY_MMA_REGISTERS(T, PTX, 48, 24, 24, 25, 26, 27, 28) \
  CONVOY_MMA_REGISTERS(T, PTX, 64, 32, 32, 33, 34, 35, 36)

CONVOY_MMA(__half, "f16")
CONVOY_MMA(__nv_bfloat16, "bf16")

}  // namespace convoy::sm90
