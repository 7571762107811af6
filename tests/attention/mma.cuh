// Stands in for codegen/attention/mma.cuh on the host: the threads of a block are fibers that give
// way at each instruction that several of them execute together. Fragments are laid out as PTX says
// (m16n8k16, ldmatrix). Copies are done at once, so races between stages are not seen.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>

#include "fibers.h"
#include "mma.h"

#define __device__
#define __forceinline__ inline
#define __global__
#define __shared__
#define __align__(bytes)
#define __launch_bounds__(...)
#define __grid_constant__

struct alignas(16) uint4 {
  uint32_t x, y, z, w;
};
struct alignas(8) float2 {
  float x, y;
};
using std::min;

namespace emulator {

struct Index {
  unsigned x;
};
inline Index thread_index, block_index;

inline void launch(int blocks, int threads, void* shared, size_t shared_bytes,
                   std::function<void()> kernel) {
  body = std::move(kernel);
  for (int block = 0; block < blocks; ++block) {
    block_index = {unsigned(block)};
    std::memset(shared, 0xff, shared_bytes);  // NaN
    run_block(threads, [](size_t thread) { thread_index = {unsigned(thread)}; });
  }
}

// What each thread gives to an instruction of its warp.
struct Slot {
  const void* address;
  float number;
};
inline Slot slots[1024];

// `use` reads the slots of the warp after all its threads have filled theirs.
template <class Fill, class Use>
void together(Fill fill, Use use) {
  unsigned self = thread_index.x;
  fill(slots[self]);
  meet_warp();
  use(slots + self / 32 * 32, int(self % 32));
  meet_warp();
}

}  // namespace emulator

#define threadIdx emulator::thread_index
#define blockIdx emulator::block_index
#define __syncthreads emulator::meet_block
#define __syncwarp emulator::meet_warp

inline float __shfl_xor_sync(unsigned, float value, int mask) {
  float result = 0;
  emulator::together(
      [&](emulator::Slot& slot) { slot.number = value; },
      [&](const emulator::Slot* warp, int lane) { result = warp[lane ^ mask].number; });
  return result;
}

using __half = _Float16;

struct __nv_bfloat16 {
  uint16_t bits;
};

namespace convoy::attention {

inline void copy_async(void* shared, const void* global, bool inside) {
  if (inside) {
    std::memcpy(shared, global, 16);
  } else {
    std::memset(shared, 0, 16);
  }
}
inline void commit_copies() {}
template <int kPending>
void wait_copies() {}

inline void load_matrices(uint32_t (&to)[4], const void* shared) {
  emulator::together([&](emulator::Slot& slot) { slot.address = shared; },
                     [&](const emulator::Slot* warp, int lane) {
                       for (int i = 0; i < 4; ++i) {
                         auto row = static_cast<const uint16_t*>(warp[8 * i + lane / 4].address);
                         std::memcpy(&to[i], row + lane % 4 * 2, 4);
                       }
                     });
}

inline void load_transposed(uint32_t (&to)[4], const void* shared) {
  emulator::together([&](emulator::Slot& slot) { slot.address = shared; },
                     [&](const emulator::Slot* warp, int lane) {
                       for (int i = 0; i < 4; ++i) {
                         uint32_t halves[2];
                         for (int e = 0; e < 2; ++e) {
                           auto row =
                               static_cast<const uint16_t*>(warp[8 * i + lane % 4 * 2 + e].address);
                           halves[e] = row[lane / 4];
                         }
                         to[i] = halves[0] | halves[1] << 16;
                       }
                     });
}

template <class T>
struct Numbers;

template <>
struct Numbers<__half> {
  static uint32_t pack(float low, float high) {
    __half both[2] = {__half(low), __half(high)};
    uint32_t word;
    std::memcpy(&word, both, 4);
    return word;
  }
  static float widen(__half value) { return float(value); }
  static void mma(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    emulator::multiply<__half>(threadIdx.x, c, a, {b0, b1}, widen);
  }
};

template <>
struct Numbers<__nv_bfloat16> {
  static uint32_t pack(float low, float high) { return round(low) | round(high) << 16; }
  static float widen(__nv_bfloat16 value) {
    uint32_t bits = uint32_t(value.bits) << 16;
    float wide;
    std::memcpy(&wide, &bits, 4);
    return wide;
  }
  static void mma(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    emulator::multiply<__nv_bfloat16>(threadIdx.x, c, a, {b0, b1}, widen);
  }

 private:
  static uint32_t round(float value) {  // to nearest, ties to even
    uint32_t bits;
    std::memcpy(&bits, &value, 4);
    if (value != value) return 0x7fff;
    return (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
  }
};

inline float exp2_approx(float x) { return std::exp2(x); }

}  // namespace convoy::attention
