// The C ABI of a kernel library for a 1x1 convolution and the depthwise convolution of its result.
// It exports the functions below, and of kernel_abi.h convoy_kernel_state_bytes, _launch, _footprint
// and _error.
#pragma once

#include <stdint.h>

#include "convoy/kernel_abi.h"

#ifdef __cplusplus
extern "C" {
#endif

#define CONVOY_EXPANSION_ABI_VERSION 1

// `conv` is the depthwise convolution: c = k = groups, and n, h, w of its input are those of the
// 1x1 convolution, which has stride 1 and no padding.
typedef struct ConvoyExpansion {
  ConvoyShape conv;
  int32_t channels;          // of x (n,h,w,channels)
  float clip_min, clip_max;  // of the activation of the 1x1 convolution, as in ConvoyShape
} ConvoyExpansion;

// Device pointers.
typedef struct ConvoyExpansionOperands {
  const void* x;
  const void* filter;       // (k,r,s,1) of the depthwise convolution
  const void* expand;       // (k,channels)
  const void* expand_bias;  // (k), may be null
  const void* bias;         // (k), may be null
  void* y;                  // (n,p,q,k)
} ConvoyExpansionOperands;

// CONVOY_EXPANSION_ABI_VERSION that the library was compiled with.
int32_t convoy_kernel_expansion_abi(void);
// 0 when the kernel can run this problem. There is no workspace.
int32_t convoy_kernel_expansion_check(const ConvoyExpansion* expansion);
int32_t convoy_kernel_expansion_prepare(const ConvoyExpansion* expansion,
                                        const ConvoyExpansionOperands* operands, void* state);

#ifdef __cplusplus
}  // extern "C"
#endif
