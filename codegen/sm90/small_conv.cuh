// fprop of small problems on sm_90a: an implicit GEMM whose time is latency, made to be a link of a
// chain of kernels (convoy/programmatic_abi.h).
//
// A cluster computes a tile of output pixels x channels. Its blocks share the reduction: each adds up
// its own part of the steps (a tap of the filter, 128 bytes of channels) with wgmma and sends the
// fp32 sums of a row to the block that owns the row, through distributed shared memory. That one adds
// them up in a fixed order, applies the epilogue and writes the row. Before a block waits for the
// kernels before this one, constant weights of its first steps are on their way.
#pragma once

#include "cluster.cuh"
#include "cluster_async.cuh"
#include "grid_control.cuh"
#include "ptx.cuh"
#include "quad.cuh"
#include "small_conv_exact.cuh"

#include "../depthwise/epilogue.cuh"

namespace convoy::sm90 {

struct SmallConvParams {
  CUtensorMap x;                // (c, w, h, n) as im2col, boxes of a chunk x the tile's pixels
  CUtensorMap w;                // (c, r * s, k), boxes of a chunk x 1 x the tile's channels
  const void *bias, *residual;  // may be null
  void* y;
  SmallConvShape shape;
  int stages;
  int activation;
  float clip_min, clip_max;
  int constant_weights;
};

// The activation that the launch chooses, behind the residual.
struct ChosenActivation {
  static constexpr bool kResidualLast = false;
  static __device__ void apply(float (&x)[4], const SmallConvParams& params) {
    depthwise::activate<4>(x, params.activation, params.clip_min, params.clip_max);
  }
};

// One thread: the steps of this block, weights of the first ones before the wait.
template <class Config>
__device__ void produce(const SmallConvParams& params, const SmallConvShared<Config>& shared,
                        SmallConvSteps steps) {
  const SmallConvShape& shape = params.shape;
  const SmallConvPixel first = small_conv_pixel(shape, blockIdx.z * Config::kRows);
  const int column = blockIdx.y * Config::kColumns, early = min(steps.count(), params.stages);
  auto step_at = [&](int i) { return small_conv_step(shape, steps.begin + i, Config::kChunk); };
  auto load_weights = [&](const SmallConvStep& step, int stage) {
    barrier_expect(shared.full(stage), Config::kStageBytes);
    load_3d(shared.b(stage), &params.w, shared.full(stage), step.channel, step.tap, column);
  };
  auto load_pixels = [&](const SmallConvStep& step, int stage) {
    load_im2col(shared.a(stage), &params.x, shared.full(stage), step.channel, first.w, first.h,
                first.n, step.offset_w, step.offset_h);
  };
  if (!params.constant_weights) wait_for_predecessors();
  for (int i = 0; i < early; ++i) load_weights(step_at(i), i);
  if (params.constant_weights) wait_for_predecessors();
  for (int i = 0; i < early; ++i) load_pixels(step_at(i), i);
  int stage = 0;
  uint32_t parity = 0;
  for (int i = early; i < steps.count(); ++i) {
    const SmallConvStep step = step_at(i);
    barrier_wait(shared.empty(stage), parity);
    load_weights(step, stage);
    load_pixels(step, stage);
    if (++stage == params.stages) stage = 0, parity ^= 1;
  }
}

// A warpgroup: the sums of its 64 rows over the steps of this block.
template <class Config>
__device__ void multiply(const SmallConvShared<Config>& shared, int count,
                         float (&d)[Config::kColumns / 2]) {
  using Mma = MmaRows<typename Config::Element, Config::kColumns>;
  const int group = threadIdx.x / 128;
  int stage = 0, last = 0;
  uint32_t parity = 0;
  for (int i = 0; i < count; ++i) {
    barrier_wait(shared.full(stage), parity);
    uint64_t a = operand(shared.a(stage) + group * 8192, 16, 1024);
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
  }
  mma_wait<0>();
  pin(d);
}

// Sends every row of sums to the block that owns it. Neighbouring lanes exchange halves, so that the
// even one has four columns of its upper row, the odd one of the lower row.
template <class Config>
__device__ void send_sums(const SmallConvShared<Config>& shared, const SmallConvOwners& owners,
                          const float (&d)[Config::kColumns / 2]) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const bool odd = lane & 1;
  const int row = 16 * warp + lane / 4 + 8 * odd;
  const int owner = owners.owner(row);
  const int place = owners.place(row, cluster_rank()) * Config::kPitch + lane % 4 / 2 * 4;
  const uint32_t to = cluster_address(shared.sums() + 4 * place, owner);
  const uint32_t barrier = cluster_address(shared.all_sums(), owner);
#pragma unroll
  for (int j = 0; j < Config::kColumns / 8; ++j) {
    const float* v = &d[4 * j];
    const float x = __shfl_xor_sync(~0u, odd ? v[0] : v[2], 1);
    const float y = __shfl_xor_sync(~0u, odd ? v[1] : v[3], 1);
    if (odd) {
      store_async(to + 32 * j, barrier, x, y, v[2], v[3]);
    } else {
      store_async(to + 32 * j, barrier, v[0], v[1], x, y);
    }
  }
}

// The epilogue's operands of the outputs that a thread writes: four channels of several rows.
template <class Config>
struct SmallConvOutputs {
  using Quad = sm90::Quad<typename Config::Element>;
  using Raw = typename Quad::Raw;
  static constexpr bool kResidualLast = Config::Activation::kResidualLast;
  static constexpr int kQuads = Config::kColumns / 4;
  static constexpr int kMost = Config::kRows * kQuads / Config::kConsumers;  // rows of a thread
  static constexpr int kRowStep = Config::kConsumers / kQuads;

  const SmallConvParams& params;
  const int own_rows;
  const int column = threadIdx.x % kQuads * 4;
  const int channel = blockIdx.y * Config::kColumns + column;
  const int first_pixel = blockIdx.z * Config::kRows + cluster_rank() * own_rows;
  float bias[4] = {};
  Raw residual[kMost] = {};

  __device__ SmallConvOutputs(const SmallConvParams& p, int own_rows)
      : params(p), own_rows(own_rows) {}

  __device__ int row(int i) const { return threadIdx.x / kQuads + i * kRowStep; }
  __device__ bool is_there(int i) const {
    return row(i) < own_rows && first_pixel + row(i) < params.shape.pixels &&
           channel < params.shape.k;
  }
  __device__ int64_t place(int i) const {
    return (int64_t(first_pixel + row(i)) * params.shape.k + channel) / 4;
  }

  __device__ void load() {
    if (params.bias && channel < params.shape.k) {
      Quad::unpack(static_cast<const Raw*>(params.bias)[channel / 4], bias);
    }
    if (!params.residual) return;
#pragma unroll
    for (int i = 0; i < kMost; ++i) {
      if (is_there(i)) residual[i] = static_cast<const Raw*>(params.residual)[place(i)];
    }
  }

  __device__ void store(const SmallConvShared<Config>& shared, int slices) const {
#pragma unroll
    for (int i = 0; i < kMost; ++i) {
      if (!is_there(i)) continue;
      float sum[4], other[4];
      Quad::unpack(residual[i], other);
#pragma unroll
      for (int v = 0; v < 4; ++v) sum[v] = kResidualLast ? bias[v] : bias[v] + other[v];
      uint32_t at = shared.sums() + 4 * (row(i) * Config::kPitch + column);
      for (int slice = 0; slice < slices; ++slice) {
        const float4 part = load_shared_float4(at);
        sum[0] += part.x, sum[1] += part.y, sum[2] += part.z, sum[3] += part.w;
        at += 4 * own_rows * Config::kPitch;
      }
      Config::Activation::apply(sum, params);
#pragma unroll
      for (int v = 0; v < 4 && kResidualLast; ++v) sum[v] += other[v];
      static_cast<Raw*>(params.y)[place(i)] = Quad::pack(sum);
    }
  }
};

// Grid: blocks of a cluster, tiles of channels, tiles of pixels.
template <class Config>
__global__ void __launch_bounds__(Config::kThreads)
    small_conv(const __grid_constant__ SmallConvParams params) {
  extern __shared__ uint8_t raw[];
  launch_dependents();
  const int slices = gridDim.x;
  const SmallConvShared<Config> shared(raw, params.stages);
  const SmallConvOwners owners(Config::kRows, slices);
  const SmallConvSteps steps(params.shape, cluster_rank(), slices);
  if (threadIdx.x == 0) {
    for (int i = 0; i < params.stages; ++i) {
      barrier_init(shared.full(i), 1);
      barrier_init(shared.empty(i), Config::kWarpgroups);
    }
    barrier_init(shared.all_sums(), 1);
    fence_barrier_init();
    barrier_expect(shared.all_sums(), Config::kRows * Config::kColumns * 4);
    prefetch_map(&params.x);
    prefetch_map(&params.w);
  }
  if (slices > 1) {
    cluster_sync();
  } else {
    __syncthreads();
  }
  if (threadIdx.x >= Config::kConsumers) {
    if (threadIdx.x == Config::kConsumers) produce(params, shared, steps);
    return;
  }
  wait_for_predecessors();
  SmallConvOutputs<Config> outputs(params, owners.own_rows);
  outputs.load();
  float d[Config::kColumns / 2];
  if constexpr (Config::kExact) {
    multiply_exactly(shared, steps.count(), d);
  } else {
    multiply(shared, steps.count(), d);
  }
  send_sums(shared, owners, d);
  cluster_wait(shared.all_sums(), 0);
  outputs.store(shared, slices);
}

}  // namespace convoy::sm90
