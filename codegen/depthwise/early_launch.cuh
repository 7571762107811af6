// Launches that start before their predecessor has ended (convoy/programmatic_abi.h), for libraries
// that hold machine code for sm_90 beside older one.
#pragma once

#include "convoy/kernel_library.cuh"
#include "convoy/programmatic_abi.h"

namespace convoy::depthwise {

// Whether a kernel's machine code waits for its predecessors: not if the driver JIT-compiled it from
// the PTX of sm_80.
inline bool waits(const void* kernel) {
  cudaFuncAttributes attributes = {};
  return cudaFuncGetAttributes(&attributes, kernel) == cudaSuccess && attributes.ptxVersion >= 90;
}

// Launches state.kernel on state.params, or behind the end of its predecessor if it does not wait.
template <class State>
int32_t launch_early(const State& state, int threads, bool constant_weights, cudaStream_t stream) {
  auto params = state.params;
  params.constant_weights = state.waits && constant_weights;
  cudaLaunchAttribute attribute;
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config = {
      state.grid, dim3(unsigned(threads)), size_t(state.shared_bytes), stream,
      &attribute, state.waits ? 1u : 0u};
  void* arguments[] = {&params};
  return from_cuda(cudaLaunchKernelExC(&config, state.kernel, arguments));
}

}  // namespace convoy::depthwise

#define CONVOY_EXPORT_DEPTHWISE(Kernel)                                                      \
  CONVOY_EXPORT_KERNEL_WITH(Kernel, convoy::describe)                                        \
  CONVOY_API int32_t convoy_kernel_launch_programmatic(const void* buffer, void* stream,     \
                                                       int32_t constant_weights) {           \
    return Kernel::launch_programmatic(*convoy::state_at<Kernel::State>(buffer),             \
                                       static_cast<cudaStream_t>(stream), constant_weights); \
  }
