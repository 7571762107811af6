// The C ABI of a kernel library for a convolution, the 1x1 convolution of its result and, where there
// is one, the 1x1 convolution of that: a bottleneck of a residual network from its 3x3 convolution
// to the first one of the next bottleneck. It exports the functions below, and of kernel_abi.h
// convoy_kernel_state_bytes, _launch, _footprint and _error.
#pragma once

#include <stdint.h>

#include "convoy/kernel_abi.h"

#ifdef __cplusplus
extern "C" {
#endif

#define CONVOY_BOTTLENECK_ABI_VERSION 1

// `conv` is the first convolution, with stride 1. Its result (n,p,q,conv.k) is not written.
typedef struct ConvoyBottleneck {
  ConvoyShape conv;
  int32_t expand;                          // channels of y
  int32_t reduce;                          // channels of z; 0 where there is no third convolution
  float expand_clip_min, expand_clip_max;  // of the activation of y, as in ConvoyShape
  float reduce_clip_min, reduce_clip_max;  // of that of z
} ConvoyBottleneck;

// Device pointers; all but x, filter, expand and y may be null. y is
// activation(sum + expand_bias + residual).
typedef struct ConvoyBottleneckOperands {
  const void* x;            // (n,h,w,c)
  const void* filter;       // (k,r,s,c)
  const void* expand;       // (expand,k)
  const void* reduce;       // (reduce,expand)
  const void* residual;     // (n,p,q,expand)
  const void* bias;         // (k)
  const void* expand_bias;  // (expand)
  const void* reduce_bias;  // (reduce)
  void* y;                  // (n,p,q,expand)
  void* z;                  // (n,p,q,reduce)
} ConvoyBottleneckOperands;

// CONVOY_BOTTLENECK_ABI_VERSION that the library was compiled with.
int32_t convoy_kernel_bottleneck_abi(void);
// 0 when the kernel can run this problem. There is no workspace.
int32_t convoy_kernel_bottleneck_check(const ConvoyBottleneck* bottleneck);
int32_t convoy_kernel_bottleneck_prepare(const ConvoyBottleneck* bottleneck,
                                         const ConvoyBottleneckOperands* operands, void* state);

#ifdef __cplusplus
}  // extern "C"
#endif
