// The C ABI of a kernel library for a squeeze-and-excitation block: the mean of each channel of an
// image, two small products with activations, and the image times the result, channel by channel. It
// exports the functions below, and of kernel_abi.h convoy_kernel_state_bytes, _launch, _footprint and
// _error.
#pragma once

#include <stdint.h>

#include "convoy/kernel_abi.h"

#ifdef __cplusplus
extern "C" {
#endif

#define CONVOY_SQUEEZE_EXCITE_ABI_VERSION 1

// `image` is that of a 1x1 convolution of x without its filter: k = c, and the clip bounds are those of
// the activation of y.
typedef struct ConvoySqueezeExcite {
  ConvoyShape image;
  int32_t squeezed;                          // results of the first product
  float squeeze_clip_min, squeeze_clip_max;  // of its activation, as in ConvoyShape
  float gate_clip_min, gate_clip_max;        // of that of the second one
} ConvoySqueezeExcite;

// Device pointers; the residual and the biases may be null. With
//   gates = activation(excite * activation(squeeze * mean(x) + squeeze_bias) + excite_bias)
// y is activation(x * gates + residual).
typedef struct ConvoySqueezeExciteOperands {
  const void* x;             // (n,h,w,c)
  const void* squeeze;       // (squeezed,c)
  const void* excite;        // (c,squeezed)
  const void* residual;      // (n,h,w,c)
  const void* squeeze_bias;  // (squeezed)
  const void* excite_bias;   // (c)
  void* y;                   // (n,h,w,c)
} ConvoySqueezeExciteOperands;

// CONVOY_SQUEEZE_EXCITE_ABI_VERSION that the library was compiled with.
int32_t convoy_kernel_squeeze_excite_abi(void);
// 0 when the kernel can run this problem. There is no workspace.
int32_t convoy_kernel_squeeze_excite_check(const ConvoySqueezeExcite* problem);
int32_t convoy_kernel_squeeze_excite_prepare(const ConvoySqueezeExcite* problem,
                                             const ConvoySqueezeExciteOperands* operands,
                                             void* state);

#ifdef __cplusplus
}  // extern "C"
#endif
