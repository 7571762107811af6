// The C ABI of a kernel library for the first convolution of a network together with what surrounds
// it: x as the network is given it, and maxima of the result. It exports the functions below, and of
// kernel_abi.h convoy_kernel_state_bytes, _launch, _footprint and _error.
#pragma once

#include <stdint.h>

#include "convoy/kernel_abi.h"

#ifdef __cplusplus
extern "C" {
#endif

#define CONVOY_STEM_ABI_VERSION 1

// The operand a has `channels` of the c channels of the convolution, the others are zeros. d
// (n,p,q,k) is its result or, where `pool_h` is not 0, what a max-pool makes of it.
typedef struct ConvoyStem {
  ConvoyShape conv;
  int32_t channels;
  int32_t channels_last;  // a is (n,h,w,channels) instead of (n,channels,h,w)
  int32_t is_float32;     // a, instead of the type of the filter
  int32_t pool_h, pool_w, pool_stride_h, pool_stride_w, pool_top, pool_left;
  int32_t p, q;  // of d
} ConvoyStem;

// CONVOY_STEM_ABI_VERSION that the library was compiled with.
int32_t convoy_kernel_stem_abi(void);
// 0 when the kernel can run this problem. There is no workspace.
int32_t convoy_kernel_stem_check(const ConvoyStem* stem);
int32_t convoy_kernel_stem_prepare(const ConvoyStem* stem, const ConvoyOperands* operands,
                                   void* state);

#ifdef __cplusplus
}  // extern "C"
#endif
