// fprop of small problems on sm_90a: an implicit GEMM whose time is latency, made to be a link of a
// chain of kernels (convoy/programmatic_abi.h).
//
// A cluster computes a tile of output pixels x channels. Its blocks share the reduction: each adds up
// its own part of the steps (a tap of the filter, 128 bytes of channels) with wgmma and copies the
// fp32 sums of a row to the block that owns the row, through distributed shared memory. That one adds
// them up in a fixed order, applies the epilogue and writes the row. Before a block waits for the
// kernels before this one, constant weights of its first steps are on their way.
#pragma once

#include "cluster.cuh"
#include "cluster_copy.cuh"
#include "convoy/grid_control.cuh"
#include "ptx.cuh"
#include "small_conv_exact.cuh"
#include "vector16.cuh"

#include "../depthwise/epilogue.cuh"

namespace convoy::sm90 {

struct SmallConvParams {
  CUtensorMap x;                // (c, w, h, n) as im2col, boxes of a chunk x the tile's pixels
  CUtensorMap w;                // (c, r * s, k), boxes of a chunk x 1 x the tile's channels
  const void *bias, *residual;  // may be null
  void* y;
  int residual_pitch, y_pitch;  // from one pixel to the next, in 16 bytes
  SmallConvShape shape;
  int stages;
  int activation;
  float clip_min, clip_max;
  int constant_weights;
};

// The activation that the launch chooses, behind the residual.
struct ChosenActivation {
  static constexpr bool kResidualLast = false;
  template <int N>
  static __device__ void apply(float (&x)[N], const SmallConvParams& params) {
    depthwise::activate<N>(x, params.activation, params.clip_min, params.clip_max);
  }
};

// One warp: the steps of this block, weights of the first ones before the wait. Each lane prepares
// one of those, so that nothing is computed between the wait and the copies.
template <class Config>
__device__ void produce(const SmallConvParams& params, const SmallConvShared<Config>& shared,
                        SmallConvSteps steps) {
  const SmallConvShape& shape = params.shape;
  const SmallConvPixel first = small_conv_pixel(shape, blockIdx.z * Config::kRows);
  const int column = blockIdx.y * Config::kColumns, early = min(steps.count(), params.stages);
  auto load_weights = [&](const SmallConvStep& step, int stage) {
    barrier_expect(shared.full(stage), Config::kStageBytes);
    load_3d(shared.b(stage), &params.w, shared.full(stage), step.channel, step.tap, column);
  };
  auto load_pixels = [&](const SmallConvStep& step, int stage) {
    load_im2col(shared.a(stage), &params.x, shared.full(stage), step.channel, first.w, first.h,
                first.n, step.offset_w, step.offset_h);
  };
  const int lane = threadIdx.x % 32;
  SmallConvStep step = small_conv_step(shape, steps.begin + lane, Config::kChunk);
  if (!params.constant_weights) wait_for_predecessors();
  if (lane < early) load_weights(step, lane);
  if (params.constant_weights) wait_for_predecessors();
  if (lane < early) load_pixels(step, lane);
  if (lane != early - 1) return;
  int stage = 0;
  uint32_t parity = 0;
  for (int i = early; i < steps.count(); ++i) {
    step = small_conv_next(shape, step, Config::kChunk);
    barrier_wait(shared.empty(stage), parity);
    load_weights(step, stage);
    load_pixels(step, stage);
    if (++stage == params.stages) stage = 0, parity ^= 1;
  }
}

// A warpgroup: the sums of its 64 rows over every kParts-th step, beginning at `part`.
template <class Config>
__device__ void multiply(const SmallConvParams&, const SmallConvShared<Config>& shared,
                         SmallConvSteps steps, int rows, int part,
                         float (&d)[Config::kColumns / 2]) {
  using Mma = MmaRows<typename Config::Element, Config::kColumns>;
  int stage = part, last = 0;
  uint32_t parity = 0;
  for (int i = part; i < steps.count(); i += Config::kParts) {
    barrier_wait(shared.full(stage), parity);
    uint64_t a = operand(shared.a(stage) + rows * 8192, 16, 1024);
    uint64_t b = operand(shared.b(stage), 16, 1024);
    mma_fence();
#pragma unroll
    for (int k = 0; k < 4; ++k) Mma::mma(d, a + 2 * k, b + 2 * k, i > part || k > 0);
    mma_commit();
    if (i > part) {
      mma_wait<1>();
      if (threadIdx.x % 128 == 0) barrier_arrive(shared.empty(last));
    }
    last = stage;
    stage += Config::kParts;
    if (stage >= shared.stages) stage = part, parity ^= 1;
  }
  mma_wait<0>();
  pin(d);
}

__device__ __forceinline__ void store_shared(uint32_t address, float a, float b) {
  asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(address), "f"(a), "f"(b) : "memory");
}

// Writes the sums of a warp, 16 rows of kPitch floats.
template <class Config>
__device__ void write_sums(uint32_t rows, const float (&d)[Config::kColumns / 2]) {
  const int lane = threadIdx.x % 32;
  const uint32_t to = rows + 4 * (lane / 4 * Config::kPitch + lane % 4 * 2);
#pragma unroll
  for (int j = 0; j < Config::kColumns / 8; ++j) {
    store_shared(to + 32 * j, d[4 * j], d[4 * j + 1]);
    store_shared(to + 32 * j + 32 * Config::kPitch, d[4 * j + 2], d[4 * j + 3]);
  }
}

// Copies the 16 rows of sums of a warp to the blocks that own them, and waits for the rows of this
// block.
template <class Config>
__device__ void exchange_sums(const typename Config::Shared& shared, int slices, int part,
                              int first_row, uint32_t rows) {
  fence_shared_for_async();
  __syncwarp();
  const int lane = threadIdx.x % 32, own_rows = Config::kRows / slices;
  const int run = min(own_rows, 16), row = first_row + lane * run;
  if (lane * run < 16) {
    const int owner = row / own_rows;
    const int place = (cluster_rank() * Config::kParts + part) * own_rows + row % own_rows;
    copy_to_block(cluster_address(shared.sums() + place * Config::kPitch * 4, owner),
                  rows + lane * run * Config::kPitch * 4, run * Config::kPitch * 4,
                  cluster_address(shared.all_sums(), owner));
  }
  __syncwarp();
  cluster_wait(shared.all_sums(), 0);
}

// The output pixels of a block's rows: consecutive ones.
template <class Config>
struct RowsOfPixels {
  const SmallConvParams& params;
  const int first;
  __device__ RowsOfPixels(const SmallConvParams& params, int own_rows)
      : params(params), first(blockIdx.z * Config::kRows + cluster_rank() * own_rows) {}
  __device__ bool has(int row) const { return first + row < params.shape.pixels; }
  __device__ int operator[](int row) const { return first + row; }
};

// The outputs that a thread writes, 16 bytes in each of several rows, and their epilogue.
template <class Config>
struct SmallConvOutputs {
  using Params = typename Config::Params;
  using Vector = Vector16<typename Config::Element>;
  using Raw = typename Vector::Raw;
  static constexpr bool kResidualLast = Config::Activation::kResidualLast;
  static constexpr int kWidth = Vector::kCount, kVectors = Config::kColumns / kWidth;
  static constexpr int kRowStep = Config::kConsumers / kVectors;
  static CONVOY_HD constexpr int rows_of_thread(int own_rows) {
    return (own_rows + kRowStep - 1) / kRowStep;
  }
  static constexpr int kMost = rows_of_thread(Config::kRows);

  const Params& params;
  const int own_rows;
  const int first_row = threadIdx.x / kVectors, column = threadIdx.x % kVectors * kWidth;
  const int channel = blockIdx.y * Config::kColumns + column;
  const typename Config::Pixels pixels;
  Raw bias = {}, residual[kMost] = {};

  __device__ SmallConvOutputs(const Params& p, int own_rows)
      : params(p), own_rows(own_rows), pixels(p, own_rows) {}

  __device__ int row(int i) const { return first_row + i * kRowStep; }
  __device__ bool is_there(int i) const {
    return row(i) < own_rows && pixels.has(row(i)) && channel < params.shape.k;
  }
  __device__ int64_t place(int i, int pitch) const {
    return int64_t(pixels[row(i)]) * pitch + channel / kWidth;
  }

  __device__ void load() {
    if (params.bias && channel < params.shape.k) {
      bias = static_cast<const Raw*>(params.bias)[channel / kWidth];
    }
    if (!params.residual) return;
#pragma unroll
    for (int i = 0; i < kMost; ++i) {
      if (is_there(i)) {
        residual[i] = static_cast<const Raw*>(params.residual)[place(i, params.residual_pitch)];
      }
    }
  }

  // `sums` holds the owned rows of each block and part, one behind the other.
  template <int kSlices>
  __device__ void store(uint32_t sums) {
    constexpr int kOwnRows = Config::kRows / kSlices, kCount = rows_of_thread(kOwnRows);
    if (kOwnRows < kRowStep && first_row >= kOwnRows) return;
    float sum[kCount * kWidth], start[kWidth], other[kWidth];
    Vector::pin(bias);
    Vector::unpack(bias, start);
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      Vector::pin(residual[i]);
      Vector::unpack(residual[i], other);
#pragma unroll
      for (int v = 0; v < kWidth; ++v) {
        sum[i * kWidth + v] = kResidualLast ? start[v] : start[v] + other[v];
      }
#pragma unroll
      for (int part = 0; part < kSlices * Config::kParts; ++part) {
#pragma unroll
        for (int v = 0; v < kWidth; v += 4) {
          const int at = (part * kOwnRows + row(i)) * Config::kPitch + column + v;
          const float4 x = load_shared_float4(sums + 4 * at);
          float* to = &sum[i * kWidth + v];
          to[0] += x.x, to[1] += x.y, to[2] += x.z, to[3] += x.w;
        }
      }
    }
    Config::Activation::apply(sum, params);
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      float y[kWidth];
      Vector::unpack(residual[i], other);
#pragma unroll
      for (int v = 0; v < kWidth; ++v) {
        y[v] = sum[i * kWidth + v];
        if (kResidualLast) y[v] += other[v];
      }
      if (is_there(i)) static_cast<Raw*>(params.y)[place(i, params.y_pitch)] = Vector::pack(y);
    }
  }
};

// Grid: blocks of a cluster, tiles of channels, tiles of pixels.
template <class Config>
__global__ void __launch_bounds__(Config::kThreads)
    small_conv(const __grid_constant__ typename Config::Params params) {
  extern __shared__ uint8_t raw[];
  launch_dependents();
  const int slices = gridDim.x;
  const typename Config::Shared shared(raw, params);
  const SmallConvSteps steps(params.shape, cluster_rank(), slices);
  if (threadIdx.x == 0) {
    for (int i = 0; i < params.stages; ++i) {
      barrier_init(shared.full(i), 1);
      barrier_init(shared.empty(i), Config::kRowGroups);
    }
    barrier_init(shared.all_sums(), 1);
    fence_barrier_init();
    barrier_expect(shared.all_sums(), Config::kAllSumBytes);
    prefetch_map(&params.x);
    prefetch_map(&params.w);
  }
  if (slices > 1) {
    cluster_sync();
  } else {
    __syncthreads();
  }
  // Known to the compiler to be the same for all threads of a warp.
  const int warp = __shfl_sync(~0u, threadIdx.x / 32, 0), group = warp / 4;
  if (group == Config::kConsumers / 128) {
    produce<Config>(params, shared, steps);
    return;
  }
  wait_for_predecessors();
  SmallConvOutputs<Config> outputs(params, Config::kRows / slices);
  outputs.load();
  const int part = group / Config::kRowGroups, row_group = group % Config::kRowGroups;
  float d[Config::kColumns / 2];
  if constexpr (Config::kExact) {
    multiply_exactly(shared, steps.count(), d);
  } else {
    multiply<Config>(params, shared, steps, row_group, part, d);
  }
  // Sums that are exchanged lie in the ring first, where no warp multiplies any more.
  const uint32_t rows = (slices > 1 ? shared.base : shared.sums()) + warp * Config::kWarpSumBytes;
  if (slices > 1) sync_threads(1, Config::kConsumers);
  write_sums<Config>(rows, d);
  if (slices == 1) {
    sync_threads(1, Config::kConsumers);
    outputs.template store<1>(shared.sums());
    return;
  }
  exchange_sums<Config>(shared, slices, part, row_group * 64 + warp % 4 * 16, rows);
  cluster_barrier_arrive_relaxed();
  if (slices == 2) outputs.template store<2>(shared.sums());
  if (slices == 4) outputs.template store<4>(shared.sums());
  if (slices == 8) outputs.template store<8>(shared.sums());
  cluster_barrier_wait();  // for the copies to other blocks
}

}  // namespace convoy::sm90
