// Generated CUDA on the host: blocks run one after another, the threads of a block are fibers that
// meet at barriers as on a GPU. Shared memory holds NaN when a block starts.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <cuda_runtime.h>
#include <tvm/ffi/c_api.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <type_traits>
#include <utility>

#include "fibers.h"

#undef __launch_bounds__
#define __launch_bounds__(...)
#undef __shared__
#define __shared__ static __attribute__((section("cuda_shared")))

namespace emulator {

inline uint3 thread_index, block_index;
inline dim3 block_size, grid_size;
inline __attribute__((aligned(128))) unsigned char dynamic_shared[232448];
extern "C" unsigned char __start_cuda_shared[] __attribute__((weak));
extern "C" unsigned char __stop_cuda_shared[] __attribute__((weak));

inline uint3 position(size_t i, dim3 size) {
  return {unsigned(i % size.x), unsigned(i / size.x % size.y), unsigned(i / size.x / size.y)};
}

// Whether blocks and threads take turns from the last, as kernels.py says before a call.
inline bool backwards() { return std::getenv("CONVOY_EMULATE_BACKWARDS") != nullptr; }

// Runs a kernel; `meets` says that threads of a block wait for each other. False where it hangs.
inline bool launch(dim3 grid, dim3 block, bool meets, std::function<void()> kernel) {
  body = std::move(kernel);
  grid_size = grid, block_size = block;
  const size_t blocks = size_t(grid.x) * grid.y * grid.z;
  const size_t threads = size_t(block.x) * block.y * block.z;
  const bool from_last = backwards();
  const auto resume = [&](size_t thread) { thread_index = position(thread, block); };
  for (size_t i = 0; i < blocks; ++i) {
    block_index = position(from_last ? blocks - 1 - i : i, grid);
    std::memset(__start_cuda_shared, 0xff, __stop_cuda_shared - __start_cuda_shared);
    std::memset(dynamic_shared, 0xff, sizeof(dynamic_shared));
    if (meets) {
      if (!run_block(threads, resume, from_last)) return false;
      continue;
    }
    for (size_t j = 0; j < threads; ++j) resume(from_last ? threads - 1 - j : j), body();
  }
  return true;
}

// Arguments as TVM passes them.
template <class T>
T argument(const TVMFFIAny& value) {
  if constexpr (std::is_pointer_v<T>) return static_cast<T>(value.v_ptr);
  if constexpr (std::is_integral_v<T>) return static_cast<T>(value.v_int64);
  if constexpr (std::is_floating_point_v<T>) return static_cast<T>(value.v_float64);
}

// `sizes` are the places of the extents of the grid and the block among the launch parameters,
// which follow the kernel's; -1 for one that is 1.
template <class... Parameters, size_t... kIndices>
int call(void (*kernel)(Parameters...), const TVMFFIAny* args, const int (&sizes)[6], bool meets,
         std::index_sequence<kIndices...>) {
  const auto size = [&](int place) {
    return place < 0 ? 1u : unsigned(args[sizeof...(Parameters) + place].v_int64);
  };
  const dim3 grid(size(sizes[0]), size(sizes[1]), size(sizes[2]));
  const dim3 block(size(sizes[3]), size(sizes[4]), size(sizes[5]));
  if (launch(grid, block, meets, [&] { kernel(argument<Parameters>(args[kIndices])...); }))
    return 0;
  TVMFFIErrorSetRaisedFromCStr("RuntimeError", "threads of a block wait at different barriers");
  return -1;
}

template <class... Parameters>
int call(void (*kernel)(Parameters...), const TVMFFIAny* args, const int (&sizes)[6], bool meets) {
  return call(kernel, args, sizes, meets, std::index_sequence_for<Parameters...>());
}

// The value that another lane of the warp offers, or the thread's own where there is none.
template <class T>
T exchange(unsigned mask, T value, size_t lane) {
  static T offered[1024];
  offered[current] = value;
  meet_warp(mask);
  const size_t from = current / 32 * 32 + lane;
  const T taken = from < fibers.size() ? offered[from] : value;
  meet_warp(mask);  // nobody offers the next value before all have taken this one
  return taken;
}

}  // namespace emulator

#define alignas(bytes) __attribute__((aligned(bytes)))
#define threadIdx emulator::thread_index
#define blockIdx emulator::block_index
#define blockDim emulator::block_size
#define gridDim emulator::grid_size

inline void __syncthreads() { emulator::meet_block(); }
inline void __syncwarp(unsigned mask = ~0u) { emulator::meet_warp(mask); }
inline unsigned __activemask() { return ~0u; }

template <class T>
T __shfl_sync(unsigned mask, T value, int lane, int width = 32) {
  const int self = emulator::current % 32;
  return emulator::exchange(mask, value, self / width * width + lane % width);
}
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int bits, int width = 32) {
  const int self = emulator::current % 32, lane = self ^ bits;
  return emulator::exchange(mask, value, lane / width > self / width ? self : lane);
}
template <class T>
T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32) {
  const int self = emulator::current % 32, lane = self + delta;
  return emulator::exchange(mask, value, lane / width == self / width ? lane : self);
}
template <class T>
T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32) {
  const int self = emulator::current % 32;
  return emulator::exchange(mask, value, self % width >= int(delta) ? self - delta : self);
}

template <class T>
T atomicAdd(T* address, T value) {
  T before = *address;
  *address = before + value;
  return before;
}
template <class T>
T atomicMax(T* address, T value) {
  T before = *address;
  *address = before < value ? value : before;
  return before;
}
template <class T>
T atomicMin(T* address, T value) {
  T before = *address;
  *address = value < before ? value : before;
  return before;
}
template <class T>
T __ldg(const T* pointer) {
  return *pointer;
}
inline float __expf(float x) { return expf(x); }
inline float __logf(float x) { return logf(x); }
inline float __powf(float x, float y) { return powf(x, y); }
inline float __fdividef(float x, float y) { return x / y; }
inline float __int_as_float(int x) {
  float y;
  std::memcpy(&y, &x, sizeof(y));
  return y;
}
inline int __float_as_int(float x) {
  int y;
  std::memcpy(&y, &x, sizeof(y));
  return y;
}
inline float rsqrtf(float x) { return 1 / std::sqrt(x); }
inline double rsqrt(double x) { return 1 / std::sqrt(x); }

// Functions of 16-bit numbers that CUDA's headers have for GPUs alone, rounded once; TVM's sources
// define those of bfloat16 that are left out.
#define CONVOY_OF_HALF(name, function) \
  inline __half name(__half x) { return __float2half(function(__half2float(x))); }
#define CONVOY_OF_BOTH(name, function)                      \
  CONVOY_OF_HALF(name, function)                            \
  inline __nv_bfloat16 name(__nv_bfloat16 x) {              \
    return __float2bfloat16(function(__bfloat162float(x))); \
  }
CONVOY_OF_BOTH(hexp, expf)
CONVOY_OF_BOTH(hexp2, exp2f)
CONVOY_OF_BOTH(hlog, logf)
CONVOY_OF_BOTH(hlog2, log2f)
CONVOY_OF_BOTH(hlog10, log10f)
CONVOY_OF_BOTH(hsqrt, sqrtf)
CONVOY_OF_BOTH(hrsqrt, rsqrtf)
CONVOY_OF_BOTH(hsin, sinf)
CONVOY_OF_BOTH(hcos, cosf)
CONVOY_OF_BOTH(htanh, tanhf)
CONVOY_OF_BOTH(hceil, ceilf)
CONVOY_OF_BOTH(hfloor, floorf)
CONVOY_OF_BOTH(htrunc, truncf)
CONVOY_OF_BOTH(hrint, rintf)
CONVOY_OF_HALF(htan, tanf)
CONVOY_OF_HALF(hatan, atanf)
CONVOY_OF_HALF(herf, erff)
#undef CONVOY_OF_BOTH
#undef CONVOY_OF_HALF
inline __half hpow(__half x, __half y) {
  return __float2half(powf(__half2float(x), __half2float(y)));
}

using std::max;
using std::min;
