// The part of the CUDA driver API that reading a graph's kernels needs, declared here so that the
// runtime builds where no CUDA is installed. tests/runtime/test_abi.py compares it with cuda.h.
#pragma once

#include <cstddef>

namespace convoy::driver {

using Result = int;
using Handle = void*;  // of a graph, node, function, kernel or context

constexpr int kKernelNode = 0;
constexpr int kSharedSizeBytes = 1;
constexpr int kNumRegs = 4;

struct KernelNodeParams {
  Handle function;
  unsigned grid[3], block[3];
  unsigned shared_bytes;
  void** arguments;
  void** extra;
  Handle kernel;
  Handle context;
};

// X(name, argument types): all return Result.
#define CONVOY_DRIVER_FUNCTIONS(X)                                                   \
  X(cuGraphGetNodes, (::convoy::driver::Handle, ::convoy::driver::Handle*, size_t*)) \
  X(cuGraphNodeGetType, (::convoy::driver::Handle, int*))                            \
  X(cuGraphKernelNodeGetParams_v2,                                                   \
    (::convoy::driver::Handle, ::convoy::driver::KernelNodeParams*))                 \
  X(cuKernelGetFunction, (::convoy::driver::Handle*, ::convoy::driver::Handle))      \
  X(cuFuncGetAttribute, (int*, int, ::convoy::driver::Handle))                       \
  X(cuOccupancyMaxActiveBlocksPerMultiprocessor, (int*, ::convoy::driver::Handle, int, size_t))

}  // namespace convoy::driver
