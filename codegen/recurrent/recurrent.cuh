// The steps of an LSTM or GRU whose input projections are known, in one launch.
//
// A cluster of kBlocks thread blocks has one direction of the layer and 8 * kTiles sequences of the
// batch. Each block keeps the recurrent weights of its units, in registers and, beyond 16 k-steps,
// in shared memory, and each warp computes all gates of 4 units with m16n8k16. Of a tile's row pair
// (g, g + 8), even g are the first two gates of unit g / 2 and odd g the other two, so that a lane
// and the lane 4 beside it hold the gates of a unit for two sequences. A block copies the states of
// its units to the others, whose mbarrier the next step waits for; two buffers suffice, since a
// block sends h(t) after it has received h(t - 1) from blocks that are done with h(t - 2).
#pragma once

#include "ptx.cuh"

namespace convoy::recurrent {

enum class Cell {
  kLstm,
  kGru
};  // gates: input, forget, candidate, output; reset, update, candidate

template <class T, Cell kCell_, int kHidden_, int kBlocks_, int kTiles_>
struct Layer {
  using Element = T;
  static constexpr Cell kCell = kCell_;
  static constexpr int kHidden = kHidden_;
  static constexpr int kBlocks = kBlocks_;
  static constexpr int kTiles = kTiles_;

  static constexpr int kGates = kCell == Cell::kLstm ? 4 : 3;
  static constexpr int kUnits = (kHidden + 8 * kBlocks - 1) / (8 * kBlocks) * 8;  // of a block
  static constexpr int kPadded = kUnits * kBlocks;
  static constexpr int kWarps = kUnits / 4;
  static constexpr int kSteps = kPadded / 16;
  static_assert(kBlocks > 1 && kSteps % 2 == 0, "two k-steps at a time");
  static constexpr int kHeld = kSteps < 16 ? kSteps : 16;  // k-steps of weights in registers
  static constexpr int kBatch = 8 * kTiles;
  static constexpr int kPitch = kUnits + 8;  // of states in shared memory: few bank conflicts
  static constexpr int kSliceBytes = kBatch * kPitch * 2;  // states that a block computes
  static constexpr int kStateBytes = kBlocks * kSliceBytes;
  static constexpr int kWeightBytes = kWarps * (kSteps - kHeld) * 32 * 16;
  static constexpr int kSharedBytes = 2 * kStateBytes + kWeightBytes + 16;
};

// Contiguous operands; `hidden` and `cell` have the axes (direction, batch, unit).
template <class T>
struct Operands {
  const T* projected;   // (time, batch, direction, gate, unit), with all biases of the input
  const T* recurrence;  // (direction, gate, unit, unit of the state)
  const T* bias;        // (direction, gate, unit), of the state
  const T* hidden;
  const T* cell;  // of an LSTM
  T* outputs;     // (time, batch, direction, unit)
  T* last_hidden;
  T* last_cell;
  int time, batch;
  bool reversed;  // the first direction runs backwards; a second one always does
};

__device__ __forceinline__ float sigmoid(float x) { return __fdividef(1.0f, 1.0f + __expf(-x)); }

// Also where the exponential overflows or vanishes.
__device__ __forceinline__ float tanh_of(float x) {
  return 1.0f - __fdividef(2.0f, 1.0f + __expf(fminf(2.0f * x, 80.0f)));
}

// Rows of the weights as the A operand: two of row g, two of row g + 8, then 8 columns further.
template <class L, class T = typename L::Element>
__device__ __forceinline__ uint4 weights(const T* of_direction, int unit, int pair, int column) {
  uint32_t values[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int gate = 2 * pair + i % 2;
    const int at = column + i / 2 * 8;
    T two[2] = {T(0.0f), T(0.0f)};
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      if (gate < L::kGates && unit < L::kHidden && at + j < L::kHidden) {
        two[j] = of_direction[(gate * L::kHidden + unit) * L::kHidden + at + j];
      }
    }
    memcpy(&values[i], two, 4);
  }
  return {values[0], values[1], values[2], values[3]};
}

template <class L, class T = typename L::Element>
__device__ __forceinline__ void run(const Operands<T>& args, unsigned char* shared) {
  constexpr int kTiles = L::kTiles, kGates = L::kGates;
  constexpr int kChains = kTiles == 1 ? 4 : 2;  // of dependent multiplications, for each tile
  constexpr int kReceived = (L::kBlocks - 1) * L::kSliceBytes;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int rank = sm90::cluster_rank();
  const int group = blockIdx.x / L::kBlocks;
  const int groups = (args.batch + L::kBatch - 1) / L::kBatch;
  const int direction = group / groups, directions = gridDim.x / L::kBlocks / groups;
  const int first = group % groups * L::kBatch;
  const bool backwards = args.reversed || direction == 1;

  const int row = lane / 4, pair = row % 2;
  const int unit = rank * L::kUnits + warp * 4 + row / 2;
  const int column = 2 * (lane % 4);
  const bool known = unit < L::kHidden;
  const uint32_t states = sm90::shared_address(shared);
  uint4* const held = reinterpret_cast<uint4*>(shared + 2 * L::kStateBytes) + warp * 32 + lane;
  const uint32_t barriers = states + 2 * L::kStateBytes + L::kWeightBytes;

  if (threadIdx.x == 0) {
    sm90::barrier_init(barriers, 1);
    sm90::barrier_init(barriers + 8, 1);
    sm90::fence_barrier_init();
  }
  const T* const recurrence =
      args.recurrence + size_t(direction) * kGates * L::kHidden * L::kHidden;
  uint4 matrix[L::kHeld];
#pragma unroll
  for (int k = 0; k < L::kSteps; ++k) {
    const uint4 part = weights<L>(recurrence, unit, pair, 16 * k + column);
    if (k < L::kHeld) {
      matrix[k] = part;
    } else {
      held[(k - L::kHeld) * L::kWarps * 32] = part;
    }
  }
  // The states before the first step, in the second buffer.
  T* const before = reinterpret_cast<T*>(shared + L::kStateBytes);
  for (int i = threadIdx.x; i < L::kBatch * L::kPadded; i += 32 * L::kWarps) {
    const int sequence = i / L::kPadded, at = i % L::kPadded;
    const bool there = first + sequence < args.batch && at < L::kHidden;
    const size_t from = (size_t(direction) * args.batch + first + sequence) * L::kHidden + at;
    const int to = (at / L::kUnits * L::kBatch + sequence) * L::kPitch + at % L::kUnits;
    before[to] = there ? args.hidden[from] : T(0.0f);
  }

  float bias[kGates], kept[kTiles];
  const T* incoming[kTiles];
  T* outgoing[kTiles];
  size_t state[kTiles];
  bool mine[kTiles];
  const size_t frame = size_t(args.batch) * directions * L::kHidden;
#pragma unroll
  for (int g = 0; g < kGates; ++g) {
    const int at = (direction * kGates + g) * L::kHidden + unit;
    bias[g] = known ? float(args.bias[at]) : 0.0f;
  }
#pragma unroll
  for (int n = 0; n < kTiles; ++n) {
    const int sequence = first + 8 * n + column + pair;
    mine[n] = known && sequence < args.batch;
    state[n] = (size_t(direction) * args.batch + sequence) * L::kHidden + unit;
    const size_t at = size_t(sequence) * directions + direction;
    incoming[n] = args.projected + at * kGates * L::kHidden + unit;
    outgoing[n] = args.outputs + at * L::kHidden + unit;
    const T* const start = L::kCell == Cell::kLstm ? args.cell : args.hidden;
    kept[n] = mine[n] ? float(start[state[n]]) : 0.0f;
  }
  auto frame_of = [&](int t) { return backwards ? args.time - 1 - t : t; };
  auto read = [&](T(&into)[kTiles][kGates], int t) {
#pragma unroll
    for (int n = 0; n < kTiles; ++n) {
#pragma unroll
      for (int g = 0; g < kGates; ++g) {
        into[n][g] = mine[n] && t < args.time
                         ? incoming[n][frame_of(t) * frame * kGates + g * L::kHidden]
                         : T(0.0f);
      }
    }
  };
  T next[2][kTiles][kGates];
  read(next[0], 0);
  read(next[1], 1);
  if (threadIdx.x == 0) {
    sm90::barrier_expect(barriers, kReceived);
    sm90::barrier_expect(barriers + 8, kReceived);
  }
  __syncthreads();
  sm90::cluster_sync();

  // Lanes of a matrix address its rows: sequences, with two k-steps of 8 columns each to a load.
  auto address = [&](int column, int sequence) {
    const int of_slice = sequence * L::kPitch + column % L::kUnits;
    return states + column / L::kUnits * L::kSliceBytes + of_slice * 2;
  };
  T* const slice = reinterpret_cast<T*>(shared + rank * L::kSliceBytes);
  const int place = (column + pair) * L::kPitch + warp * 4 + row / 2;

  auto step = [&](int t, T(&projected)[kTiles][kGates]) {
    const int read_from = (t + 1) % 2, write_to = t % 2;
    float x[kTiles][kGates];
#pragma unroll
    for (int n = 0; n < kTiles; ++n) {
#pragma unroll
      for (int g = 0; g < kGates; ++g) {
        const bool apart = L::kCell == Cell::kGru && g == 2;  // behind the reset gate
        x[n][g] = float(projected[n][g]) + (apart ? 0.0f : bias[g]);
      }
    }
    read(projected, t + 2);
    if (t > 0) {
      const uint32_t barrier = barriers + 8 * read_from;
      sm90::cluster_wait(barrier, (t - 1) / 2 % 2);
      if (threadIdx.x == 0) sm90::barrier_expect(barrier, kReceived);
    }
    float sums[kTiles][kChains][4] = {};
#pragma unroll
    for (int k = 0; k < L::kSteps; k += 2) {
      const uint4 a0 = k < L::kHeld ? matrix[k] : held[(k - L::kHeld) * L::kWarps * 32];
      const uint4 a1 = k + 1 < L::kHeld ? matrix[k + 1] : held[(k + 1 - L::kHeld) * L::kWarps * 32];
#pragma unroll
      for (int n = 0; n < kTiles; ++n) {
        uint32_t b[4];
        load_matrices(
            b, address(16 * k + lane / 8 * 8, 8 * n + lane % 8) + read_from * L::kStateBytes);
        const int chain = k % kChains;
        depthwise::multiply(sums[n][chain], {a0.x, a0.y, a0.z, a0.w}, {b[0], b[1]}, T());
        depthwise::multiply(sums[n][chain + 1], {a1.x, a1.y, a1.z, a1.w}, {b[2], b[3]}, T());
      }
    }
#pragma unroll
    for (int n = 0; n < kTiles; ++n) {
      float both[4], other[2], gates[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        both[i] = sums[n][0][i] + sums[n][1][i];
        if (kChains == 4) both[i] += sums[n][kChains - 2][i] + sums[n][kChains - 1][i];
      }
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        other[i] = __shfl_xor_sync(~0u, pair == 0 ? both[2 * i + 1] : both[2 * i], 4);
        gates[i] = pair == 0 ? both[2 * i] : other[i];
        gates[2 + i] = pair == 0 ? other[i] : both[2 * i + 1];
      }
      float h;
      if (L::kCell == Cell::kLstm) {
        float act[4];
#pragma unroll
        for (int g = 0; g < 4; ++g) {
          const float sum = gates[g] + x[n][g];
          act[g] = g == 2 ? tanh_of(sum) : sigmoid(sum);
        }
        kept[n] = act[1] * kept[n] + act[0] * act[2];
        h = act[3] * tanh_of(kept[n]);
      } else {
        const float reset = sigmoid(gates[0] + x[n][0]);
        const float update = sigmoid(gates[1] + x[n][1]);
        const float candidate = tanh_of(x[n][2] + reset * (gates[2] + bias[2]));
        h = (1.0f - update) * candidate + update * kept[n];
        kept[n] = h;
      }
      const T rounded = known ? T(h) : T(0.0f);
      if (mine[n]) outgoing[n][frame_of(t) * frame] = rounded;
      if (t + 1 == args.time) {
        if (mine[n]) args.last_hidden[state[n]] = rounded;
        if (mine[n] && L::kCell == Cell::kLstm) args.last_cell[state[n]] = T(kept[n]);
        continue;
      }
      slice[place + 8 * n * L::kPitch + write_to * (L::kStateBytes / 2)] = rounded;
    }
    if (t + 1 == args.time) return;
    fence_for_copies();
    __syncthreads();
    const int other = threadIdx.x;
    if (other < L::kBlocks && other != rank) {
      const uint32_t at = states + write_to * L::kStateBytes + rank * L::kSliceBytes;
      sm90::copy_to_block(sm90::cluster_address(at, other), at, L::kSliceBytes,
                          sm90::cluster_address(barriers + 8 * write_to, other));
    }
  };
  for (int t = 0; t < args.time; t += 2) {
    step(t, next[0]);
    if (t + 1 < args.time) step(t + 1, next[1]);
  }
  sm90::cluster_sync();  // copies to others end before the block does
}

}  // namespace convoy::recurrent
