// A convolution with stride 1, the 1x1 convolution of its result with a residual, and the 1x1
// convolution of that, on sm_90a: a bottleneck of a residual network from its 3x3 convolution to the
// first one of the next bottleneck. The first result is never in memory, the second one is written
// and not read.
//
// A block holds the weights of all three and takes tiles of 8 x 8 outputs in turn, each of its
// warpgroups another one. TMA brings the input of a tile with the halo of the filter; under each tap
// the inputs of 8 outputs are consecutive rows of it, the next 8 lie a row of the image further. The
// rounded result stays in registers, where it is the left operand of the second convolution, which
// is computed by blocks of 64 channels: TMA brings the residual of a block into the slot that it is
// stored from. A block of the second result is again the left operand of the third convolution,
// which adds up over the blocks.
#pragma once

#include "bottleneck_store.cuh"

namespace convoy::sm90 {

// A warpgroup with tiles of its own.
template <class Config>
struct BottleneckConsumer {
  using T = typename Config::Element;
  using Pairs = uint32_t[4][4];  // 64 rounded channels, 16 each
  static constexpr int kMiddleSteps = Config::kMiddle / 16;
  static constexpr int kReduced = Config::kReduced > 0 ? Config::kReduced : 64;

  const BottleneckParams& params;
  const BottleneckShared<Config>& shared;
  const int group;
  const PairBounds<T> conv_bounds, expand_bounds, reduce_bounds;
  int slot = 0;  // of the next block
  uint32_t parity = 0;
  int stage = 0, used_stage = 0;  // of streamed weights: the next ones, and the first ones in use
  uint32_t stage_parity = 0;

  __device__ BottleneckConsumer(const BottleneckParams& params,
                                const BottleneckShared<Config>& shared, int group)
      : params(params),
        shared(shared),
        group(group),
        conv_bounds(params.conv.activation, params.conv.bounds),
        expand_bounds(params.expanded.activation, params.expanded.bounds),
        reduce_bounds(params.reduced.activation, params.reduced.bounds) {}

  // Sums that begin as the bias.
  template <int kCount>
  static __device__ __forceinline__ void begin(float (&d)[kCount], uint32_t bias) {
    bias += threadIdx.x % 4 * 8;
#pragma unroll
    for (int j = 0; j < kCount / 4; ++j) {
      const float2 two = load_shared_float2(bias + 32 * j);
      d[4 * j] = d[4 * j + 2] = two.x;
      d[4 * j + 1] = d[4 * j + 3] = two.y;
    }
    pin(d);
  }

  // Where weights lie: streamed ones when they are there.
  __device__ __forceinline__ uint32_t weights(uint32_t resident) {
    if constexpr (Config::kStreamed) {
      const uint32_t address = shared.stage(stage);
      barrier_wait(shared.stage_full(stage), stage_parity);
      if (++stage == params.stages) stage = 0, stage_parity ^= 1;
      return address;
    }
    return resident;
  }

  // Streamed weights are no longer needed.
  __device__ __forceinline__ void release(int count) {
    if constexpr (Config::kStreamed) {
      for (int i = 0; i < count; ++i) {
        if (threadIdx.x % 128 == 0) barrier_arrive(shared.stage_empty(used_stage));
        if (++used_stage == params.stages) used_stage = 0;
      }
    }
  }

  // The first convolution of a tile.
  __device__ __forceinline__ void convolve(float (&d)[Config::kMiddle / 2]) {
    using Mma = MmaRows<T, Config::kMiddle>;
    begin(d, shared.bias());
    // Descriptors count 16 bytes: 8 for a pixel.
    uint64_t tap_input = operand(shared.input(group, 0), 16, params.pitch * 128);
    uint32_t filter = shared.filter(0);
    const int next_row = params.dilation_h * params.pitch - params.filter_w * params.dilation_w;
    mma_fence();
    for (int tap = 0, column = 0; tap < params.taps; ++tap) {
      uint64_t a = tap_input;
      for (int i = 0; i < params.chunks; ++i) {
        const uint64_t b = operand(weights(filter), 16, 1024);
        if constexpr (Config::kStreamed) mma_fence();
#pragma unroll
        for (int k = 0; k < 4; ++k) Mma::mma(d, a + 2 * k, b + 2 * k, 1);
        a += params.input_stride / 16;
        filter += Config::kTapBytes;
        if constexpr (Config::kStreamed) {
          mma_commit();
          if (tap > 0 || i > 0) {
            mma_wait<1>();
            release(1);
          }
        }
      }
      tap_input += 8 * params.dilation_w;
      if (++column == params.filter_w) column = 0, tap_input += 8 * next_row;
    }
    if constexpr (!Config::kStreamed) mma_commit();
    mma_wait<0>();
    release(1);
    pin(d);
  }

  // Adds a product: pixels and 16 * kSteps channels in registers, weights in blocks of 64 channels.
  template <int kSteps, int kCount>
  static __device__ __forceinline__ void multiply(float (&d)[kCount],
                                                  const uint32_t (&a)[kSteps][4], uint32_t b) {
    mma_fence();
#pragma unroll
    for (int i = 0; i < kSteps; ++i) {
      const uint64_t weights = operand(b + i / 4 * Config::kBlockBytes, 16, 1024) + i % 4 * 2;
      MmaRegisters<T, 2 * kCount>::mma(d, a[i][0], a[i][1], a[i][2], a[i][3], weights);
    }
    mma_commit();
  }

  // Where 16 channels of a row of a block lie in its slot, for a lane of the matrices.
  __device__ __forceinline__ uint32_t in_slot(int sixteen) const {
    const int lane = threadIdx.x % 32, row = threadIdx.x % 128 / 32 * 16 + lane % 16;
    return shared.slot(group, slot) + swizzled(row, 2 * sixteen + lane / 16);
  }

  // Rounds and bounds a block and puts it where it is stored from.
  __device__ __forceinline__ void put(const float* d, const Pairs& residual,
                                      const PairBounds<T>& bounds, Pairs& rounded) {
#pragma unroll
    for (int s = 0; s < 4; ++s) {  // 16 channels
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float* from = d + 8 * s + 2 * i;
        const uint32_t add = residual[s][i];
        const uint32_t pair = pack<T>(from[0] + unpack_low<T>(add), from[1] + unpack_high<T>(add));
        rounded[s][i] = clip_pair(pair, bounds);
      }
      const uint32_t (&r)[4] = rounded[s];
      store_matrices(in_slot(s), r[0], r[1], r[2], r[3]);
    }
    fence_shared_for_async();
    __syncwarp();
    if (threadIdx.x % 32 == 0) barrier_arrive(shared.done(group, slot));
    if (++slot == params.slots) slot = 0, parity ^= 1;
  }

  // The second convolution of a tile, by blocks, and the third one.
  __device__ __forceinline__ void expand(const uint32_t (&middle)[kMiddleSteps][4]) {
    float reduced[kReduced / 2];
    Pairs residual = {}, rounded;
    if constexpr (Config::kReduced > 0) begin(reduced, shared.reduce_bias());
    float next[32];
    auto begin_next = [&](int j) {
      begin(next, shared.expand_bias() + 4 * 64 * j);
      multiply<kMiddleSteps>(next, middle, weights(shared.expand(j, 0)));
    };
    if constexpr (Config::kAhead) begin_next(0);
    for (int j = 0; j < params.blocks; ++j) {
      if constexpr (!Config::kAhead) begin_next(j);
      barrier_wait(shared.ready(group, slot), parity);
      if (params.residual) {
#pragma unroll
        for (int i = 0; i < 4; ++i) load_matrices(residual[i], in_slot(i));
      }
      mma_wait<0>();
      release(Config::kReduced > 0 && j > 0 ? 2 : 1);
      pin(next);
      keep(rounded);
      float d[32];
#pragma unroll
      for (int i = 0; i < 32; ++i) d[i] = next[i];
      pin(d);  // not later, where they are computed again
      if constexpr (Config::kAhead) {
        if (j + 1 < params.blocks) begin_next(j + 1);
      }
      put(d, residual, expand_bounds, rounded);
      if constexpr (Config::kReduced > 0) multiply<4>(reduced, rounded, weights(shared.reduce(j)));
    }
    if constexpr (Config::kReduced > 0) {
      mma_wait<0>();
      release(1);
      pin(reduced);
      const Pairs none = {};
#pragma unroll
      for (int j = 0; j < kReduced / 64; ++j) {
        if (j >= params.reduced_blocks) break;
        barrier_wait(shared.ready(group, slot), parity);
        put(reduced + 32 * j, none, reduce_bounds, rounded);
      }
    }
  }

  // Registers that a product reads are not to be used again before here.
  static __device__ __forceinline__ void keep(Pairs& values) {
#pragma unroll
    for (int i = 0; i < 16; ++i) asm volatile("" : "+r"(values[i / 4][i % 4])::"memory");
  }

  __device__ __forceinline__ void run() {
    if constexpr (!Config::kStreamed) barrier_wait(shared.filter_full(), 0);
    for (int round = 0; tile_of<Config>(round, group) < params.tiles; ++round) {
      float d[Config::kMiddle / 2];
      uint32_t middle[kMiddleSteps][4];
      barrier_wait(shared.full(group), round % 2);
      convolve(d);
      if (threadIdx.x % 128 == 0) barrier_arrive(shared.empty(group));
#pragma unroll
      for (int i = 0; i < Config::kMiddle / 4; ++i) {
        middle[i / 4][i % 4] = clip_pair(pack<T>(d[2 * i], d[2 * i + 1]), conv_bounds);
      }
      if constexpr (!Config::kStreamed) barrier_wait(shared.rest_full(), 0);
      expand(middle);
    }
  }
};

// Grid: blocks that share the tiles.
template <class Config>
__global__ void __launch_bounds__(Config::kThreads, 1)
    bottleneck(const __grid_constant__ BottleneckParams params) {
  extern __shared__ uint8_t raw[];
  launch_dependents();
  const BottleneckShared<Config> shared(raw, params);
  if (threadIdx.x == 0) {
    for (int i = 0; i < Config::kGroups; ++i) {
      barrier_init(shared.full(i), 1);
      barrier_init(shared.empty(i), 1);
      for (int j = 0; j < params.slots; ++j) {
        barrier_init(shared.ready(i, j), 1);
        barrier_init(shared.done(i, j), 4);  // warps
      }
    }
    if constexpr (Config::kStreamed) {
      for (int i = 0; i < params.stages; ++i) {
        barrier_init(shared.stage_full(i), 1);
        barrier_init(shared.stage_empty(i), 1);
      }
    }
    barrier_init(shared.filter_full(), 1);
    barrier_init(shared.rest_full(), 1);
    fence_barrier_init();
    prefetch_map(&params.filter);
    prefetch_map(&params.x);
  }
  __syncthreads();
  const int group = __shfl_sync(~0u, threadIdx.x / 128, 0);  // uniform in a warp
  if (group < Config::kGroups) {
    if (!params.constant_weights) wait_for_predecessors();
    load_biases(params, shared);
    if (params.constant_weights) wait_for_predecessors();
    sync_threads(1, Config::kConsumers);
    BottleneckConsumer<Config>(params, shared, group).run();
  } else if (threadIdx.x % 32 == 0) {
    const int warp = (threadIdx.x - Config::kConsumers) / 32;
    if (warp < Config::kGroups) {
      move(params, shared, warp);
    } else if constexpr (Config::kStreamed) {
      stream(params, shared);
    } else {
      produce(params, shared);
    }
  }
}

}  // namespace convoy::sm90
