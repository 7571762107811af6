// Four consecutive elements in global memory, as floats in registers.
#pragma once

#include "float32.cuh"
#include "ptx.cuh"

namespace convoy::sm90 {

template <class T>
struct Quad {
  using Raw = uint2;
  static __device__ void unpack(Raw raw, float (&to)[4]) {
    to[0] = unpack_low<T>(raw.x), to[1] = unpack_high<T>(raw.x);
    to[2] = unpack_low<T>(raw.y), to[3] = unpack_high<T>(raw.y);
  }
  static __device__ Raw pack(const float (&from)[4]) {
    return make_uint2(sm90::pack<T>(from[0], from[1]), sm90::pack<T>(from[2], from[3]));
  }
};

template <>
struct Quad<float> {
  using Raw = float4;
  static __device__ void unpack(Raw raw, float (&to)[4]) {
    to[0] = raw.x, to[1] = raw.y, to[2] = raw.z, to[3] = raw.w;
  }
  static __device__ Raw pack(const float (&from)[4]) {
    return make_float4(from[0], from[1], from[2], from[3]);
  }
};

template <>
struct Quad<Tf32> : Quad<float> {};

}  // namespace convoy::sm90
