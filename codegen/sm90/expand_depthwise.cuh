// A 1x1 convolution that widens (the expansion of an inverted residual) and the depthwise convolution
// behind it on sm_90a. The wide tensor between them stays in shared memory.
//
// A block has some of the wide channels, whose weights it keeps, and takes tiles of outputs in turn.
// It goes down the rows of a tile in chunks: TMA brings the input's pixels, the tensor cores widen
// them, and the block keeps the activated and rounded result. Each lane then has two channels of a
// strip of columns: it reads each wide pixel once and adds it to all rows of outputs that it belongs
// to, whose sums it keeps from chunk to chunk. So no row is widened twice within a tile. What blocks
// of an SM wait for, other blocks hide.
#pragma once

#include <type_traits>

#include "convoy/grid_control.cuh"
#include "expand_depthwise_config.cuh"
#include "tma_2d.cuh"

namespace convoy::sm90 {

// The place of a tile: its first image and output, and its input.
struct ExpandPlace {
  int n, p, q, height, left, chunks;
  ExpandRows rows;
  __device__ ExpandPlace(const ExpandParams& params, int number) {
    const ExpandShape& s = params.shape;
    const ExpandTile& t = params.tile;
    const int line = params.by_across.divide(number), image = params.by_down.divide(line);
    n = image * t.images;
    p = (line - image * t.down) * t.height;
    q = (number - line * t.across) * t.width;
    height = min(t.height, s.p - p);
    left = expand_left(s, t, q);
    rows = expand_rows(s, p, height);
    chunks = params.by_rows.divide(rows.end - rows.begin + t.rows - 1);
  }
};

// One thread: the pixels of a chunk of a tile, all channels.
template <class Config>
__device__ void load_pixels(const ExpandParams& params, const ExpandShared<Config>& shared,
                            const ExpandPlace& place, int chunk) {
  const ExpandTile& t = params.tile;
  barrier_expect(shared.pixels_full(), params.slabs * t.images * t.rows * t.pitch * 128);
  for (int i = 0; i < params.slabs; ++i) {
    load_4d(shared.pixels(i), &params.x, shared.pixels_full(), i * 64, place.left,
            place.rows.begin + chunk * t.rows, place.n);
  }
}

// All threads: the depthwise filter, as (tap, channel), and the bias of the 1x1 convolution.
template <class Config>
__device__ void load_filter(const ExpandParams& params, const ExpandShared<Config>& shared,
                            int first_channel) {
  using T = typename Config::Element;
  const T* filter = static_cast<const T*>(params.filter) + int64_t(first_channel) * Config::kTaps;
  const int channels = min(Config::kColumns, params.k - first_channel);
  for (int i = threadIdx.x; i < Config::kColumns * Config::kTaps; i += Config::kThreads) {
    const int channel = i / Config::kTaps, tap = i - channel * Config::kTaps;
    store_shared(shared.filter(tap) + 4 * channel, channel < channels ? float(filter[i]) : 0.0f);
  }
}

template <class Config>
__device__ void load_bias(const ExpandParams& params, const ExpandShared<Config>& shared,
                          int first_channel) {
  using T = typename Config::Element;
  const T* bias = static_cast<const T*>(params.expand_bias);
  for (int i = threadIdx.x; i < Config::kColumns; i += Config::kThreads) {
    const int channel = first_channel + i;
    store_shared(shared.bias() + 4 * i, bias && channel < params.k ? float(bias[channel]) : 0.0f);
  }
}

// The block: sums of 64 pixels of the chunk in all of its channels, which begin as the bias. They are
// there when the products have been waited for.
template <class Config>
__device__ __forceinline__ void multiply(const ExpandParams& params,
                                         const ExpandShared<Config>& shared, int group,
                                         float (&d)[Config::kColumns / 2]) {
  using Mma = MmaRows<typename Config::Element, Config::kColumns>;
  const uint32_t bias = shared.bias() + threadIdx.x % 4 * 8;
#pragma unroll
  for (int j = 0; j < Config::kColumns / 8; ++j) {
    const float2 two = load_shared_float2(bias + 32 * j);
    d[4 * j] = d[4 * j + 2] = two.x;
    d[4 * j + 1] = d[4 * j + 3] = two.y;
  }
  pin(d);
  mma_fence();
  for (int i = 0; i < params.steps; ++i) {
    const uint64_t a = operand(shared.pixels(i / 4) + group * 64 * 128, 16, 1024);
    const uint64_t b = operand(shared.weights(i / 4), 16, 1024);
    Mma::mma(d, a + i % 4 * 2, b + i % 4 * 2, 1);
  }
  mma_commit();
}

// The sums, activated and rounded, to where the wide pixels lie.
template <class Config>
__device__ __forceinline__ void keep(const ExpandParams& params, const ExpandShared<Config>& shared,
                                     int group, float (&d)[Config::kColumns / 2]) {
  using T = typename Config::Element;
  pin(d);
  activate_chosen(d, params.expand_activation);
  const PairBounds<T> bounds(params.expand_activation, params.expand_bounds);
  const int lane = threadIdx.x % 32, row = group * 64 + threadIdx.x / 32 * 16 + lane % 16;
  const uint32_t to = shared.wide() + row * Config::kPitch + lane / 16 * 16;
#pragma unroll
  for (int j = 0; j < Config::kColumns / 8; j += 2) {
    uint32_t rounded[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      rounded[i] = clip_pair(pack<T>(d[4 * j + 2 * i], d[4 * j + 2 * i + 1]), bounds);
    }
    store_matrices(to + 16 * j, rounded[0], rounded[1], rounded[2], rounded[3]);
  }
}

// A lane: a strip of a tile, in two channels.
template <class Config>
struct ExpandUnit {
  using T = typename Config::Element;
  static constexpr int kStrip = kExpandStrip, kF = Config::kFilter, kStride = Config::kStride;
  static constexpr int kSlots = Config::kSlots, kPeriod = Config::kPeriod;
  using Sums = float[kStrip * 2];

  const ExpandParams& params;
  const int image, column, in_block, channel;
  const bool has_channel;
  const PairBounds<T> bounds;
  float2 bias, w[kF * kF];
  uint32_t from;  // of its first column in the first row of wide pixels
  // Of the tile: what is not inside of the image is 0 here; where its row of outputs goes, of how many
  // columns; the next row of the input, counted from the first window, and as a row of the period; the
  // sums of rows of outputs that are not done.
  uint32_t inside[Config::kWindow];
  T* to;
  int count, next, phase;
  Sums sums[kSlots];

  __device__ ExpandUnit(const ExpandParams& params, int first_channel)
      : params(params),
        image(params.by_strips.divide(threadIdx.x / Config::kLanes)),
        column((threadIdx.x / Config::kLanes - image * params.tile.strips) * kStrip),
        in_block(threadIdx.x % Config::kLanes * 2),
        channel(first_channel + in_block),
        has_channel(threadIdx.x < Config::kUnits * Config::kLanes && channel < params.k &&
                    image < params.tile.images),
        bounds(params.activation, params.bounds),
        bias(make_float2(0.0f, 0.0f)) {
    if (params.bias && has_channel) {
      const T* values = static_cast<const T*>(params.bias) + channel;
      bias = make_float2(float(values[0]), float(values[1]));
    }
  }

  __device__ void load_filter(const ExpandShared<Config>& shared) {
#pragma unroll
    for (int i = 0; i < kF * kF; ++i) w[i] = load_shared_float2(shared.filter(i) + 4 * in_block);
  }

  __device__ void begin(const ExpandShared<Config>& shared, const ExpandPlace& place) {
    const ExpandShape& s = params.shape;
    const ExpandTile& t = params.tile;
    const bool mine = has_channel && place.n + image < s.images;
    count = mine ? min(t.width, s.q - place.q) - column : 0;
    to = static_cast<T*>(params.y) +
         ((int64_t(place.n + image) * s.p + place.p) * s.q + place.q + column) * params.k + channel;
    const int first = (place.q + column) * kStride - s.pad_left - place.left;
    from = shared.wide() + (image * t.rows * t.pitch + first) * Config::kPitch + 2 * in_block;
#pragma unroll
    for (int j = 0; j < Config::kWindow; ++j) {
      inside[j] = unsigned(first + j) < unsigned(t.pitch) ? ~0u : 0;
    }
    next = phase = 0;
  }

  // The rows of a chunk; with the first one those above the image, with the last one those below.
  __device__ __forceinline__ void add_chunk(const ExpandPlace& place, int chunk) {
    if (count <= 0) return;
    const ExpandRows& rows = place.rows;
    const int first = rows.begin + chunk * params.tile.rows;
    const int there = min(params.tile.rows, rows.end - first);
    const int above = chunk == 0 ? rows.begin - rows.window : 0;
    const int window_end = rows.window + (place.height - 1) * kStride + kF;
    const int end = chunk + 1 < place.chunks ? there : window_end - first;
    uint32_t row = from;
#pragma unroll 1
    for (int i = -above; i < end; ++i) {
      Sums done;
      with<kPeriod>(phase, [&](auto number) {
        constexpr int kRow = decltype(number)::value;
        if (unsigned(i) < unsigned(there)) {
          add<kRow>(row);
        } else if constexpr (kRow % kStride == 0) {
          begin_sums(sums[kRow / kStride]);
        }
        constexpr int kFirst = kRow + kPeriod * kF - (kF - 1);  // of the outputs that end here
        if constexpr (kFirst % kStride == 0) {
#pragma unroll
          for (int j = 0; j < 2 * kStrip; ++j) done[j] = sums[kFirst / kStride % kSlots][j];
        }
      });
      const int windows = next - (kF - 1);  // rows of the input that begin one which has ended
      if (windows >= 0 && windows % kStride == 0) store(done);
      if (i >= 0) row += params.tile.pitch * Config::kPitch;
      ++next;
      if (++phase == kPeriod) phase = 0;
    }
  }

 private:
  // Calls `use` with `value`, which is less than kCount, as a constant.
  template <int kCount, int kFrom = 0, class Use>
  static __device__ __forceinline__ void with(int value, Use use) {
    if constexpr (kFrom + 1 < kCount) {
      if (value != kFrom) return with<kCount, kFrom + 1>(value, use);
    }
    use(std::integral_constant<int, kFrom>());
  }

  __device__ __forceinline__ void begin_sums(Sums& sum) const {
#pragma unroll
    for (int j = 0; j < kStrip; ++j) sum[2 * j] = bias.x, sum[2 * j + 1] = bias.y;
  }

  // Adds a row of wide pixels, the kRow-th of a period, to the rows of outputs that it belongs to.
  template <int kRow>
  __device__ __forceinline__ void add(uint32_t row) {
    float2 x[Config::kWindow];
#pragma unroll
    for (int j = 0; j < Config::kWindow; ++j) {
      const uint32_t pair = load_shared_u32(row + j * Config::kPitch) & inside[j];
      x[j] = make_float2(unpack_low<T>(pair), unpack_high<T>(pair));
    }
#pragma unroll
    for (int r = 0; r < kF; ++r) {
      if ((kRow + kF * kStride - r) % kStride) continue;
      Sums& sum = sums[(kRow + kPeriod * kF - r) / kStride % kSlots];
#pragma unroll
      for (int s = 0; s < kF; ++s) {
        const bool starts = r == 0 && s == 0;
        const float2 tap = w[r * kF + s];
#pragma unroll
        for (int j = 0; j < kStrip; ++j) {
          const float2 pixel = x[j * kStride + s];
          sum[2 * j] = pixel.x * tap.x + (starts ? bias.x : sum[2 * j]);
          sum[2 * j + 1] = pixel.y * tap.y + (starts ? bias.y : sum[2 * j + 1]);
        }
      }
    }
  }

  __device__ __forceinline__ void store(Sums& sum) {
    activate_chosen(sum, params.activation);
    uint32_t rounded[kStrip];
#pragma unroll
    for (int j = 0; j < kStrip; ++j) {
      rounded[j] = clip_pair(pack<T>(sum[2 * j], sum[2 * j + 1]), bounds);
    }
    if (count >= kStrip) {
#pragma unroll
      for (int j = 0; j < kStrip; ++j) {
        *reinterpret_cast<uint32_t*>(to + int64_t(j) * params.k) = rounded[j];
      }
    } else {
#pragma unroll
      for (int j = 0; j < kStrip - 1; ++j) {
        if (j < count) *reinterpret_cast<uint32_t*>(to + int64_t(j) * params.k) = rounded[j];
      }
    }
    to += int64_t(params.shape.q) * params.k;
  }
};

// Grid: blocks of channels, blocks that share the tiles.
template <class Config>
__global__ void __launch_bounds__(Config::kThreads, Config::kBlocksOfSm)
    expand_depthwise(const __grid_constant__ ExpandParams params) {
  extern __shared__ uint8_t raw[];
  launch_dependents();
  const ExpandShared<Config> shared(raw, params);
  const int first_channel = blockIdx.x * Config::kColumns;
  if (threadIdx.x == 0) {
    barrier_init(shared.pixels_full(), 1);
    barrier_init(shared.weights_full(), 1);
    fence_barrier_init();
    prefetch_map(&params.x);
    prefetch_map(&params.w);
  }
  __syncthreads();
  if (!params.constant_weights) wait_for_predecessors();
  if (threadIdx.x == 0) {
    barrier_expect(shared.weights_full(), params.slabs * Config::kColumns * 128);
    for (int i = 0; i < params.slabs; ++i) {
      load_2d(shared.weights(i), &params.w, shared.weights_full(), i * 64, first_channel);
    }
  }
  load_filter(params, shared, first_channel);
  load_bias(params, shared, first_channel);
  ExpandUnit<Config> unit(params, first_channel);
  if (params.constant_weights) wait_for_predecessors();
  ExpandPlace place(params, blockIdx.y);
  if (threadIdx.x == 0) load_pixels(params, shared, place, 0);
  __syncthreads();
  unit.load_filter(shared);
  barrier_wait(shared.weights_full(), 0);
  uint32_t parity = 0;
  for (int number = blockIdx.y; number < params.tiles; number += gridDim.y) {
    const ExpandPlace here = place;
    unit.begin(shared, here);
    for (int chunk = 0; chunk < here.chunks; ++chunk, parity ^= 1) {
      barrier_wait(shared.pixels_full(), parity);
#pragma unroll 1
      for (int group = 0; group < params.tile.groups; ++group) {
        float d[Config::kColumns / 2];
        multiply(params, shared, group, d);
        mma_wait<0>();
        keep(params, shared, group, d);
      }
      __syncthreads();
      const bool last = chunk + 1 == here.chunks;
      if (last) place = ExpandPlace(params, number + gridDim.y);
      if (threadIdx.x == 0 && (!last || number + int(gridDim.y) < params.tiles)) {
        load_pixels(params, shared, place, last ? 0 : chunk + 1);
      }
      unit.add_chunk(here, chunk);
      __syncthreads();
    }
  }
}

}  // namespace convoy::sm90
