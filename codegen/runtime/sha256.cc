#include "sha256.h"

#include <cmath>
#include <cstring>

namespace convoy {
namespace {

struct Constants {
  std::array<uint32_t, 64> k;
  std::array<uint32_t, 8> h;
};

// The first 32 bits behind the point of the cube (square) roots of the first 64 (8) primes.
Constants MakeConstants() {
  Constants made{};
  size_t found = 0;
  for (uint32_t n = 2; found < 64; ++n) {
    bool prime = true;
    for (uint32_t d = 2; d * d <= n; ++d) prime = prime && n % d != 0;
    if (!prime) continue;
    long double cube = std::cbrt(static_cast<long double>(n));
    made.k[found] = static_cast<uint32_t>((cube - std::floor(cube)) * 4294967296.0L);
    if (found < 8) {
      long double square = std::sqrt(static_cast<long double>(n));
      made.h[found] = static_cast<uint32_t>((square - std::floor(square)) * 4294967296.0L);
    }
    ++found;
  }
  return made;
}

uint32_t Rotate(uint32_t x, int n) { return (x >> n) | (x << (32 - n)); }

void Compress(const Constants& constants, const uint8_t* block, std::array<uint32_t, 8>* state) {
  uint32_t w[64];
  for (int i = 0; i < 16; ++i) {
    w[i] = uint32_t{block[4 * i]} << 24 | uint32_t{block[4 * i + 1]} << 16 |
           uint32_t{block[4 * i + 2]} << 8 | block[4 * i + 3];
  }
  for (int i = 16; i < 64; ++i) {
    uint32_t low = Rotate(w[i - 15], 7) ^ Rotate(w[i - 15], 18) ^ (w[i - 15] >> 3);
    uint32_t high = Rotate(w[i - 2], 17) ^ Rotate(w[i - 2], 19) ^ (w[i - 2] >> 10);
    w[i] = w[i - 16] + low + w[i - 7] + high;
  }
  auto [a, b, c, d, e, f, g, h] = *state;
  for (int i = 0; i < 64; ++i) {
    uint32_t choice = (e & f) ^ (~e & g), majority = (a & b) ^ (a & c) ^ (b & c);
    uint32_t first =
        h + (Rotate(e, 6) ^ Rotate(e, 11) ^ Rotate(e, 25)) + choice + constants.k[i] + w[i];
    uint32_t second = (Rotate(a, 2) ^ Rotate(a, 13) ^ Rotate(a, 22)) + majority;
    h = g, g = f, f = e, e = d + first, d = c, c = b, b = a, a = first + second;
  }
  const uint32_t added[8] = {a, b, c, d, e, f, g, h};
  for (int i = 0; i < 8; ++i) (*state)[i] += added[i];
}

}  // namespace

std::array<uint8_t, 32> Sha256(const void* data, size_t size) {
  static const Constants constants = MakeConstants();
  std::array<uint32_t, 8> state = constants.h;
  const auto* bytes = static_cast<const uint8_t*>(data);
  size_t whole = size / 64 * 64;
  for (size_t at = 0; at < whole; at += 64) Compress(constants, bytes + at, &state);
  uint8_t tail[128] = {0};
  size_t left = size - whole, padded = left < 56 ? 64 : 128;
  if (left > 0) std::memcpy(tail, bytes + whole, left);
  tail[left] = 0x80;
  for (int i = 0; i < 8; ++i) {
    tail[padded - 1 - i] = static_cast<uint8_t>(uint64_t{size} * 8 >> (8 * i));
  }
  for (size_t at = 0; at < padded; at += 64) Compress(constants, tail + at, &state);
  std::array<uint8_t, 32> digest;
  for (int i = 0; i < 32; ++i) digest[i] = static_cast<uint8_t>(state[i / 4] >> (24 - 8 * (i % 4)));
  return digest;
}

}  // namespace convoy
