// What a block of bottleneck.cuh writes, and the residuals that it reads into the same memory.
#pragma once

#include "bottleneck_load.cuh"

namespace convoy::sm90 {

// The blocks of results of a warpgroup, one after the other: of 64 channels of y, then of z, of its
// tiles in turn. Each has a slot for a while.
struct BottleneckBlocks {
  int tile, block = 0, slot = 0;
  uint32_t parity = 0;
  __device__ explicit BottleneckBlocks(int group) : tile(blockIdx.x + group * gridDim.x) {}
  __device__ void advance(const BottleneckParams& params, int step) {
    if (++slot == params.slots) slot = 0, parity ^= 1;
    if (++block < params.blocks + params.reduced_blocks) return;
    block = 0;
    tile += step;
  }
};

// One thread for each warpgroup: stores its blocks, and makes their slots ready for others. A slot is
// ready with the residual of its block, if there is one.
template <class Config>
__device__ void move(const BottleneckParams& params, const BottleneckShared<Config>& shared,
                     int group) {
  const int step = Config::kGroups * gridDim.x;
  auto fill = [&](const BottleneckBlocks& to) {
    if (to.tile >= params.tiles) return;
    const uint32_t ready = shared.ready(group, to.slot);
    if (!params.residual || to.block >= params.blocks) return barrier_arrive(ready);
    const BottleneckPlace place(params, to.tile);
    barrier_expect(ready, Config::kBlockBytes);
    load_4d(shared.slot(group, to.slot), &params.residuals, ready, to.block * 64, place.q, place.p,
            place.n);
  };
  wait_for_predecessors();
  BottleneckBlocks next(group), ahead(group);
  for (int i = 0; i < params.slots; ++i, ahead.advance(params, step)) fill(ahead);
  for (; next.tile < params.tiles; next.advance(params, step)) {
    const BottleneckPlace place(params, next.tile);
    const bool expanded = next.block < params.blocks;
    barrier_wait(shared.done(group, next.slot), next.parity);
    store_4d(expanded ? &params.y : &params.z, shared.slot(group, next.slot),
             (expanded ? next.block : next.block - params.blocks) * 64, place.q, place.p, place.n);
    commit_stores();
    wait_stores_read<0>();
    fill(ahead);
    ahead.advance(params, step);
  }
}

}  // namespace convoy::sm90
