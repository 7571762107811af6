// fprop of small problems with stride 1 and several taps on sm_90a: small_conv.cuh whose blocks load
// the input of a tile once, with the halo of the filter, instead of once for each tap. A 3x3 filter
// then moves half as many bytes from L2 to the SMs, or fewer.
//
// The input of a tile is rows of 128 bytes of channels, one for each position (halo_conv_layout.cuh),
// as TMA writes them with its swizzle, which depends on the address alone: an operand of wgmma may
// begin at any of these rows. All taps of a chunk of channels follow each other; the next chunk's
// input is on its way meanwhile.
#pragma once

#include "halo_conv_layout.cuh"
#include "small_conv.cuh"

namespace convoy::sm90 {

struct HaloConvParams : SmallConvParams {  // x: (c, w, h, n), boxes of the input of a tile
  HaloTile tile;
  int input_bytes, input_stride;  // of a tile and a chunk; the stride is a multiple of 1024
  int inputs;                     // that there is room for: 1 or 2
};

template <class Config>
struct HaloConvShared;
template <class Config>
struct HaloPixels;

template <class T, int kRowGroups, int kColumns, class Activation>
struct HaloConvConfig : SmallConvConfig<T, kRowGroups, kColumns, 1, Activation> {
  using Base = SmallConvConfig<T, kRowGroups, kColumns, 1, Activation>;
  using Params = HaloConvParams;
  using Shared = HaloConvShared<HaloConvConfig>;
  using Pixels = HaloPixels<HaloConvConfig>;
  static constexpr int kStageBytes = kColumns * 128;  // weights alone

  static constexpr int shared_bytes(int input_bytes, int stages) {
    return 1024 + input_bytes + stages * (kStageBytes + 16) + Base::kAllSumBytes + 8;
  }
};

// Inputs, weights, sums, barriers. Sums that are exchanged lie in front for a while.
template <class Config>
struct HaloConvShared {
  uint32_t base, weights;
  int stages, input_stride;
  __device__ HaloConvShared(const void* raw, const HaloConvParams& params)
      : base((shared_address(raw) + 1023) & ~1023u),
        weights(base + params.inputs * params.input_stride),
        stages(params.stages),
        input_stride(params.input_stride) {}
  __device__ uint32_t input(int which) const { return base + which * input_stride; }
  __device__ uint32_t b(int stage) const { return weights + stage * Config::kStageBytes; }
  __device__ uint32_t sums() const { return b(stages); }
  __device__ uint32_t full(int stage) const { return sums() + Config::kAllSumBytes + 8 * stage; }
  __device__ uint32_t empty(int stage) const { return full(stages + stage); }
  __device__ uint32_t all_sums() const { return full(2 * stages); }
};

template <class Config>
struct HaloPixels {
  const HaloConvParams& params;
  const HaloOrigin origin;
  const int first;
  __device__ HaloPixels(const HaloConvParams& params, int own_rows)
      : params(params),
        origin(halo_origin(params.tile, blockIdx.z)),
        first(cluster_rank() * own_rows) {}
  __device__ int operator[](int row) const {
    return halo_pixel(params.tile, params.shape, origin, first + row);
  }
  __device__ bool has(int row) const { return (*this)[row] >= 0; }
};

// One warp: the steps of this block, as in small_conv.cuh. The stages are at most one more than the
// taps: where an input begins, all steps of the last but one have been waited for.
template <class Config>
__device__ void produce(const HaloConvParams& params, const HaloConvShared<Config>& shared,
                        SmallConvSteps steps) {
  const SmallConvShape& shape = params.shape;
  const HaloOrigin origin = halo_origin(params.tile, blockIdx.z);
  const int column = blockIdx.y * Config::kColumns, early = min(steps.count(), params.stages);
  const int first_chunk = steps.begin / shape.taps;
  auto begins_input = [&](int i, const SmallConvStep& step) { return i == 0 || step.tap == 0; };
  auto load_weights = [&](int i, const SmallConvStep& step, int stage) {
    const int more = begins_input(i, step) ? params.input_bytes : 0;
    barrier_expect(shared.full(stage), Config::kStageBytes + more);
    load_3d(shared.b(stage), &params.w, shared.full(stage), step.channel, step.tap, column);
  };
  auto load_input = [&](int i, const SmallConvStep& step, int stage) {
    if (!begins_input(i, step)) return;
    const int which = (step.channel / Config::kChunk - first_chunk) & 1;
    load_4d(shared.input(which), &params.x, shared.full(stage), step.channel,
            origin.w - shape.pad_left, origin.h - shape.pad_top, origin.n);
  };
  const int lane = threadIdx.x % 32;
  SmallConvStep step = halo_step(shape, steps.begin + lane, Config::kChunk);
  if (!params.constant_weights) wait_for_predecessors();
  if (lane < early) load_weights(lane, step, lane);
  if (params.constant_weights) wait_for_predecessors();
  if (lane < early) load_input(lane, step, lane);
  if (lane != early - 1) return;
  int stage = 0;
  uint32_t parity = 0;
  for (int i = early; i < steps.count(); ++i) {
    if (++step.tap == shape.taps) step.tap = 0, step.channel += Config::kChunk;
    barrier_wait(shared.empty(stage), parity);
    load_weights(i, step, stage);
    load_input(i, step, stage);
    if (++stage == params.stages) stage = 0, parity ^= 1;
  }
}

// A warpgroup: the sums of its 64 rows.
template <class Config>
__device__ void multiply(const HaloConvParams& params, const HaloConvShared<Config>& shared,
                         SmallConvSteps steps, int group, int, float (&d)[Config::kColumns / 2]) {
  using Mma = MmaRows<typename Config::Element, Config::kColumns>;
  const SmallConvShape& shape = params.shape;
  const int start = halo_start(params.tile, group);
  const int next_row = shape.dilation_h * params.tile.pitch - shape.filter_w * shape.dilation_w;
  int tap = halo_step(shape, steps.begin, Config::kChunk).tap, column = tap % shape.filter_w;
  int at = start + halo_offset(params.tile, shape, tap), input = 0, stage = 0, last = 0;
  uint32_t parity = 0;
  for (int i = 0; i < steps.count(); ++i) {
    barrier_wait(shared.full(stage), parity);
    uint64_t a = operand(shared.input(input) + at * 128, 16, 1024);
    uint64_t b = operand(shared.b(stage), 16, 1024);
    mma_fence();
#pragma unroll
    for (int k = 0; k < 4; ++k) Mma::mma(d, a + 2 * k, b + 2 * k, i > 0 || k > 0);
    mma_commit();
    if (i > 0) {
      mma_wait<1>();
      if (threadIdx.x % 128 == 0) barrier_arrive(shared.empty(last));
    }
    last = stage;
    if (++stage == shared.stages) stage = 0, parity ^= 1;
    at += shape.dilation_w;
    if (++column == shape.filter_w) column = 0, at += next_row;
    if (++tap == shape.taps) tap = 0, at = start, input ^= 1;
  }
  mma_wait<0>();
  pin(d);
}

}  // namespace convoy::sm90
