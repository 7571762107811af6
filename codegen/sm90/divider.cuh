// Division by a number known when a launch is prepared: a multiplication and a shift.
//
// For 1 < d < 2^31 and 0 <= n < 2^31: with p = 31 + ceil(log2 d) and m = ceil(2^p / d),
// floor(n / d) = floor(n m / 2^p), as the error n (m - 2^p / d) / 2^p < 2^31 / 2^p <= 1 / d. And
// m < 2^32, since 2^p / d < 2^32.
// Plain C++ too: the tests compile this file for the host.
#pragma once

#include <cstdint>

#include "phases.cuh"

namespace convoy::sm90 {

struct Divider {
  uint32_t multiplier;  // 0: the divisor is 1
  uint32_t shift;

  Divider() = default;
  CONVOY_HD explicit Divider(int divisor) : multiplier(0), shift(0) {
    if (divisor <= 1) return;
    while (shift < 31 && int64_t(1) << shift < divisor) ++shift;
    uint64_t power = uint64_t(1) << (31 + shift);
    multiplier = uint32_t((power + divisor - 1) / divisor);
    --shift;  // beyond the upper half of the product
  }

  CONVOY_HD int divide(int n) const {
    uint32_t high = uint32_t(uint64_t(uint32_t(n)) * multiplier >> 32);
    return multiplier ? int(high >> shift) : n;
  }
};

}  // namespace convoy::sm90
