// The C ABI between the convoy runtime and a compiled kernel library (one kernel per library).
//
// A kernel library is a shared object that exports the functions at the end of this file. It keeps
// no state: everything a launch needs is written into a buffer that the runtime owns, so that the
// hot path is one call of convoy_kernel_launch without allocation or synchronisation.
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define CONVOY_KERNEL_ABI_VERSION 1

typedef enum ConvoyOp { CONVOY_FPROP = 0, CONVOY_DGRAD = 1, CONVOY_WGRAD = 2 } ConvoyOp;

// Sizes of the forward convolution: x (n,h,w,c) NHWC, filter (k,r,s,c/groups) KRSC, y (n,p,q,k).
// A GEMM (n,c)x(k,c)^T is the fprop with h = w = r = s = p = q = 1.
typedef struct ConvoyShape {
  int32_t op;  // ConvoyOp
  int32_t n, h, w, c, k, r, s, p, q;
  int32_t stride_h, stride_w;
  int32_t pad_top, pad_left, pad_bottom, pad_right;
  int32_t dilation_h, dilation_w;
  int32_t groups;
  int32_t split_k;           // 1 = none; otherwise the number of slices of the reduction
  int32_t swizzle;           // kernel-specific rasterisation choice; 0 = the kernel's default
  int32_t sm_count;          // SMs of the device
  float clip_min, clip_max;  // of a clip; clip_min is the alpha of others
} ConvoyShape;

// Device pointers. Unused ones are null. a, b, d by op:
//   fprop: x, filter, y     dgrad: dy, filter, dx     wgrad: dy, x, dfilter
typedef struct ConvoyOperands {
  const void* a;
  const void* b;
  const void* residual;  // shape and dtype of d
  const void* bias;      // (k), dtype of d
  const void* scale;     // (k), dtype of d; with shift: d2 = relu(scale * d + shift)
  const void* shift;
  void* d;  // may be null where d2 is written: the plain result is not wanted
  void* d2;
  void* workspace;  // convoy_kernel_workspace bytes, 256-byte aligned
} ConvoyOperands;

// Grid and resources of a launch, for the stream scheduler.
typedef struct ConvoyFootprint {
  int32_t blocks, threads_per_block, shared_bytes, registers_per_thread;
} ConvoyFootprint;

// All functions return 0 on success, otherwise a code that convoy_kernel_error explains.

// CONVOY_KERNEL_ABI_VERSION that the library was compiled with.
int32_t convoy_kernel_abi(void);
// 0 when the kernel can run this problem.
int32_t convoy_kernel_check(const ConvoyShape* shape);
// Workspace bytes of this problem.
int64_t convoy_kernel_workspace(const ConvoyShape* shape);
// Bytes of the state buffer that convoy_kernel_prepare fills (64-byte aligned).
int64_t convoy_kernel_state_bytes(void);
// Encodes problem and pointers (tensor maps included) into state. Host work only: no allocation on
// the device, no launch, no synchronisation.
int32_t convoy_kernel_prepare(const ConvoyShape* shape, const ConvoyOperands* operands,
                              void* state);
// Enqueues the launch (and what must precede it, such as zeroing a workspace) on a cudaStream_t.
// May be captured into a CUDA graph. State is not changed, so several threads may launch from it,
// as long as their workspaces differ.
int32_t convoy_kernel_launch(const void* state, void* stream);
int32_t convoy_kernel_footprint(const void* state, ConvoyFootprint* footprint);
const char* convoy_kernel_error(int32_t code);

#ifdef __cplusplus
}  // extern "C"
#endif
