// o = softmax(scale * q k^T + bias) v in one pass, for float16 and bfloat16 from sm_80 on.
//
// A block computes kRows queries of one head. Its warps form a grid of kRowWarps x kKeyWarps: each
// takes 16 queries and, of every tile of kKeyTile keys, its own kKeyTile / kKeyWarps of them. Scores
// stay in registers; maxima and sums of the softmax are carried along the tiles in float32 (the
// online softmax of Milakov and Gimelshein, arXiv:1805.02867, as in FlashAttention, arXiv:2205.14135).
// With several key warps their partial results are joined at the end. Few queries take few row warps
// and many key warps: as many threads, more blocks.
//
// q, k, v and o are read and written through strides, so that slices and permutations of a GEMM's
// result need no copy.
#pragma once

#include "convoy/grid_control.cuh"
#include "mma.cuh"

namespace convoy::attention {

constexpr float kInfinity = __builtin_huge_valf();

template <class T, int dim, int value_dim, int row_warps, int key_warps, int key_tile>
struct Config {
  using Element = T;
  static constexpr int kDim = dim, kValueDim = value_dim;  // padded
  static constexpr int kRowWarps = row_warps, kKeyWarps = key_warps, kKeyTile = key_tile;
  static constexpr int kRows = 16 * kRowWarps, kSlice = kKeyTile / kKeyWarps;
  static constexpr int kThreads = 32 * kRowWarps * kKeyWarps;
  static constexpr int kStages = 2;
  // Queries stay in registers; those of the largest heads have no room there and are loaded again for
  // each tile.
  static constexpr bool kKeepQueries = kDim <= 96;
  static constexpr int kKept = kKeepQueries ? kDim / 16 : 1;
  // Rows in shared memory are 16 bytes longer than they need be: eight of them then lie in
  // different banks.
  static constexpr int kPitch = kDim + 8, kValuePitch = kValueDim + 8;
  static constexpr int kQueryElements = kRows * (kPitch > kValuePitch ? kPitch : kValuePitch);
  static constexpr int kStageElements = kKeyTile * (kPitch + kValuePitch);
  static constexpr int kJoinedBytes =
      kKeyWarps == 1 ? 0 : kKeyWarps * kRows * (kValueDim + 2) * int(sizeof(float));

  static_assert(kDim % 16 == 0 && kValueDim % 16 == 0, "whole steps of the tensor cores");
  static_assert(kSlice % 16 == 0, "whole steps of the tensor cores");

  // Keys that fit one tile need one stage.
  static constexpr int shared_bytes(int keys) {
    int stages = keys > kKeyTile ? kStages : 1;
    int bytes = (kQueryElements + stages * kStageElements) * int(sizeof(T));
    return bytes > kJoinedBytes ? bytes : kJoinedBytes;
  }
};

struct Strides {
  int64_t outer, batch, head;
  int row;
};

struct Params {
  const void *q, *k, *v, *bias;  // of outer 0, batch 0, head 0, row 0
  void* o;
  Strides q_strides, k_strides, v_strides, o_strides, bias_strides;
  int batch, heads, queries, keys, dim, value_dim;
  int row_tiles;    // blocks of a head
  float scale;      // times log2(e)
  bool late_scale;  // applied in the softmax: no bias is in the way, and the scale is positive
  bool causal, zeros, wide_bias;
};

__device__ inline int64_t start_of(const Strides& s, int outer, int batch, int head) {
  return outer * s.outer + batch * s.batch + head * s.head;
}

// kRows rows from `first` on to shared memory; zeros beyond `rows` and `columns`.
template <int kRows, int kColumns, int kPitch, int kThreads, class T>
__device__ void load_rows(T* shared, const T* global, int stride, int first, int rows,
                          int columns) {
  constexpr int kVectors = kColumns / 8, kCount = kRows * kVectors;
  const T* start = global + int64_t(first) * stride;
  int left = rows - first;
#pragma unroll
  for (int begin = 0; begin < kCount; begin += kThreads) {
    int i = begin + threadIdx.x;
    if (kCount % kThreads != 0 && i >= kCount) break;
    int row = i / kVectors, column = i % kVectors * 8;
    bool inside = row < left && column < columns;
    const T* from = inside ? start + int64_t(row) * stride + column : global;
    copy_async(shared + row * kPitch + column, from, inside);
  }
}

// What a warp knows of its 16 queries: of rows g and g + 8 the largest score and the sum of the
// thread's powers, and its part of the result.
template <class Config>
struct Partial {
  float largest[2] = {-kInfinity, -kInfinity};
  float sum[2] = {0.f, 0.f};
  float values[Config::kValueDim / 8][4] = {};
};

template <class Config>
using Scores = float[Config::kSlice / 8][4];

// Scores of 16 queries and the warp's keys of a tile; with kPart only of the first `groups` times 16
// keys. Products that follow each other have sums of their own, so that none waits for the last one.
template <class Config, bool kPart, class T>
__device__ void multiply_keys(Scores<Config>& scores, uint32_t (&q)[Config::kKept][4],
                              const T* queries, const T* keys, int groups) {
  int lane = threadIdx.x % 32;
  const T* own = keys + (lane / 16 * 8 + lane % 8) * Config::kPitch + lane / 8 % 2 * 8;
#pragma unroll
  for (int j = 0; j < Config::kSlice / 8; ++j) {
#pragma unroll
    for (int i = 0; i < 4; ++i) scores[j][i] = 0.f;
  }
#pragma unroll
  for (int step = 0; step < Config::kDim / 16; ++step) {
    constexpr bool kKeep = Config::kKeepQueries;
    if (!kKeep) load_matrices(q[0], queries + step * 16);
    const uint32_t (&a)[4] = q[kKeep ? step : 0];
#pragma unroll
    for (int j = 0; j < Config::kSlice / 16; ++j) {
      if (kPart && j >= groups) break;
      uint32_t b[4];
      load_matrices(b, own + j * 16 * Config::kPitch + step * 16);
      Numbers<T>::mma(scores[2 * j], a, b[0], b[1]);
      Numbers<T>::mma(scores[2 * j + 1], a, b[2], b[3]);
    }
  }
}

constexpr float kLog2E = 1.4426950408889634f;

// Scales, and adds a bias of type B; `row` and `key` are those of the thread's first score. Beyond the
// last query or key nothing is added.
template <class Config, class B, class Widen>
__device__ void add_bias(Scores<Config>& scores, const Params& p, const B* bias, int row, int key,
                         Widen widen) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    int own_row = row + 8 * half;
    if (own_row >= p.queries) continue;
    const B* from = bias + int64_t(own_row) * p.bias_strides.row;
#pragma unroll
    for (int j = 0; j < Config::kSlice / 8; ++j) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        int own_key = key + j * 8 + i;
        float& score = scores[j][2 * half + i];
        if (own_key < p.keys) score = score * p.scale + widen(from[own_key]) * kLog2E;
      }
    }
  }
}

// Hides what a query does not see.
template <class Config>
__device__ void mask(Scores<Config>& scores, const Params& p, int row, int key) {
#pragma unroll
  for (int j = 0; j < Config::kSlice / 8; ++j) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      int own_row = row + i / 2 * 8, own_key = key + j * 8 + i % 2;
      if (own_key >= p.keys || (p.causal && own_key > own_row)) scores[j][i] = -kInfinity;
    }
  }
}

// One step of the online softmax of `scale` times the scores: they become powers of 2, and what was
// summed before is rescaled. `scale` is positive.
template <class Config>
__device__ void online_softmax(Scores<Config>& scores, Partial<Config>& partial, float scale) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float largest = partial.largest[half];
#pragma unroll
    for (int j = 0; j < Config::kSlice / 8; ++j) {
      largest = fmaxf(largest, fmaxf(scores[j][2 * half], scores[j][2 * half + 1]));
    }
    largest = fmaxf(largest, __shfl_xor_sync(0xffffffff, largest, 1));
    largest = fmaxf(largest, __shfl_xor_sync(0xffffffff, largest, 2));
    // Where nothing has been seen yet all powers are 0, not those of a difference of infinities.
    float base = largest == -kInfinity ? 0.f : largest * scale;
    float rescale = exp2_approx(partial.largest[half] * scale - base), sum = 0.f;
#pragma unroll
    for (int j = 0; j < Config::kSlice / 8; ++j) {
#pragma unroll
      for (int i = 2 * half; i < 2 * half + 2; ++i) {
        scores[j][i] = exp2_approx(scores[j][i] * scale - base);
        sum += scores[j][i];
      }
    }
    partial.largest[half] = largest;
    partial.sum[half] = partial.sum[half] * rescale + sum;
#pragma unroll
    for (int j = 0; j < Config::kValueDim / 8; ++j) {
      partial.values[j][2 * half] *= rescale;
      partial.values[j][2 * half + 1] *= rescale;
    }
  }
}

// Adds powers times values, with kPart only of the first `groups` times 16 keys. The accumulators of
// two neighbouring score tiles are the fragment of a 16x16 operand.
template <class Config, bool kPart, class T>
__device__ void multiply_values(Partial<Config>& partial, const Scores<Config>& powers,
                                const T* values, int groups) {
  int lane = threadIdx.x % 32;
  const T* own = values + lane % 16 * Config::kValuePitch + lane / 16 * 8;
#pragma unroll
  for (int j = 0; j < Config::kSlice / 16; ++j) {
    if (kPart && j >= groups) break;
    const float (&low)[4] = powers[2 * j];
    const float (&high)[4] = powers[2 * j + 1];
    uint32_t a[4] = {Numbers<T>::pack(low[0], low[1]), Numbers<T>::pack(low[2], low[3]),
                     Numbers<T>::pack(high[0], high[1]), Numbers<T>::pack(high[2], high[3])};
#pragma unroll
    for (int column = 0; column < Config::kValueDim / 16; ++column) {
      uint32_t b[4];
      load_transposed(b, own + j * 16 * Config::kValuePitch + column * 16);
      Numbers<T>::mma(partial.values[2 * column], a, b[0], b[1]);
      Numbers<T>::mma(partial.values[2 * column + 1], a, b[2], b[3]);
    }
  }
}

// What a warp does with its keys of a tile. Where all of its queries see all of them, nothing is
// masked (kPart false).
template <class Config, bool kPart, class T>
__device__ void add_keys(Partial<Config>& partial, const Params& p, uint32_t (&q)[Config::kKept][4],
                         const T* queries, const T* keys, const T* values, int64_t bias,
                         int first_row, int first_key, int groups) {
  int lane = threadIdx.x % 32, row = first_row + lane / 4, key = first_key + lane % 4 * 2;
  Scores<Config> scores;
  multiply_keys<Config, kPart>(scores, q, queries, keys, groups);
  if (p.bias != nullptr && p.wide_bias) {
    add_bias<Config>(scores, p, static_cast<const float*>(p.bias) + bias, row, key,
                     [](float value) { return value; });
  } else if (p.bias != nullptr) {
    add_bias<Config>(scores, p, static_cast<const T*>(p.bias) + bias, row, key,
                     [](T value) { return Numbers<T>::widen(value); });
  }
  if (p.bias == nullptr && !p.late_scale) {
#pragma unroll
    for (int j = 0; j < Config::kSlice / 8; ++j) {
#pragma unroll
      for (int i = 0; i < 4; ++i) scores[j][i] *= p.scale;
    }
  }
  if (kPart) mask<Config>(scores, p, row, key);
  online_softmax<Config>(scores, partial, p.late_scale ? p.scale : 1.f);
  multiply_values<Config, kPart>(partial, scores, values, groups);
}

// 1 / sum. A row that has seen no key: zeros, or the NaN of 0 / 0.
__device__ inline float reciprocal(float sum, bool zeros) {
  return sum == 0.f && zeros ? 0.f : 1.f / sum;
}

// The result of a block with one key warp for each row: to shared memory, where the queries were,
// then in whole vectors to o.
template <class Config, class T>
__device__ void store_rows(const Partial<Config>& partial, const Params& p, T* shared, T* o,
                           int first_row) {
  int lane = threadIdx.x % 32;
  float scale[2] = {reciprocal(partial.sum[0], p.zeros), reciprocal(partial.sum[1], p.zeros)};
  T* own = shared + threadIdx.x / 32 * 16 * Config::kValuePitch;
#pragma unroll
  for (int j = 0; j < Config::kValueDim / 8; ++j) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float* pair = partial.values[j] + 2 * half;
      T* to = own + (lane / 4 + 8 * half) * Config::kValuePitch + j * 8 + lane % 4 * 2;
      *reinterpret_cast<uint32_t*>(to) =
          Numbers<T>::pack(pair[0] * scale[half], pair[1] * scale[half]);
    }
  }
  __syncwarp();
  constexpr int kVectors = Config::kValueDim / 8;
  for (int i = lane; i < 16 * kVectors; i += 32) {
    int row = i / kVectors, column = i % kVectors * 8;
    if (first_row + row >= p.queries || column >= p.value_dim) continue;
    *reinterpret_cast<uint4*>(o + int64_t(first_row + row) * p.o_strides.row + column) =
        *reinterpret_cast<const uint4*>(own + row * Config::kValuePitch + column);
  }
}

// Joins the partial results of the key warps through shared memory.
template <class Config, class T>
__device__ void join_and_store(const Partial<Config>& partial, const Params& p, float* shared, T* o,
                               int first_row) {
  float scale = p.late_scale ? p.scale : 1.f;  // of the largest scores
  constexpr int kRows = Config::kRows, kColumns = Config::kValueDim;
  float* largest = shared + Config::kKeyWarps * kRows * kColumns;
  float* sums = largest + Config::kKeyWarps * kRows;
  int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  int base = warp / Config::kRowWarps * kRows + warp % Config::kRowWarps * 16 + lane / 4;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    int row = base + 8 * half;
    if (lane % 4 == 0) {
      largest[row] = partial.largest[half] * scale;
      sums[row] = partial.sum[half];
    }
#pragma unroll
    for (int j = 0; j < kColumns / 8; ++j) {
      float2 pair = {partial.values[j][2 * half], partial.values[j][2 * half + 1]};
      *reinterpret_cast<float2*>(shared + row * kColumns + j * 8 + lane % 4 * 2) = pair;
    }
  }
  __syncthreads();
  constexpr int kVectors = kColumns / 8;
  for (int i = threadIdx.x; i < kRows * kVectors; i += Config::kThreads) {
    int row = i / kVectors, column = i % kVectors * 8;
    if (first_row + row >= p.queries || column >= p.value_dim) continue;
    float most = -kInfinity, sum = 0.f, result[8] = {};
#pragma unroll
    for (int part = 0; part < Config::kKeyWarps; ++part) {
      most = fmaxf(most, largest[part * kRows + row]);
    }
    if (most == -kInfinity) most = 0.f;
#pragma unroll
    for (int part = 0; part < Config::kKeyWarps; ++part) {
      int at = part * kRows + row;
      float weight = exp2_approx(largest[at] - most);
      sum += weight * sums[at];
#pragma unroll
      for (int e = 0; e < 8; ++e) result[e] += weight * shared[at * kColumns + column + e];
    }
    float over = reciprocal(sum, p.zeros);
    uint4 packed = {Numbers<T>::pack(result[0] * over, result[1] * over),
                    Numbers<T>::pack(result[2] * over, result[3] * over),
                    Numbers<T>::pack(result[4] * over, result[5] * over),
                    Numbers<T>::pack(result[6] * over, result[7] * over)};
    *reinterpret_cast<uint4*>(o + int64_t(first_row + row) * p.o_strides.row + column) = packed;
  }
}

template <class Config>
__global__ void __launch_bounds__(Config::kThreads) attention(const __grid_constant__ Params p) {
  using T = typename Config::Element;
  constexpr int kThreads = Config::kThreads, kKeyTile = Config::kKeyTile;
  extern __shared__ __align__(128) unsigned char shared[];
  T* queries = reinterpret_cast<T*>(shared);
  T* stages = queries + Config::kQueryElements;

  int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  int row_warp = warp % Config::kRowWarps, key_warp = warp / Config::kRowWarps;
  // The last queries first: where they are causal they see most keys.
  int tile = p.row_tiles - 1 - int(blockIdx.x % p.row_tiles);
  int problem = blockIdx.x / p.row_tiles;
  int head = problem % p.heads, batch = problem / p.heads % p.batch;
  int outer = problem / p.heads / p.batch;
  const T* q = static_cast<const T*>(p.q) + start_of(p.q_strides, outer, batch, head);
  const T* k = static_cast<const T*>(p.k) + start_of(p.k_strides, outer, batch, head);
  const T* v = static_cast<const T*>(p.v) + start_of(p.v_strides, outer, batch, head);
  T* o = static_cast<T*>(p.o) + start_of(p.o_strides, outer, batch, head);
  int64_t bias = start_of(p.bias_strides, outer, batch, head);

  int block_row = tile * Config::kRows, first_row = block_row + row_warp * 16;
  int keys = p.causal ? min(p.keys, block_row + Config::kRows) : p.keys;
  int tiles = (keys + kKeyTile - 1) / kKeyTile;
  int warp_keys = p.causal ? min(p.keys, first_row + 16) : p.keys;
  if (first_row >= p.queries) warp_keys = 0;  // a warp that only loads

  auto load_tile = [&](int t) {
    T* stage = stages + t % Config::kStages * Config::kStageElements;
    load_rows<kKeyTile, Config::kDim, Config::kPitch, kThreads>(stage, k, p.k_strides.row,
                                                                t * kKeyTile, p.keys, p.dim);
    load_rows<kKeyTile, Config::kValueDim, Config::kValuePitch, kThreads>(
        stage + kKeyTile * Config::kPitch, v, p.v_strides.row, t * kKeyTile, p.keys, p.value_dim);
  };
  wait_for_predecessors();
  load_rows<Config::kRows, Config::kDim, Config::kPitch, kThreads>(queries, q, p.q_strides.row,
                                                                   block_row, p.queries, p.dim);
  load_tile(0);
  commit_copies();

  uint32_t q_fragment[Config::kKept][4];
  const T* own_queries = queries + (row_warp * 16 + lane % 16) * Config::kPitch + lane / 16 * 8;
  Partial<Config> partial;
  for (int t = 0; t < tiles; ++t) {
    if (t + 1 < tiles) load_tile(t + 1);
    commit_copies();  // possibly an empty group, so that their number tells which one is there
    wait_copies<1>();
    __syncthreads();
    // Earlier, blocks of the next kernel would take the places of blocks that are still to come.
    if (t + 1 == tiles) launch_dependents();
    if (Config::kKeepQueries && t == 0) {
#pragma unroll
      for (int step = 0; step < Config::kKept; ++step) {
        load_matrices(q_fragment[step], own_queries + step * 16);
      }
    }
    const T* stage = stages + t % Config::kStages * Config::kStageElements;
    int slice = key_warp * Config::kSlice;  // of the tile's keys
    int first_key = t * kKeyTile + slice;
    const T* own_keys = stage + slice * Config::kPitch;
    const T* own_values = stage + kKeyTile * Config::kPitch + slice * Config::kValuePitch;
    // Keys that some query of the warp sees.
    int seen = min(warp_keys - first_key, Config::kSlice);
    bool whole =
        seen == Config::kSlice && (!p.causal || first_key + Config::kSlice - 1 <= first_row);
    if (whole) {
      add_keys<Config, false>(partial, p, q_fragment, own_queries, own_keys, own_values, bias,
                              first_row, first_key, Config::kSlice / 16);
    } else if (seen > 0) {
      add_keys<Config, true>(partial, p, q_fragment, own_queries, own_keys, own_values, bias,
                             first_row, first_key, (seen + 15) / 16);
    }
    __syncthreads();  // before the stage is loaded again
  }
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    partial.sum[half] += __shfl_xor_sync(0xffffffff, partial.sum[half], 1);
    partial.sum[half] += __shfl_xor_sync(0xffffffff, partial.sum[half], 2);
  }
  if constexpr (Config::kKeyWarps == 1) {
    store_rows<Config>(partial, p, queries, o, first_row);
  } else {
    join_and_store<Config>(partial, p, reinterpret_cast<float*>(shared), o, block_row);
  }
}

}  // namespace convoy::attention
