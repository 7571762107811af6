// The exported C functions of a kernel library of this folder, written once for every kernel class.
//
// A kernel class provides
//   struct State;                                      everything a launch needs, plain data
//   static int32_t check(const ConvoyShape&);          0 or a Code
//   static int32_t prepare(const ConvoyShape&, const ConvoyOperands&, State*);
//   static int32_t launch(const State&, cudaStream_t);
//   static int32_t footprint(const State&, ConvoyFootprint*);
// and the emitted source ends with CONVOY_EXPORT_HOPPER_KERNEL(Class). No kernel needs a workspace.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <new>

#include "convoy/kernel_abi.h"

namespace convoy::hopper {

// Codes of our own; a driver result r is reported as kDriver + r, a CUDA error e as kCuda + e.
enum Code : int32_t {
  kOk = 0,
  kWrongOp = 1,
  kBadShape = 2,
  kMisaligned = 3,
  kBadSplit = 4,
  kUnsupported = 5,
  kMissingOperand = 6,
  kTooLarge = 7,
  kNeedsZeros = 8,
  kWrongChannels = 9,
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
    case kMisaligned: return "channel counts or pointers are not multiples of 16 bytes";
    case kBadSplit: return "the reduction is not split by this kernel";
    case kUnsupported: return "stride, padding, dilation, filter size or groups not supported";
    case kMissingOperand: return "a pointer that the kernel needs is null";
    case kTooLarge: return "a tensor exceeds the kernel's index range";
    case kNeedsZeros: return "phases without taps need a kernel built with a zero tile";
    case kWrongChannels: return "the kernel was compiled for another number of input channels";
    default: return "unknown code";
  }
}

// Sizes that every problem must satisfy, and the output formula of the forward convolution.
inline int32_t check_conv(const ConvoyShape& s, ConvoyOp op) {
  if (s.op != op) return kWrongOp;
  if (s.n < 1 || s.h < 1 || s.w < 1 || s.c < 1 || s.k < 1 || s.r < 1 || s.s < 1) return kBadShape;
  if (s.stride_h < 1 || s.stride_w < 1) return kBadShape;
  if (s.pad_top < 0 || s.pad_left < 0 || s.pad_bottom < 0 || s.pad_right < 0) return kBadShape;
  if (s.dilation_h != 1 || s.dilation_w != 1 || s.groups != 1) return kUnsupported;
  int64_t free_h = int64_t(s.h) + s.pad_top + s.pad_bottom - s.r;
  int64_t free_w = int64_t(s.w) + s.pad_left + s.pad_right - s.s;
  if (free_h < 0 || free_w < 0) return kBadShape;
  if (s.p != free_h / s.stride_h + 1 || s.q != free_w / s.stride_w + 1) return kBadShape;
  if (s.split_k > 1) return kBadSplit;
  return kOk;
}

inline bool is_aligned(const void* pointer) {
  return reinterpret_cast<uintptr_t>(pointer) % 16 == 0;
}

inline int32_t check_pointers(const ConvoyOperands& o) {
  if (!o.a || !o.b || !o.d) return kMissingOperand;
  return is_aligned(o.a) && is_aligned(o.b) && is_aligned(o.d) ? kOk : kMisaligned;
}

// Lets blocks of the kernel use this much dynamic shared memory on the current device.
inline int32_t allow_shared(const void* kernel, int bytes) {
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

// State buffers are 64-byte aligned; a state that asks for more (tensor maps: 128 with recent
// headers) starts at the first suitable address of a buffer larger by the difference.
template <class State>
constexpr int64_t state_bytes() {
  return int64_t(sizeof(State) + (alignof(State) > 64 ? alignof(State) - 64 : 0));
}

template <class State>
State* state_at(const void* buffer) {
  uintptr_t address = reinterpret_cast<uintptr_t>(buffer);
  return reinterpret_cast<State*>((address + alignof(State) - 1) / alignof(State) * alignof(State));
}

}  // namespace convoy::hopper

#define CONVOY_HOPPER_API extern "C" __attribute__((visibility("default")))

#define CONVOY_EXPORT_HOPPER_KERNEL(Kernel)                                                       \
  CONVOY_HOPPER_API int32_t convoy_kernel_abi(void) { return CONVOY_KERNEL_ABI_VERSION; }         \
  CONVOY_HOPPER_API int32_t convoy_kernel_check(const ConvoyShape* shape) {                       \
    return Kernel::check(*shape);                                                                 \
  }                                                                                               \
  CONVOY_HOPPER_API int64_t convoy_kernel_workspace(const ConvoyShape*) { return 0; }             \
  CONVOY_HOPPER_API int64_t convoy_kernel_state_bytes(void) {                                     \
    return convoy::hopper::state_bytes<Kernel::State>();                                          \
  }                                                                                               \
  CONVOY_HOPPER_API int32_t convoy_kernel_prepare(const ConvoyShape* shape,                       \
                                                  const ConvoyOperands* operands, void* buffer) { \
    if (int32_t code = Kernel::check(*shape)) return code;                                        \
    if (int32_t code = convoy::hopper::check_pointers(*operands)) return code;                    \
    auto* state = new (convoy::hopper::state_at<Kernel::State>(buffer)) Kernel::State();          \
    return Kernel::prepare(*shape, *operands, state);                                             \
  }                                                                                               \
  CONVOY_HOPPER_API int32_t convoy_kernel_launch(const void* buffer, void* stream) {              \
    return Kernel::launch(*convoy::hopper::state_at<Kernel::State>(buffer),                       \
                          static_cast<cudaStream_t>(stream));                                     \
  }                                                                                               \
  CONVOY_HOPPER_API int32_t convoy_kernel_footprint(const void* buffer, ConvoyFootprint* out) {   \
    return Kernel::footprint(*convoy::hopper::state_at<Kernel::State>(buffer), out);              \
  }                                                                                               \
  CONVOY_HOPPER_API const char* convoy_kernel_error(int32_t code) {                               \
    return convoy::hopper::describe(code);                                                        \
  }
