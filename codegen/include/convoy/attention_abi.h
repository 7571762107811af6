// The C ABI of a kernel library that computes attention: the functions of kernel_abi.h with another
// problem. Everything said there of state, streams and threads holds here.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "convoy/kernel_abi.h"

#ifdef __cplusplus
extern "C" {
#endif

#define CONVOY_ATTENTION_ABI_VERSION 1

typedef enum ConvoyAttentionBias {
  CONVOY_NO_BIAS = 0,
  CONVOY_BIAS = 1,         // of the operands' dtype
  CONVOY_FLOAT32_BIAS = 2  //
} ConvoyAttentionBias;

// Where the rows of an operand lie in its tensor, in elements: row r of a head starts at
// offset + outer * strides[0] + batch * strides[1] + head * strides[2] + r * strides[3], and its
// elements follow each other. A stride of 0 repeats what is there.
typedef struct ConvoyAttentionView {
  int64_t offset;
  int64_t strides[4];
} ConvoyAttentionView;

// o = softmax(scale * q k^T + bias) v for each of outer * batch * heads problems, where q has
// `queries` rows of `dim` elements, k `keys` rows of `dim`, v `keys` rows of `value_dim`, o `queries`
// rows of `value_dim`, and the bias `queries` rows of `keys`.
typedef struct ConvoyAttention {
  int32_t outer, batch, heads;
  int32_t queries, keys;
  int32_t dim, value_dim;
  int32_t bias;    // ConvoyAttentionBias
  int32_t causal;  // query i sees the keys 0 to i only
  int32_t zeros;   // a query that sees no key gets zeros, otherwise NaN
  float scale;
  ConvoyAttentionView q_view, k_view, v_view, o_view, bias_view;
} ConvoyAttention;

// Device pointers to the first elements of the tensors, 16-byte aligned. `bias` may be null.
typedef struct ConvoyAttentionOperands {
  const void *q, *k, *v, *bias;
  void* o;
} ConvoyAttentionOperands;

int32_t convoy_kernel_attention_abi(void);
int32_t convoy_kernel_attention_check(const ConvoyAttention* problem);
int32_t convoy_kernel_attention_prepare(const ConvoyAttention* problem,
                                        const ConvoyAttentionOperands* operands, void* state);
// And as declared in kernel_abi.h: convoy_kernel_state_bytes, convoy_kernel_launch,
// convoy_kernel_footprint and convoy_kernel_error. There is no workspace.

#ifdef __cplusplus
}  // extern "C"
#endif
