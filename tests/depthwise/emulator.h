// Runs CUDA kernels on the host, one block after another: each thread of a block is a fiber that
// gives way at __syncthreads(). For small problems, and kernels whose only warp-level instruction is
// a matrix multiplication.
#pragma once

#include <cuda_runtime.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <vector>

#include "fibers.h"

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

// mma.m16n8k16 of a warp, all of whose lanes have to call it equally often.
template <class T>
void multiply(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  struct Fragments {
    T a[4][2], b[2][2];
  };
  static std::vector<Fragments> slots[2];
  static std::vector<int> turns;
  slots[0].resize(1024), slots[1].resize(1024), turns.resize(1024);
  const size_t me = thread_index.x, warp = me / 32 * 32;
  std::vector<Fragments>& mine = slots[turns[me]++ % 2];
  std::memcpy(mine[me].a, a, sizeof(a));
  std::memcpy(mine[me].b, b, sizeof(b));
  wait();
  const int row = me % 32 / 4, column = me % 4 * 2;
  for (int k = 0; k < 16; ++k) {
    const int quad = k % 8 / 2, upper = k / 8, half = k % 2;
    for (int v = 0; v < 4; ++v) {
      const Fragments& left = mine[warp + row * 4 + quad];
      const Fragments& right = mine[warp + (column + v % 2) * 4 + quad];
      d[v] += float(left.a[2 * upper + v / 2][half]) * float(right.b[upper][half]);
    }
  }
}

}  // namespace emulator

#define threadIdx emulator::thread_index
#define blockIdx emulator::block_index
#define blockDim emulator::block_size
#define gridDim emulator::grid_size
#define __syncthreads emulator::wait
#define __ldg(pointer) (*(pointer))

using std::max;
using std::min;
