// dgrad of a network's first convolution on sm_90a: stride 2, filters up to 7x7, c <= 4, k <= 128.
//
// As a GEMM dgrad has c columns, far too few for the tensor cores. Here a block streams
// down the rows of dy, reads each once, and multiplies it with all taps that use it: the result
// has 16 * c columns (four row shifts x four phases x c, see stem_layout.cuh), and its reduction is
// k for each of the four column shifts. Accumulators hold four rows of output (each two rows of
// dx); a row is complete when the fourth row of dy has been added, is sent out, and the others
// move up by one.
//
// Rows of dy (124 pixels x 64 k) come through a ring of stages. A warp loads them into registers by
// ldmatrix, 5 matrices of 8 pixels for the 2 x 4 that the column shifts use. The filter is packed
// once per block into the operand that wgmma reads from shared memory.
// dx leaves as whole rows: by bulk copies where rows are multiples of 16 bytes, element by element
// otherwise.
#pragma once

#include "ptx.cuh"
#include "stem_layout.cuh"

namespace convoy::sm90 {

constexpr int kLargestStemK = 128;

struct StemParams {
  CUtensorMap dy;  // (k, q, p, n)
  const void* filter;
  void* dx;
  StemGrid grid;
  int h, w, k, filter_h, filter_w;
  int pad_top, pad_left;
  int channel_steps;  // ceil(k / 64)
  int bulk_rows;      // whether rows of dx may be copied in bulk
};

template <class T, int kChannels_>
struct StemConfig {
  using Element = T;
  static constexpr int kChannels = kChannels_;
  static constexpr int kStages = 4;
  static constexpr int kBlocksPerProcessor = 2;  // one computes while the other waits
  // The producer needs one thread, but registers move between whole warpgroups only.
  static constexpr int kConsumers = 256, kThreads = kConsumers + 128;
  static constexpr int kColumns = 16 * kChannels;
  static constexpr int kStageBytes = 16384;
  static constexpr int kLoadBytes = kStripPixels * 128;
  static constexpr int kShiftBytes = kColumns * 128;                   // 64 k of one column shift
  static constexpr int kRowBytes = 2 * kStripColumns * kChannels * 2;  // a strip's row of dx
  static constexpr int kOutputs = 3;                                   // output rows in flight

  // Offsets from a 1024-byte aligned base.
  static constexpr int kFilterAt = kStages * kStageBytes;
  __host__ __device__ static constexpr int outputs_at(int channel_steps) {
    return kFilterAt + channel_steps * kShifts * kShiftBytes;
  }
  __host__ __device__ static constexpr int barriers_at(int channel_steps) {
    return outputs_at(channel_steps) + kOutputs * 2 * kRowBytes;
  }
  __host__ __device__ static constexpr int shared_bytes(int channel_steps) {
    return 1024 + barriers_at(channel_steps) + (2 * kStages + 1) * 8;
  }
  // Until it is packed, the filter lies where the rows of dy go later.
  static constexpr int kFilterBytes =
      kLargestStemK * kLargestStemFilter * kLargestStemFilter * kChannels * 2;

  static_assert(kChannels >= 1 && kChannels <= 4);
  static_assert(kLoadBytes <= kStageBytes && kFilterBytes <= kStages * kStageBytes);
};

// Shared memory addresses.
template <class Config>
struct StemShared {
  uint32_t base, outputs, barriers;
  __device__ StemShared(const void* raw, int channel_steps)
      : base((shared_address(raw) + 1023) & ~1023u),
        outputs(base + Config::outputs_at(channel_steps)),
        barriers(base + Config::barriers_at(channel_steps)) {}
  __device__ uint32_t stage(int i) const { return base + i * Config::kStageBytes; }
  __device__ uint32_t filter(int channel_step, int shift) const {
    return base + Config::kFilterAt + (channel_step * kShifts + shift) * Config::kShiftBytes;
  }
  __device__ uint32_t output(int i, int phase_h) const {
    return outputs + (2 * i + phase_h) * Config::kRowBytes;
  }
  __device__ uint32_t full(int i) const { return barriers + 8 * i; }
  __device__ uint32_t empty(int i) const { return full(Config::kStages + i); }
  __device__ uint32_t filter_loaded() const { return full(2 * Config::kStages); }
};

// All threads: the filter (k,r,s,c), staged at stage 0, into K-major rows of 64 k, one row for each
// column of the result.
template <class Config>
__device__ void pack_filter(const StemParams& params, const StemShared<Config>& shared) {
  const int tap_elements = params.filter_h * params.filter_w * Config::kChannels;  // of one k
  const int pieces = params.channel_steps * kShifts * Config::kColumns * 8;        // of 8 k
  for (int piece = threadIdx.x; piece < pieces; piece += Config::kThreads) {
    int chunk = piece & 7, rest = piece >> 3;
    int column = rest % Config::kColumns;
    int shift = rest / Config::kColumns % kShifts;
    int step = rest / (Config::kColumns * kShifts);
    StemColumn meaning = stem_column(column, Config::kChannels);
    int r = shifted_filter_position(params.pad_top, meaning.phase_h,
                                    lowest_shift(params.pad_top) + kShifts - 1 - meaning.slot);
    int s = shifted_filter_position(params.pad_left, meaning.phase_w,
                                    lowest_shift(params.pad_left) + shift);
    int k = step * 64 + chunk * 8;
    uint32_t pairs[4] = {0, 0, 0, 0};
    if (r >= 0 && r < params.filter_h && s >= 0 && s < params.filter_w && k < params.k) {
      uint32_t from =
          shared.stage(0) +
          2 * (k * tap_elements + (r * params.filter_w + s) * Config::kChannels + meaning.c);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        uint32_t low = load_shared_u16(from + 2 * (2 * i) * tap_elements);
        uint32_t high = load_shared_u16(from + 2 * (2 * i + 1) * tap_elements);
        pairs[i] = low | high << 16;
      }
    }
    store_shared(shared.filter(step, shift) + swizzled(column, chunk),
                 make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]));
  }
  fence_shared_for_async();
}

// One thread: the rows of dy that each item needs, 64 k at a time.
template <class Config>
__device__ void produce_rows(const StemParams& params, const StemShared<Config>& shared) {
  Ring<Config::kStages> ring(1);
  const int lower_h = lowest_shift(params.pad_top), lower_w = lowest_shift(params.pad_left);
  for (int index = blockIdx.x; index < stem_items(params.grid); index += gridDim.x) {
    StemItem item = stem_item(params.grid, index);
    for (int p = item.row0 + lower_h; p < item.row1 + lower_h + kShifts - 1; ++p) {
      for (int step = 0; step < params.channel_steps; ++step) {
        barrier_wait(shared.empty(ring.stage), ring.parity);
        barrier_expect(shared.full(ring.stage), Config::kLoadBytes);
        load_4d(shared.stage(ring.stage), &params.dy, shared.full(ring.stage), step * 64,
                item.strip * kStripColumns + lower_w, p, item.n);
        ring.advance();
      }
    }
  }
}

// Sends complete output rows out: all consumers write their part of two rows of dx into shared
// memory, then one thread copies them in bulk, or all copy elements.
template <class Config>
struct StemOutput {
  static constexpr int kChannels = Config::kChannels;
  const StemParams& params;
  const StemShared<Config>& shared;
  int buffer = 0;
  int n = 0, strip = 0, row = -1;  // the row that is held back; -1: none
  uint32_t value[kChannels];       // of this thread, rounded: upper and lower row of 8

  __device__ void hold(const StemItem& item, int output_row, const float (&d)[8 * kChannels]) {
    n = item.n;
    strip = item.strip;
    row = output_row;
#pragma unroll
    for (int c = 0; c < kChannels; ++c) {
      value[c] = pack<typename Config::Element>(d[stem_accumulator(0, c, kChannels, 0)],
                                                d[stem_accumulator(0, c, kChannels, 1)]);
    }
  }

  __device__ void flush() {
    if (row < 0) return;
    const int lane = threadIdx.x % 32;
    const int x = stem_run_column(threadIdx.x / 128, threadIdx.x / 32 % 4);
    const int run = lane >> 2, phase_h = lane >> 1 & 1, phase_w = lane & 1;
    uint32_t to = shared.output(buffer, phase_h) + 2 * (2 * (kRun * run + x) + phase_w) * kChannels;
#pragma unroll
    for (int c = 0; c < kChannels; ++c) {
      store_shared(to + 2 * c, static_cast<uint16_t>(value[c]));
      if (x + 1 < kRun)
        store_shared(to + 2 * (2 * kChannels + c), static_cast<uint16_t>(value[c] >> 16));
    }
    fence_shared_for_async();
    // The barrier also tells that the buffer after this one is free: its copy was two rows ago.
    if (threadIdx.x == 0) wait_stores_read<1>();
    sync_threads(1, Config::kConsumers);
    copy_rows();
    buffer = buffer == Config::kOutputs - 1 ? 0 : buffer + 1;
    row = -1;
  }

  __device__ void copy_rows() {
    using T = typename Config::Element;
    const int column = strip * 2 * kStripColumns;
    const int elements = min(2 * kStripColumns, params.w - column) * kChannels;
    for (int a = 0; a < 2; ++a) {
      if (2 * row + a >= params.h) break;
      int64_t first = ((int64_t(n) * params.h + 2 * row + a) * params.w + column) * kChannels;
      T* to = static_cast<T*>(params.dx) + first;
      uint32_t from = shared.output(buffer, a);
      if (params.bulk_rows) {
        if (threadIdx.x == 0) store_bulk(to, from, elements * 2);
      } else {
        for (int i = threadIdx.x; i < elements; i += Config::kConsumers) {
          reinterpret_cast<uint16_t*>(to)[i] = load_shared_u16(from + 2 * i);
        }
      }
    }
    if (threadIdx.x == 0) commit_stores();
  }
};

// Two warpgroups, 8 columns of every run each.
template <class Config>
__device__ void consume_rows(const StemParams& params, const StemShared<Config>& shared) {
  constexpr int kChannels = Config::kChannels, kMatrices = kShifts + 1;
  using Mma = MmaRegisters<typename Config::Element, Config::kColumns>;
  const int lane = threadIdx.x % 32;
  const int x = stem_run_column(threadIdx.x / 128, threadIdx.x / 32 % 4);
  const int pixel = kRun * (lane & 7) + x;  // whose address this lane gives to ldmatrix
  Ring<Config::kStages> ring(0);
  StemOutput<Config> output{params, shared};
  float d[8 * kChannels];
  const int lower_h = lowest_shift(params.pad_top);
  for (int index = blockIdx.x; index < stem_items(params.grid); index += gridDim.x) {
    StemItem item = stem_item(params.grid, index);
#pragma unroll
    for (int i = 0; i < 8 * kChannels; ++i) d[i] = 0.0f;
    for (int p = item.row0 + lower_h; p < item.row1 + lower_h + kShifts - 1; ++p) {
      for (int step = 0; step < params.channel_steps; ++step) {
        barrier_wait(shared.full(ring.stage), ring.parity);
#pragma unroll
        for (int half = 0; half < 2; ++half) {  // 32 k each: registers do not suffice for 64
          uint32_t a[kMatrices][4];             // pixels 15 * run + x + m; 8 k in a register
#pragma unroll
          for (int m = 0; m < kMatrices; ++m) {
            load_matrices(a[m],
                          shared.stage(ring.stage) + swizzled(pixel + m, half * 4 + (lane >> 3)));
          }
          pin(d);
          mma_fence();
#pragma unroll
          for (int shift = 0; shift < kShifts; ++shift) {
            uint64_t b = operand(shared.filter(step, shift), 16, 1024) + half * 4;
            const uint32_t (&upper)[4] = a[shift], (&lower)[4] = a[shift + 1];
            Mma::mma(d, upper[0], lower[0], upper[1], lower[1], b);
            Mma::mma(d, upper[2], lower[2], upper[3], lower[3], b + 2);
          }
          mma_commit();
          // Only now, since an arrival does not wait for loads that no instruction has used yet.
          if (half == 1) {
            __syncwarp();
            if (lane == 0) barrier_arrive(shared.empty(ring.stage));
          }
          if (half == 0) output.flush();  // while the tensor cores work
          mma_wait<0>();
          pin(d);
        }
        ring.advance();
      }
      int complete = p - lower_h - (kShifts - 1);
      if (complete >= item.row0) output.hold(item, complete, d);
#pragma unroll
      for (int slot = 0; slot < kShifts; ++slot) {
#pragma unroll
        for (int c = 0; c < kChannels; ++c) {
#pragma unroll
          for (int half = 0; half < 2; ++half) {
            d[stem_accumulator(slot, c, kChannels, half)] =
                slot + 1 < kShifts ? d[stem_accumulator(slot + 1, c, kChannels, half)] : 0.0f;
          }
        }
      }
    }
  }
  output.flush();
  if (threadIdx.x == 0) wait_stores_read<0>();
}

template <class Config>
__global__ void __launch_bounds__(Config::kThreads, Config::kBlocksPerProcessor)
    stem_dgrad(const __grid_constant__ StemParams params) {
  extern __shared__ uint8_t raw[];
  const StemShared<Config> shared(raw, params.channel_steps);
  if (threadIdx.x == 0) {
    for (int i = 0; i < Config::kStages; ++i) {
      barrier_init(shared.full(i), 1);
      barrier_init(shared.empty(i), Config::kConsumers / 32);
    }
    barrier_init(shared.filter_loaded(), 1);
    fence_barrier_init();
    prefetch_map(&params.dy);
    uint32_t bytes = params.k * params.filter_h * params.filter_w * Config::kChannels * 2;
    barrier_expect(shared.filter_loaded(), bytes);
    load_bulk(shared.stage(0), params.filter, bytes, shared.filter_loaded());
  }
  __syncthreads();
  barrier_wait(shared.filter_loaded(), 0);
  pack_filter(params, shared);
  __syncthreads();
  // Registers move within a block: 384 * 80 at its start, 256 * 104 + 128 * 24 now. Asking for more
  // than the block has would wait forever.
  if (threadIdx.x < Config::kConsumers) {
    grow_registers<104>();
    consume_rows(params, shared);
  } else {
    shrink_registers<24>();
    if (threadIdx.x == Config::kConsumers) produce_rows(params, shared);
  }
}

}  // namespace convoy::sm90
