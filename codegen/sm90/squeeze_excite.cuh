// A squeeze-and-excitation block on sm_90a:
//   y = activation(x * gates(mean of x) + residual),
// where the gates of an image's channels are two small products with activations.
//
// A cluster has an image, whose channels and pixels its blocks share. A block sums up its pixels and
// keeps them in shared memory; it writes its sums and its part of the first product into the shared
// memory of all blocks. Then it computes the gates of its own channels and multiplies. So x is read
// once. The weights are on their way before the block waits for the kernels before this one.
#pragma once

#include "cluster.cuh"
#include "convoy/grid_control.cuh"
#include "squeeze_excite_config.cuh"
#include "vector16.cuh"

namespace convoy::sm90 {

constexpr Activation kSqueezeActivationList[] = {
    Activation::kNone, Activation::kRelu, Activation::kClip, Activation::kSilu, kHardSwish, kGelu};
constexpr int kSqueezeActivations = 6;
constexpr Activation kGateActivationList[] = {Activation::kSigmoid, Activation::kClip};
constexpr int kGateActivations = 2;

template <int kFrom = 0>
__device__ __forceinline__ float squeeze_activated(float value, const SqueezeProduct& product) {
  if constexpr (kFrom + 1 < kSqueezeActivations) {
    if (product.activation != kFrom) return squeeze_activated<kFrom + 1>(value, product);
  }
  return activate<kSqueezeActivationList[kFrom]>(value, product.bounds);
}

__device__ __forceinline__ float gate_activated(float value, const SqueezeProduct& product) {
  return product.activation == 0 ? activate<kGateActivationList[0]>(value, product.bounds)
                                 : activate<kGateActivationList[1]>(value, product.bounds);
}

// The halves of cluster_sync().
__device__ __forceinline__ void cluster_begin() {
  asm volatile("barrier.cluster.arrive.release;" ::: "memory");
}
__device__ __forceinline__ void cluster_end() {
  asm volatile("barrier.cluster.wait.acquire;" ::: "memory");
}

template <class T>
struct SqueezeExciteBlock {
  static constexpr int kThreads = kSqueezeThreads;
  const SqueezeExciteParams& params;
  const SqueezeExciteLayout layout;
  uint8_t* const shared;
  const int image, rank;
  // Of this block: its vectors and pixels, and its results of the first product.
  int first_vector, own_vectors, first_pixel, own_pixels, first_squeezed, own_squeezed;
  // Of this thread: a vector of every `lanes`-th pixel from `lane`.
  int vector, lane, lanes;

  __device__ SqueezeExciteBlock(const SqueezeExciteParams& p, uint8_t* shared)
      : params(p), layout(p), shared(shared), image(blockIdx.x / p.cluster), rank(cluster_rank()) {
    const int channel_part = rank % p.channel_parts, pixel_part = rank / p.channel_parts;
    first_vector = channel_part * p.part_vectors;
    own_vectors = max(0, min(p.part_vectors, p.vectors - first_vector));
    first_pixel = pixel_part * p.part_pixels;
    own_pixels = max(0, min(p.part_pixels, p.pixels - first_pixel));
    first_squeezed = p.part_squeezed < p.squeezed ? rank * p.part_squeezed : 0;
    own_squeezed = max(0, min(p.part_squeezed, p.squeezed - first_squeezed));
    lanes = kThreads >> p.vector_shift;
    lane = threadIdx.x >> p.vector_shift;
    vector = threadIdx.x & ((1 << p.vector_shift) - 1);
  }

  // Whether the blocks of a cluster have a part each of the first product.
  __device__ bool shares_squeezed() const { return params.part_squeezed < params.squeezed; }

  __device__ float* floats(int at) const { return reinterpret_cast<float*>(shared + at); }
  static __device__ float rounded(float value) { return float(T(value)); }

  // The weights of this block's results of both products.
  __device__ const T* squeeze_weights() const {
    if (params.keeps_weights) return reinterpret_cast<const T*>(shared + layout.weights);
    return static_cast<const T*>(params.squeeze.weights) +
           int64_t(first_squeezed) * params.channels;
  }
  __device__ const T* excite_weights() const {
    if (params.keeps_weights) return reinterpret_cast<const T*>(shared + layout.excite);
    return static_cast<const T*>(params.excite.weights) +
           int64_t(first_vector) * 8 * params.squeezed;
  }

  // Its biases, zeros where there are none, and its weights if it keeps them.
  __device__ void load_weights() const {
    load_bias(params.squeeze, layout.squeeze_bias, first_squeezed, own_squeezed);
    load_bias(params.excite, layout.excite_bias, first_vector * 8, own_vectors * 8);
    if (!params.keeps_weights) return;
    const T* squeeze = static_cast<const T*>(params.squeeze.weights);
    const T* excite = static_cast<const T*>(params.excite.weights);
    copy(squeeze + int64_t(first_squeezed) * params.channels, layout.weights,
         own_squeezed * params.channels / 8);
    copy(excite + int64_t(first_vector) * 8 * params.squeezed, layout.excite,
         own_vectors * params.squeezed);
  }

  __device__ void load_bias(const SqueezeProduct& product, int to, int first, int count) const {
    const T* bias = static_cast<const T*>(product.bias);
    for (int i = threadIdx.x; i < count; i += kThreads) {
      floats(to)[i] = bias ? float(bias[first + i]) : 0.0f;
    }
  }

  __device__ void copy(const T* from, int to, int vectors) const {
    const uint4* source = reinterpret_cast<const uint4*>(from);
    uint4* target = reinterpret_cast<uint4*>(shared + to);
#pragma unroll 4
    for (int i = threadIdx.x; i < vectors; i += kThreads) target[i] = source[i];
  }

  // Where this thread's vector of a pixel lies in an image tensor.
  __device__ int64_t at(int pixel) const {
    const int64_t row = int64_t(image) * params.pixels + first_pixel + pixel;
    return row * params.vectors + first_vector + vector;
  }

  // Adds up this thread's vector over its pixels, and keeps them.
  __device__ void sum_pixels() const {
    constexpr int kAtOnce = 4;
    const uint4* x = static_cast<const uint4*>(params.x);
    uint4* kept = reinterpret_cast<uint4*>(shared + layout.pixels);
    float sum[8] = {};
    if (vector < own_vectors) {
      for (int pixel = lane; pixel < own_pixels; pixel += kAtOnce * lanes) {
        uint4 raw[kAtOnce];
#pragma unroll
        for (int i = 0; i < kAtOnce; ++i) {
          const int own = pixel + i * lanes;
          raw[i] = own < own_pixels ? x[at(own)] : uint4();
        }
#pragma unroll
        for (int i = 0; i < kAtOnce; ++i) {
          const int own = pixel + i * lanes;
          if (params.keeps_pixels && own < own_pixels) {
            kept[own * params.part_vectors + vector] = raw[i];
          }
          float value[8];
          Vector16<T>::unpack(raw[i], value);
#pragma unroll
          for (int j = 0; j < 8; ++j) sum[j] += value[j];
        }
      }
    }
    // Threads of a warp with the same vector first.
#pragma unroll
    for (int i = 16; i > 0; i /= 2) {
      if (i >> params.vector_shift == 0) break;
#pragma unroll
      for (int j = 0; j < 8; ++j) sum[j] += __shfl_xor_sync(~0u, sum[j], i);
    }
    const int row = params.vector_shift < 5 ? threadIdx.x / 32 : lane;
    if (params.vector_shift < 5 && threadIdx.x % 32 >> params.vector_shift) return;
    float4* scratch = reinterpret_cast<float4*>(floats(layout.scratch));
    float4* to = scratch + ((row << params.vector_shift) + vector) * 2;
    to[0] = make_float4(sum[0], sum[1], sum[2], sum[3]);
    to[1] = make_float4(sum[4], sum[5], sum[6], sum[7]);
  }

  // Whether each block has all pixels of its channels.
  __device__ bool has_means() const { return params.channel_parts == params.cluster; }

  // Adds up the sums of the warps and hands them to all blocks; means, if it has all pixels.
  __device__ void push_sums() const {
    const int mine = own_vectors * 8, row = 8 << params.vector_shift;
    const int rows = params.vector_shift < 5 ? kSqueezeWarps : lanes;
    const int warp = threadIdx.x / 32, block = warp & (params.cluster - 1);
    const int sharing = kSqueezeWarps >> params.cluster_shift;  // warps for a block
    const float* scratch = floats(layout.scratch);
    const int pixel_part = rank / params.channel_parts;
    float* to = floats(layout.sums) + pixel_part * params.channels + first_vector * 8;
    const float scale = 1.0f / float(params.pixels);
    for (int channel = (warp >> params.cluster_shift) * 32 + threadIdx.x % 32; channel < mine;
         channel += 32 * sharing) {
      float sum = 0.0f;
#pragma unroll
      for (int i = 0; i < kSqueezeWarps; ++i) {
        if (i < rows) sum += scratch[i * row + channel];
      }
      store_cluster(to + channel, block, has_means() ? rounded(sum * scale) : sum);
    }
  }

  // The means of all channels, from the sums of all parts of the pixels.
  __device__ void find_means() const {
    const float* sums = floats(layout.sums);
    const int parts = params.cluster / params.channel_parts;
    const float scale = 1.0f / float(params.pixels);
    for (int channel = threadIdx.x; channel < params.channels; channel += kThreads) {
      float sum = 0.0f;
#pragma unroll
      for (int i = 0; i < kMostSqueezeCluster; ++i) {
        if (i < parts) sum += sums[i * params.channels + channel];
      }
      floats(layout.means)[channel] = rounded(sum * scale);
    }
  }

  // A value at the same place in the shared memory of a block of the cluster.
  static __device__ void store_cluster(float* to, int block, float value) {
    const uint32_t address = cluster_address(shared_address(to), block);
    asm volatile("st.shared::cluster.f32 [%0], %1;" ::"r"(address), "f"(value) : "memory");
  }

  // This block's results of the first product, for all blocks: neighbouring threads share one.
  __device__ void squeeze() const {
    const int shift = params.squeeze_shift, share = threadIdx.x & ((1 << shift) - 1);
    const uint4* weights = reinterpret_cast<const uint4*>(squeeze_weights());
    const float4* means = reinterpret_cast<const float4*>(floats(layout.means));
    for (int first = 0; first < own_squeezed; first += kThreads >> shift) {
      const int i = first + (threadIdx.x >> shift);
      float sum = 0.0f;
      if (i < own_squeezed) {
#pragma unroll 4
        for (int j = share; j < params.vectors; j += 1 << shift) {
          float weight[8];
          Vector16<T>::unpack(weights[i * params.vectors + j], weight);
          const float4 low = means[2 * j], high = means[2 * j + 1];
          sum += weight[0] * low.x + weight[1] * low.y + weight[2] * low.z + weight[3] * low.w;
          sum += weight[4] * high.x + weight[5] * high.y + weight[6] * high.z + weight[7] * high.w;
        }
      }
      sum = shared_sum(sum, shift);
      if (i >= own_squeezed) continue;
      sum += floats(layout.squeeze_bias)[i];
      const float result = rounded(squeeze_activated(sum, params.squeeze));
      float* to = floats(layout.squeezed) + first_squeezed + i;
      if (!shares_squeezed()) {
        if (share == 0) *to = result;
      } else {
        for (int block = share; block < params.cluster; block += 1 << shift) {
          store_cluster(to, block, result);
        }
      }
    }
  }

  // The gates of this block's channels, in the same way.
  __device__ void excite() const {
    const int shift = params.excite_shift, share = threadIdx.x & ((1 << shift) - 1);
    const int own = own_vectors * 8;
    const T* weights = excite_weights();
    const float* squeezed = floats(layout.squeezed);
    for (int first = 0; first < own; first += kThreads >> shift) {
      const int channel = first + (threadIdx.x >> shift);
      float sum = 0.0f;
      if (channel < own) {
#pragma unroll 4
        for (int j = share; j < params.squeezed; j += 1 << shift) {
          sum += float(weights[channel * params.squeezed + j]) * squeezed[j];
        }
      }
      sum = shared_sum(sum, shift);
      if (channel >= own || share > 0) continue;
      sum += floats(layout.excite_bias)[channel];
      floats(layout.gates)[channel] = rounded(gate_activated(sum, params.excite));
    }
  }

  // Of 1 << shift neighbouring threads.
  static __device__ __forceinline__ float shared_sum(float sum, int shift) {
#pragma unroll
    for (int i = 0; i < 5; ++i) {
      if (i < shift) sum += __shfl_xor_sync(~0u, sum, 1 << i);
    }
    return sum;
  }

  __device__ void multiply() const {
    if (vector >= own_vectors) return;
    constexpr int kAtOnce = 2;
    const PairBounds<T> bounds(params.activation, params.bounds);
    const uint4* x = static_cast<const uint4*>(params.x);
    const uint4* kept = reinterpret_cast<const uint4*>(shared + layout.pixels);
    const uint4* residual = static_cast<const uint4*>(params.residual);
    uint4* y = static_cast<uint4*>(params.y);
    float gates[8];
#pragma unroll
    for (int j = 0; j < 8; ++j) gates[j] = floats(layout.gates)[vector * 8 + j];
    for (int pixel = lane; pixel < own_pixels; pixel += kAtOnce * lanes) {
      uint4 raw[kAtOnce], add[kAtOnce];
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        const int own = min(pixel + i * lanes, own_pixels - 1);
        raw[i] = params.keeps_pixels ? kept[own * params.part_vectors + vector] : x[at(own)];
        add[i] = residual ? residual[at(own)] : uint4();
      }
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        float value[8], more[8];
        Vector16<T>::unpack(raw[i], value);
        Vector16<T>::unpack(add[i], more);
#pragma unroll
        for (int j = 0; j < 8; ++j) value[j] = value[j] * gates[j] + more[j];
        uint4 packed = Vector16<T>::pack(value);
        packed.x = clip_pair(packed.x, bounds);
        packed.y = clip_pair(packed.y, bounds);
        packed.z = clip_pair(packed.z, bounds);
        packed.w = clip_pair(packed.w, bounds);
        const int own = pixel + i * lanes;
        if (own < own_pixels) y[at(own)] = packed;
      }
    }
  }
};

// Grid: a cluster for each image.
template <class T>
__global__ void __launch_bounds__(kSqueezeThreads)
    squeeze_excite(const __grid_constant__ SqueezeExciteParams params) {
  extern __shared__ __align__(16) uint8_t squeeze_shared[];
  launch_dependents();
  cluster_begin();
  const SqueezeExciteBlock<T> block(params, squeeze_shared);
  if (!params.constant_weights) wait_for_predecessors();
  block.load_weights();
  if (params.constant_weights) wait_for_predecessors();
  block.sum_pixels();
  cluster_end();  // all blocks are there
  __syncthreads();
  block.push_sums();
  cluster_sync();
  if (!block.has_means()) {
    block.find_means();
    __syncthreads();
  }
  block.squeeze();
  if (block.shares_squeezed()) {
    cluster_sync();
  } else {
    __syncthreads();
  }
  block.excite();
  __syncthreads();
  block.multiply();
}

}  // namespace convoy::sm90
