// What stem_wgrad alone needs of wgmma: the first operand in registers, the second one MN-major, as
// pixels of an NHWC tensor lie in memory. See wgmma.cuh.
#pragma once

#include "wgmma.cuh"

namespace convoy::sm90 {

// mma(d, a, b) as MmaRegisters, but b MN-major.
template <class T, int kN>
struct MmaStreamed;

#define CONVOY_MMA_STREAMED(T, PTX, N, COUNT, A0, A1, A2, A3, B)                                 \
  template <>                                                                                    \
  struct MmaStreamed<T, N> {                                                                     \
    static __device__ __forceinline__ void mma(float (&d)[COUNT], const uint32_t (&a)[4],        \
                                               uint64_t b) {                                     \
      asm volatile(                                                                              \
          "{\n.reg .pred p;\nsetp.eq.u32 p, 0, 0;\n"                                             \
          "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." PTX "." PTX " {" CONVOY_LIST_##COUNT \
          "}, {%" #A0 ", %" #A1 ", %" #A2 ", %" #A3 "}, %" #B ", p, 1, 1, 1;\n}\n"               \
          : CONVOY_D##COUNT(0)                                                                   \
          : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));                                 \
    }                                                                                            \
  };

CONVOY_MMA_STREAMED(__half, "f16", 64, 32, 32, 33, 34, 35, 36)
CONVOY_MMA_STREAMED(__nv_bfloat16, "bf16", 64, 32, 32, 33, 34, 35, 36)

}  // namespace convoy::sm90
