// The functions that a library of a kernel for several operations exports, of convoy/<name>_abi.h:
// emitted source ends with a macro that calls this one.
#pragma once

#include "convoy/kernel_library.cuh"

#define CONVOY_EXPORT_PROBLEM(Kernel, name, version, Problem, Operands)                        \
  CONVOY_API int32_t convoy_kernel_##name##_abi(void) { return version; }                      \
  CONVOY_API int32_t convoy_kernel_##name##_check(const Problem* problem) {                    \
    return Kernel::check(*problem);                                                            \
  }                                                                                            \
  CONVOY_API int64_t convoy_kernel_state_bytes(void) {                                         \
    return convoy::state_bytes<Kernel::State>();                                               \
  }                                                                                            \
  CONVOY_API int32_t convoy_kernel_##name##_prepare(const Problem* problem,                    \
                                                    const Operands* operands, void* buffer) {  \
    if (int32_t code = Kernel::check(*problem)) return code;                                   \
    auto* state = new (convoy::state_at<Kernel::State>(buffer)) Kernel::State();               \
    return Kernel::prepare(*problem, *operands, state);                                        \
  }                                                                                            \
  CONVOY_API int32_t convoy_kernel_launch(const void* buffer, void* stream) {                  \
    return Kernel::launch(*convoy::state_at<Kernel::State>(buffer),                            \
                          static_cast<cudaStream_t>(stream));                                  \
  }                                                                                            \
  CONVOY_API int32_t convoy_kernel_launch_programmatic(const void* buffer, void* stream,       \
                                                       int32_t constant_weights) {             \
    return Kernel::launch_programmatic(*convoy::state_at<Kernel::State>(buffer),               \
                                       static_cast<cudaStream_t>(stream), constant_weights);   \
  }                                                                                            \
  CONVOY_API int32_t convoy_kernel_footprint(const void* buffer, ConvoyFootprint* footprint) { \
    return Kernel::footprint(*convoy::state_at<Kernel::State>(buffer), footprint);             \
  }                                                                                            \
  CONVOY_API const char* convoy_kernel_error(int32_t code) { return convoy::describe(code); }
