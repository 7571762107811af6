// Stands in for codegen/recurrent/ptx.cuh on the host: all threads of a cluster are fibers. An address
// in shared memory is an offset in that of the whole cluster. Copies are done at once, and a barrier
// of a block is one of its cluster, so races are not seen; bytes that a barrier lacks are.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <map>
#include <vector>

#include "fibers.h"
#include "mma.h"

#define __device__
#define __forceinline__ inline

struct alignas(16) uint4 {
  uint32_t x, y, z, w;
};

namespace emulator {

struct Index {
  unsigned x;
};
inline Index thread_index, block_index, grid;
inline int blocks;  // of a cluster
inline size_t block_bytes;
inline std::vector<unsigned char> shared;
inline bool failed;

// An mbarrier with one arrival.
struct Barrier {
  int phase = 0;
  int64_t missing = 0;
  bool arrived = false;

  void check() {
    if (!arrived || missing != 0) return;
    ++phase, arrived = false;
  }
};
inline std::map<uint32_t, Barrier> barriers;

struct bfloat16 {
  uint16_t bits = 0;

  bfloat16() = default;
  explicit bfloat16(float value) {  // to nearest, ties to even; no NaN
    uint32_t wide;
    std::memcpy(&wide, &value, 4);
    bits = (wide + 0x7fff + (wide >> 16 & 1)) >> 16;
  }
  explicit operator float() const {
    const uint32_t wide = uint32_t(bits) << 16;
    float value;
    std::memcpy(&value, &wide, 4);
    return value;
  }
};

}  // namespace emulator

#define threadIdx emulator::thread_index
#define blockIdx emulator::block_index
#define gridDim emulator::grid
#define __syncthreads emulator::meet_block

using std::memcpy;

inline float __expf(float x) { return std::exp(x); }
inline float __fdividef(float a, float b) { return a / b; }

inline float __shfl_xor_sync(unsigned, float value, int mask) {
  static std::vector<float> values;
  values.resize(emulator::fibers.size());
  const size_t self = emulator::current;
  values[self] = value;
  emulator::meet_warp();
  const float other = values[self ^ mask];
  emulator::meet_warp();
  return other;
}

namespace convoy::depthwise {

template <class T>
void multiply(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2], T) {
  emulator::multiply<T>(emulator::current, d, a, b, [](T value) { return float(value); });
}

}  // namespace convoy::depthwise

namespace convoy::sm90 {

inline int cluster_rank() { return blockIdx.x % emulator::blocks; }
inline void cluster_sync() { emulator::meet_block(); }
inline uint32_t shared_address(const void* pointer) {
  return static_cast<const unsigned char*>(pointer) - emulator::shared.data();
}
inline uint32_t cluster_address(uint32_t address, int rank) {
  return address % emulator::block_bytes + rank * emulator::block_bytes;
}
inline void barrier_init(uint32_t barrier, int) { emulator::barriers[barrier] = {}; }
inline void fence_barrier_init() {}
inline void barrier_expect(uint32_t barrier, uint32_t bytes) {
  emulator::Barrier& one = emulator::barriers[barrier];
  emulator::failed |= one.arrived;
  one.missing += bytes, one.arrived = true;
  one.check();
}
inline void copy_to_block(uint32_t to, uint32_t from, uint32_t bytes, uint32_t barrier) {
  std::memcpy(&emulator::shared[to], &emulator::shared[from], bytes);
  emulator::barriers[barrier].missing -= bytes;
  emulator::barriers[barrier].check();
}
// Once all threads wait, all copies are done.
inline void cluster_wait(uint32_t barrier, uint32_t parity) {
  emulator::meet_block();
  emulator::failed |= emulator::barriers[barrier].phase % 2 == int(parity);
}

}  // namespace convoy::sm90

namespace convoy::recurrent {

inline void load_matrices(uint32_t (&m)[4], uint32_t address) {
  static std::vector<uint32_t> rows;
  rows.resize(emulator::fibers.size());
  const size_t self = emulator::current, warp = self / 32 * 32, lane = self % 32;
  rows[self] = address;
  emulator::meet_warp();
  for (int i = 0; i < 4; ++i) {
    std::memcpy(&m[i], &emulator::shared[rows[warp + 8 * i + lane / 4] + lane % 4 * 4], 4);
  }
  emulator::meet_warp();
}
inline void fence_for_copies() {}

}  // namespace convoy::recurrent
