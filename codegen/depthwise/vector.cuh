// Vectors of channels: one load or store of up to 16 bytes, arithmetic in float32.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

namespace convoy::depthwise {

template <class T, int V>
struct alignas(sizeof(T) * V) Vector {
  T data[V];
};

__device__ __forceinline__ float2 widen(__half2 value) { return __half22float2(value); }
__device__ __forceinline__ float2 widen(__nv_bfloat162 value) { return __bfloat1622float2(value); }
__device__ __forceinline__ float widen(__half value) { return __half2float(value); }
__device__ __forceinline__ float widen(__nv_bfloat16 value) { return __bfloat162float(value); }
__device__ __forceinline__ float widen(float value) { return value; }

__device__ __forceinline__ void narrow(float value, float* out) { *out = value; }
__device__ __forceinline__ void narrow(float value, __half* out) { *out = __float2half_rn(value); }
__device__ __forceinline__ void narrow(float value, __nv_bfloat16* out) {
  *out = __float2bfloat16_rn(value);
}
__device__ __forceinline__ void narrow(float2 value, __half2* out) {
  *out = __float22half2_rn(value);
}
__device__ __forceinline__ void narrow(float2 value, __nv_bfloat162* out) {
  *out = __float22bfloat162_rn(value);
}

template <class T>
struct Pair;
template <>
struct Pair<__half> {
  using Type = __half2;
};
template <>
struct Pair<__nv_bfloat16> {
  using Type = __nv_bfloat162;
};

template <class T, int V>
__device__ __forceinline__ void widen(const Vector<T, V>& from, float (&to)[V]) {
  if constexpr (sizeof(T) == 2 && V % 2 == 0) {
    using Two = typename Pair<T>::Type;
    const Two* pairs = reinterpret_cast<const Two*>(from.data);
#pragma unroll
    for (int i = 0; i < V / 2; ++i) {
      float2 two = widen(pairs[i]);
      to[2 * i] = two.x;
      to[2 * i + 1] = two.y;
    }
  } else {
#pragma unroll
    for (int i = 0; i < V; ++i) to[i] = widen(from.data[i]);
  }
}

template <class T, int V>
__device__ __forceinline__ Vector<T, V> narrowed(const float (&from)[V]) {
  Vector<T, V> to;
  if constexpr (sizeof(T) == 2 && V % 2 == 0) {
    using Two = typename Pair<T>::Type;
    Two* pairs = reinterpret_cast<Two*>(to.data);
#pragma unroll
    for (int i = 0; i < V / 2; ++i) narrow(make_float2(from[2 * i], from[2 * i + 1]), &pairs[i]);
  } else {
#pragma unroll
    for (int i = 0; i < V; ++i) narrow(from[i], &to.data[i]);
  }
  return to;
}

// V floats of shared memory, aligned to 16 bytes or as many as they are.
template <int V>
__device__ __forceinline__ void load_shared(const float* from, float (&to)[V]) {
  constexpr int N = V % 4 == 0 ? 4 : V % 2 == 0 ? 2 : 1;
#pragma unroll
  for (int i = 0; i < V; i += N) {
    if constexpr (N == 4) {
      float4 four = *reinterpret_cast<const float4*>(from + i);
      to[i] = four.x, to[i + 1] = four.y, to[i + 2] = four.z, to[i + 3] = four.w;
    } else if constexpr (N == 2) {
      float2 two = *reinterpret_cast<const float2*>(from + i);
      to[i] = two.x, to[i + 1] = two.y;
    } else {
      to[i] = from[i];
    }
  }
}

// Words that a vector is moved in: as many as hold it.
template <int Bytes>
struct Words {
  uint32_t data[Bytes / 4];
};
template <>
struct Words<2> {
  uint16_t data[1];
};

// The vector at a byte offset, zeros unless `there`. Tensors are smaller than 4 GiB, so that an
// offset has 32 bits. Written out because nvcc makes a branch of a load in an `if`, and loads behind
// branches wait for each other. Stays behind wait_for_predecessors(), and does not read through the
// read-only cache, which may hold what was there before.
template <class T, int V>
__device__ __forceinline__ Vector<T, V> load_if(bool there, const void* base, uint32_t offset) {
  constexpr int Bytes = sizeof(T) * V;
  const char* address = static_cast<const char*>(base) + offset;
  Words<Bytes> words = {};
#ifdef __CUDA_ARCH__
  if constexpr (Bytes == 16) {
    asm volatile("{.reg .pred p; setp.ne.b32 p, %4, 0; @p ld.global.v4.b32 {%0, %1, %2, %3}, [%5];}"
                 : "+r"(words.data[0]), "+r"(words.data[1]), "+r"(words.data[2]),
                   "+r"(words.data[3])
                 : "r"(int(there)), "l"(address));
  } else if constexpr (Bytes == 8) {
    asm volatile("{.reg .pred p; setp.ne.b32 p, %2, 0; @p ld.global.v2.b32 {%0, %1}, [%3];}"
                 : "+r"(words.data[0]), "+r"(words.data[1])
                 : "r"(int(there)), "l"(address));
  } else if constexpr (Bytes == 4) {
    asm volatile("{.reg .pred p; setp.ne.b32 p, %1, 0; @p ld.global.b32 %0, [%2];}"
                 : "+r"(words.data[0])
                 : "r"(int(there)), "l"(address));
  } else {
    asm volatile("{.reg .pred p; setp.ne.b32 p, %1, 0; @p ld.global.b16 %0, [%2];}"
                 : "+h"(words.data[0])
                 : "r"(int(there)), "l"(address));
  }
#else
  if (there) words = *reinterpret_cast<const Words<Bytes>*>(address);
#endif
  return *reinterpret_cast<Vector<T, V>*>(&words);
}

template <class T, int V>
__device__ __forceinline__ void store_if(bool there, void* base, uint32_t offset,
                                         const Vector<T, V>& value) {
  constexpr int Bytes = sizeof(T) * V;
  char* address = static_cast<char*>(base) + offset;
  const Words<Bytes> words = *reinterpret_cast<const Words<Bytes>*>(&value);
#ifdef __CUDA_ARCH__
  if constexpr (Bytes == 16) {
    asm volatile(
        "{.reg .pred p; setp.ne.b32 p, %0, 0; @p st.global.v4.b32 [%1], {%2, %3, %4, %5};}" ::"r"(
            int(there)),
        "l"(address), "r"(words.data[0]), "r"(words.data[1]), "r"(words.data[2]), "r"(words.data[3])
        : "memory");
  } else if constexpr (Bytes == 8) {
    asm volatile("{.reg .pred p; setp.ne.b32 p, %0, 0; @p st.global.v2.b32 [%1], {%2, %3};}" ::"r"(
                     int(there)),
                 "l"(address), "r"(words.data[0]), "r"(words.data[1])
                 : "memory");
  } else if constexpr (Bytes == 4) {
    asm volatile(
        "{.reg .pred p; setp.ne.b32 p, %0, 0; @p st.global.b32 [%1], %2;}" ::"r"(int(there)),
        "l"(address), "r"(words.data[0])
        : "memory");
  } else {
    asm volatile(
        "{.reg .pred p; setp.ne.b32 p, %0, 0; @p st.global.b16 [%1], %2;}" ::"r"(int(there)),
        "l"(address), "h"(words.data[0])
        : "memory");
  }
#else
  if (there) *reinterpret_cast<Words<Bytes>*>(address) = words;
#endif
}

}  // namespace convoy::depthwise
