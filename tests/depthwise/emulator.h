// Runs CUDA kernels on the host, one block after another: each thread of a block is a fiber that
// gives way at __syncthreads(). For small problems, and kernels whose only warp-level instruction is
// a matrix multiplication.
#pragma once

#include <cuda_runtime.h>

#include <cmath>
#include <cstring>
#include <functional>

#include "fibers.h"
#include "mma.h"

#undef __launch_bounds__
#define __launch_bounds__(...)
#undef __grid_constant__
#define __grid_constant__

namespace emulator {

inline uint3 thread_index, block_index;
inline dim3 block_size, grid_size;

// Calls `kernel` for every thread of the grid; `shared` bytes are poisoned before each block.
inline void launch(dim3 grid, dim3 block, void* shared, size_t shared_bytes,
                   std::function<void()> kernel) {
  body = std::move(kernel);
  grid_size = grid;
  block_size = block;
  for (unsigned z = 0; z < grid.z; ++z)
    for (unsigned y = 0; y < grid.y; ++y)
      for (unsigned x = 0; x < grid.x; ++x) {
        block_index = {x, y, z};
        std::memset(shared, 0xff, shared_bytes);  // NaN
        run_block(block.x, [](size_t thread) { thread_index = {unsigned(thread), 0, 0}; });
      }
}

}  // namespace emulator

#define threadIdx emulator::thread_index
#define blockIdx emulator::block_index
#define blockDim emulator::block_size
#define gridDim emulator::grid_size
#define __syncthreads emulator::meet_block
#define __ldg(pointer) (*(pointer))

using std::max;
using std::min;
