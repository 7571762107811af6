// The matrix multiplication of a warp on the host, whose threads are fibers.
#pragma once

#include <cstdint>
#include <cstring>
#include <vector>

#include "fibers.h"

namespace emulator {

// mma.m16n8k16 as PTX lays its fragments out. All lanes of a warp have to call it equally often;
// `self` is the number of the calling thread, and `widen` makes a T a float.
template <class T, class Widen>
void multiply(size_t self, float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2],
              Widen widen) {
  struct Fragments {
    T a[4][2], b[2][2];
  };
  static std::vector<Fragments> slots[2];
  static std::vector<int> turns;
  slots[0].resize(fibers.size()), slots[1].resize(fibers.size()), turns.resize(fibers.size());
  std::vector<Fragments>& all = slots[turns[self]++ % 2];
  std::memcpy(all[self].a, a, sizeof(a));
  std::memcpy(all[self].b, b, sizeof(b));
  meet_warp();
  const size_t warp = self / 32 * 32;
  const int row = self % 32 / 4, column = self % 4 * 2;
  for (int k = 0; k < 16; ++k) {
    const int quad = k % 8 / 2, upper = k / 8, half = k % 2;
    for (int v = 0; v < 4; ++v) {
      const Fragments& left = all[warp + row * 4 + quad];
      const Fragments& right = all[warp + (column + v % 2) * 4 + quad];
      d[v] += widen(left.a[2 * upper + v / 2][half]) * widen(right.b[upper][half]);
    }
  }
}

}  // namespace emulator
