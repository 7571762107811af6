// What a kernel library exports besides kernel_abi.h where rows of its operands may lie further
// apart than their elements: where they are slices of the channels of wider tensors.
#pragma once

#include <stdint.h>

#include "convoy/kernel_abi.h"

#ifdef __cplusplus
extern "C" {
#endif

// Elements from one row (a pixel's channels) to the next, of the operands of the same names.
typedef struct ConvoyRowStrides {
  int64_t a, residual, d;
} ConvoyRowStrides;

// convoy_kernel_prepare for such operands; the launch is the same.
int32_t convoy_kernel_prepare_strided(const ConvoyShape* shape, const ConvoyOperands* operands,
                                      const ConvoyRowStrides* strides, void* state);

#ifdef __cplusplus
}  // extern "C"
#endif
