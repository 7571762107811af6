// What every kernel library is made of besides its kernel: error codes, the checks that all
// problems share, and the exported C functions, written once for every kernel class.
//
// A kernel class provides
//   struct State;                                        everything a launch needs, plain data
//   static int32_t check(const ConvoyShape&);            0 or a Code
//   static int64_t workspace(const ConvoyShape&);        bytes
//   static int32_t prepare(const ConvoyShape&, const ConvoyOperands&, State*);
//   static int32_t launch(const State&, cudaStream_t);
//   static int32_t footprint(const State&, ConvoyFootprint*);
// and the emitted source ends with CONVOY_EXPORT_KERNEL(Class) of its folder.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <new>

#include "convoy/kernel_abi.h"

namespace convoy {

// Codes of our own. A CUTLASS status s is reported as kCutlass + s, a result r of the driver as
// kDriver + r, a CUDA error e as kCuda + e.
enum Code : int32_t {
  kOk = 0,
  kWrongOp = 1,
  kBadShape = 2,
  kMisaligned = 3,
  kBadSplit = 4,
  kUnsupported = 5,
  kMissingOperand = 6,
  kMissingWorkspace = 7,
  kTooLarge = 8,
  kNeedsZeros = 9,
  kWrongChannels = 10,
  kCutlass = 100,
  kDriver = 1000,
  kCuda = 10000,
};

inline int32_t from_cuda(cudaError_t error) {
  return error == cudaSuccess ? int32_t(kOk) : kCuda + int32_t(error);
}

inline const char* describe(int32_t code) {
  if (code >= kCuda) return cudaGetErrorString(cudaError_t(code - kCuda));
  if (code >= kDriver) return "the driver rejected a tensor map or has no function to encode one";
  switch (code) {
    case kOk: return "success";
    case kWrongOp: return "the kernel computes another direction of the convolution";
    case kBadShape: return "output sizes do not follow from input, filter, stride and padding";
    case kMisaligned: return "channel counts or pointers are not multiples of the vector width";
    case kBadSplit: return "the reduction cannot be split into this number of equal slices";
    case kUnsupported: return "stride, padding, dilation, filter size or groups not supported";
    case kMissingOperand: return "a pointer that the kernel needs is null";
    case kMissingWorkspace: return "the kernel needs a workspace and the pointer is null";
    case kTooLarge: return "a tensor exceeds the kernel's index range";
    case kNeedsZeros: return "phases without taps need a kernel built with a zero tile";
    case kWrongChannels: return "the kernel was compiled for another number of input channels";
    default: return "unknown code";
  }
}

// Sizes that every direction must satisfy, and the fprop output formula.
inline int32_t check_sizes(const ConvoyShape& s) {
  if (s.n < 1 || s.h < 1 || s.w < 1 || s.c < 1 || s.k < 1 || s.r < 1 || s.s < 1) return kBadShape;
  if (s.stride_h < 1 || s.stride_w < 1 || s.dilation_h < 1 || s.dilation_w < 1) return kBadShape;
  if (s.pad_top < 0 || s.pad_left < 0 || s.pad_bottom < 0 || s.pad_right < 0) return kBadShape;
  int64_t free_h = int64_t(s.h) + s.pad_top + s.pad_bottom - int64_t(s.dilation_h) * (s.r - 1) - 1;
  int64_t free_w = int64_t(s.w) + s.pad_left + s.pad_right - int64_t(s.dilation_w) * (s.s - 1) - 1;
  if (free_h < 0 || free_w < 0) return kBadShape;
  if (s.p != free_h / s.stride_h + 1 || s.q != free_w / s.stride_w + 1) return kBadShape;
  return s.split_k < 1 ? kBadSplit : kOk;
}

// Raises the kernel's dynamic shared memory limit on the current device.
inline int32_t allow_shared(const void* kernel, int bytes) {
  if (bytes < (48 << 10)) return kOk;
  return from_cuda(
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
}

inline int32_t fill_footprint(const void* kernel, int blocks, int threads, int shared_bytes,
                              ConvoyFootprint* out) {
  cudaFuncAttributes attributes;
  if (int32_t code = from_cuda(cudaFuncGetAttributes(&attributes, kernel))) return code;
  out->blocks = blocks;
  out->threads_per_block = threads;
  out->shared_bytes = shared_bytes + int32_t(attributes.sharedSizeBytes);
  out->registers_per_thread = attributes.numRegs;
  return kOk;
}

// The state buffer is 64-byte aligned; tensor maps may ask for more, so the state sits at the first
// suitably aligned address inside a buffer that is larger by the difference.
template <class State>
constexpr int64_t state_bytes() {
  return int64_t(sizeof(State) + (alignof(State) > 64 ? alignof(State) - 64 : 0));
}

template <class State>
State* state_at(const void* buffer) {
  uintptr_t address = reinterpret_cast<uintptr_t>(buffer);
  return reinterpret_cast<State*>((address + alignof(State) - 1) / alignof(State) * alignof(State));
}

}  // namespace convoy

#define CONVOY_API extern "C" __attribute__((visibility("default")))

// `describe` explains a code: convoy::describe, or a function that knows more of them.
#define CONVOY_EXPORT_KERNEL_WITH(Kernel, describe)                                              \
  CONVOY_API int32_t convoy_kernel_abi(void) { return CONVOY_KERNEL_ABI_VERSION; }               \
  CONVOY_API int32_t convoy_kernel_check(const ConvoyShape* shape) {                             \
    return Kernel::check(*shape);                                                                \
  }                                                                                              \
  CONVOY_API int64_t convoy_kernel_workspace(const ConvoyShape* shape) {                         \
    return Kernel::workspace(*shape);                                                            \
  }                                                                                              \
  CONVOY_API int64_t convoy_kernel_state_bytes(void) {                                           \
    return convoy::state_bytes<Kernel::State>();                                                 \
  }                                                                                              \
  CONVOY_API int32_t convoy_kernel_prepare(const ConvoyShape* shape,                             \
                                           const ConvoyOperands* operands, void* buffer) {       \
    if (int32_t code = Kernel::check(*shape)) return code;                                       \
    if (Kernel::workspace(*shape) > 0 && !operands->workspace) return convoy::kMissingWorkspace; \
    auto* state = new (convoy::state_at<Kernel::State>(buffer)) Kernel::State();                 \
    return Kernel::prepare(*shape, *operands, state);                                            \
  }                                                                                              \
  CONVOY_API int32_t convoy_kernel_launch(const void* buffer, void* stream) {                    \
    return Kernel::launch(*convoy::state_at<Kernel::State>(buffer),                              \
                          static_cast<cudaStream_t>(stream));                                    \
  }                                                                                              \
  CONVOY_API int32_t convoy_kernel_footprint(const void* buffer, ConvoyFootprint* footprint) {   \
    return Kernel::footprint(*convoy::state_at<Kernel::State>(buffer), footprint);               \
  }                                                                                              \
  CONVOY_API const char* convoy_kernel_error(int32_t code) { return describe(code); }
