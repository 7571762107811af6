// What a block of bottleneck.cuh reads: weights of the three convolutions, once or for every round of
// tiles, and the input of its tiles.
#pragma once

#include "bottleneck_config.cuh"
#include "convoy/grid_control.cuh"
#include "tma_2d.cuh"

namespace convoy::sm90 {

// The place of a tile: its image and first output.
struct BottleneckPlace {
  int n, p, q;
  __device__ BottleneckPlace(const BottleneckParams& params, int number) {
    const int line = params.by_across.divide(number);
    n = params.by_down.divide(line);
    p = (line - n * params.down) * kBottleneckTile;
    q = (number - line * params.across) * kBottleneckTile;
  }
};

// The tile of a warpgroup in a round; a round is there if its first warpgroup has a tile.
template <class Config>
__device__ __forceinline__ int tile_of(int round, int group) {
  return blockIdx.x + (round * Config::kGroups + group) * gridDim.x;
}

// One thread: the input of the tiles of a round, one for each warpgroup.
template <class Config>
__device__ void load_round(const BottleneckParams& params, const BottleneckShared<Config>& shared,
                           int round) {
  for (int group = 0; group < Config::kGroups; ++group) {
    const int tile = tile_of<Config>(round, group);
    if (tile >= params.tiles) return;
    const BottleneckPlace place(params, tile);
    barrier_wait(shared.empty(group), round % 2 ^ 1);
    barrier_expect(shared.full(group), params.chunks * params.input_bytes);
    for (int i = 0; i < params.chunks; ++i) {
      load_4d(shared.input(group, i), &params.x, shared.full(group), i * 64,
              place.q - params.pad_left, place.p - params.pad_top, place.n);
    }
  }
}

// One thread: all weights, and the input of one round after the other.
template <class Config>
__device__ void produce(const BottleneckParams& params, const BottleneckShared<Config>& shared) {
  if (!params.constant_weights) wait_for_predecessors();
  const int taps = params.taps, chunks = params.chunks;
  barrier_expect(shared.filter_full(), taps * chunks * Config::kTapBytes);
  for (int tap = 0; tap < taps; ++tap) {
    for (int i = 0; i < chunks; ++i) {
      load_3d(shared.filter(tap * chunks + i), &params.filter, shared.filter_full(), i * 64, tap,
              0);
    }
  }
  if (params.constant_weights) wait_for_predecessors();
  load_round(params, shared, 0);
  barrier_expect(shared.rest_full(), params.blocks * (Config::kExpandBytes + Config::kReduceBytes));
  for (int j = 0; j < params.blocks; ++j) {
    for (int i = 0; i < Config::kMiddle / 64; ++i) {
      load_2d(shared.expand(j, i), &params.expand, shared.rest_full(), i * 64, j * 64);
    }
    if constexpr (Config::kReduced > 0) {
      load_2d(shared.reduce(j), &params.reduce, shared.rest_full(), j * 64, 0);
    }
  }
  for (int round = 1; tile_of<Config>(round, 0) < params.tiles; ++round) {
    load_round(params, shared, round);
  }
}

// The same with weights that come again for each round, in the order in which they are used: the
// filter, then the second convolution's, block of 64 channels by block, and behind each of these but
// the first the third one's of the block before.
template <class Config>
__device__ void stream(const BottleneckParams& params, const BottleneckShared<Config>& shared) {
  const int filters = params.taps * params.chunks, kinds = Config::kReduced > 0 ? 2 : 1;
  const int items = filters + kinds * params.blocks, early = min(items, params.stages);
  int stage = 0;
  uint32_t parity = 1;
  auto load = [&](int item) {
    const uint32_t full = shared.stage_full(stage), to = shared.stage(stage);
    barrier_wait(shared.stage_empty(stage), parity);
    if (++stage == params.stages) stage = 0, parity ^= 1;
    if (item < filters) {
      const int tap = item / params.chunks;
      barrier_expect(full, Config::kTapBytes);
      return load_3d(to, &params.filter, full, (item - tap * params.chunks) * 64, tap, 0);
    }
    item -= filters;
    const bool reduces = kinds == 2 && (item == items - filters - 1 || (item > 0 && item % 2 == 0));
    const int block = reduces ? (item - 1) / 2 : (item + kinds - 1) / kinds;
    if (reduces) {
      barrier_expect(full, Config::kReduceBytes);
      return load_2d(to, &params.reduce, full, block * 64, 0);
    }
    barrier_expect(full, Config::kExpandBytes);
    for (int i = 0; i < Config::kMiddle / 64; ++i) {
      load_2d(to + i * Config::kBlockBytes, &params.expand, full, i * 64, block * 64);
    }
  };
  if (!params.constant_weights) wait_for_predecessors();
  for (int item = 0; item < early; ++item) load(item);
  if (params.constant_weights) wait_for_predecessors();
  for (int round = 0; tile_of<Config>(round, 0) < params.tiles; ++round) {
    load_round(params, shared, round);
    for (int item = round == 0 ? early : 0; item < items; ++item) load(item);
  }
}

// All consumers: the biases of the three convolutions to shared memory, zeros where there are none.
template <class Config>
__device__ void load_biases(const BottleneckParams& params,
                            const BottleneckShared<Config>& shared) {
  using T = typename Config::Element;
  const int expanded = Config::kMiddle, reduced = expanded + 64 * params.blocks;
  for (int i = threadIdx.x; i < reduced + Config::kReduced; i += Config::kConsumers) {
    const BottleneckEpilogue& epilogue = i < expanded  ? params.conv
                                         : i < reduced ? params.expanded
                                                       : params.reduced;
    const int channel = i - (i < expanded ? 0 : i < reduced ? expanded : reduced);
    const bool there = epilogue.bias && channel < epilogue.channels;
    store_shared(shared.bias() + 4 * i,
                 there ? float(static_cast<const T*>(epilogue.bias)[channel]) : 0.0f);
  }
}

}  // namespace convoy::sm90
