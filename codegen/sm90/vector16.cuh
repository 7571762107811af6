// 16 bytes of consecutive elements in global memory, as floats in registers.
#pragma once

#include "float32.cuh"
#include "ptx.cuh"

namespace convoy::sm90 {

template <class T>
struct Vector16 {
  using Raw = uint4;
  static constexpr int kCount = 8;
  static __device__ void unpack(Raw raw, float (&to)[8]) {
    const uint32_t pairs[4] = {raw.x, raw.y, raw.z, raw.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      to[2 * i] = unpack_low<T>(pairs[i]);
      to[2 * i + 1] = unpack_high<T>(pairs[i]);
    }
  }
  // Takes the vector apart only behind this point, not where it is loaded.
  static __device__ void pin(Raw& raw) {
    asm volatile("" : "+r"(raw.x), "+r"(raw.y), "+r"(raw.z), "+r"(raw.w));
  }
  static __device__ Raw pack(const float (&from)[8]) {
    return make_uint4(sm90::pack<T>(from[0], from[1]), sm90::pack<T>(from[2], from[3]),
                      sm90::pack<T>(from[4], from[5]), sm90::pack<T>(from[6], from[7]));
  }
};

template <>
struct Vector16<float> {
  using Raw = float4;
  static constexpr int kCount = 4;
  static __device__ void unpack(Raw raw, float (&to)[4]) {
    to[0] = raw.x, to[1] = raw.y, to[2] = raw.z, to[3] = raw.w;
  }
  static __device__ void pin(Raw& raw) {
    asm volatile("" : "+f"(raw.x), "+f"(raw.y), "+f"(raw.z), "+f"(raw.w));
  }
  static __device__ Raw pack(const float (&from)[4]) {
    return make_float4(from[0], from[1], from[2], from[3]);
  }
};

template <>
struct Vector16<Tf32> : Vector16<float> {};

}  // namespace convoy::sm90
