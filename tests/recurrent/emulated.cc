// recurrent.cuh on the host: beside a copy of it lies the ptx.cuh of this folder. ELEMENT, CELL and
// SIZE give the arguments of Layer.
#include "recurrent.cuh"

using half = _Float16;
using nv_bfloat16 = emulator::bfloat16;
using Layer = convoy::recurrent::Layer<ELEMENT, convoy::recurrent::Cell::CELL, SIZE>;

// pointers: as the fields of Operands. False where threads would hang, or a barrier lacks bytes.
extern "C" bool run(void** pointers, int time, int batch, int directions, bool reversed) {
  convoy::recurrent::Operands<ELEMENT> args{};
  auto at = [&](int i) { return static_cast<ELEMENT*>(pointers[i]); };
  args.projected = at(0), args.recurrence = at(1), args.bias = at(2), args.hidden = at(3);
  args.cell = at(4), args.outputs = at(5), args.last_hidden = at(6), args.last_cell = at(7);
  args.time = time, args.batch = batch, args.reversed = reversed;
  const int clusters = (batch + Layer::kBatch - 1) / Layer::kBatch * directions;
  constexpr int kThreads = 32 * Layer::kWarps;
  emulator::grid.x = clusters * Layer::kBlocks;
  emulator::blocks = Layer::kBlocks, emulator::block_bytes = Layer::kSharedBytes;
  emulator::failed = false;
  for (int cluster = 0; cluster < clusters; ++cluster) {
    emulator::shared.assign(Layer::kBlocks * Layer::kSharedBytes, 0xff);  // NaN
    emulator::barriers.clear();
    emulator::body = [&] {
      const int rank = blockIdx.x % Layer::kBlocks;
      convoy::recurrent::run<Layer>(args, emulator::shared.data() + rank * Layer::kSharedBytes);
    };
    const bool ended = emulator::run_block(kThreads * Layer::kBlocks, [&](size_t thread) {
      emulator::thread_index.x = thread % kThreads;
      emulator::block_index.x = cluster * Layer::kBlocks + thread / kThreads;
    });
    if (!ended || emulator::failed) return false;
  }
  return true;
}
