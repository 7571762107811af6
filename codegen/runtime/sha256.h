// SHA-256 (FIPS 180-4): what compiled modules are sealed with.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace convoy {

std::array<uint8_t, 32> Sha256(const void* data, size_t size);

}  // namespace convoy
