// The kernels of codegen/depthwise compiled for the host: the C ABI with the launch emulated.
#include "emulator.h"

#include "conv_library.cuh"

namespace convoy::depthwise {
alignas(16) float weights[64 << 10];
}

namespace {

using namespace convoy::depthwise;

template <class Kernel>
int32_t run(const ConvoyShape& shape, const ConvoyOperands& operands) {
  if (int32_t code = Kernel::check(shape)) return code;
  typename Kernel::State state;
  if (int32_t code = Kernel::prepare(shape, operands, &state)) return code;
  auto* kernel = reinterpret_cast<void (*)(ConvParams)>(const_cast<void*>(state.kernel));
  emulator::launch(state.grid, dim3(kThreads), weights, size_t(state.shared_bytes),
                   [&] { kernel(state.params); });
  return 0;
}

template <class T>
int32_t run_filter(int filter, const ConvoyShape& shape, const ConvoyOperands& operands) {
  switch (filter) {
    case 3: return run<DepthwiseConv<T, 3>>(shape, operands);
    case 5: return run<DepthwiseConv<T, 5>>(shape, operands);
    case 7: return run<DepthwiseConv<T, 7>>(shape, operands);
    default: return run<DepthwiseConv<T, 0>>(shape, operands);
  }
}

}  // namespace

// `bytes` is 2 for __half and 4 for float.
extern "C" int32_t run_conv(int bytes, int filter, const ConvoyShape* shape,
                            const ConvoyOperands* operands) {
  return bytes == 2 ? run_filter<__half>(filter, *shape, *operands)
                    : run_filter<float>(filter, *shape, *operands);
}

extern "C" int tile_at(int filter, int index, int* out) {
  const Tile* list = filter == 3   ? Tiles<3>::list
                     : filter == 5 ? Tiles<5>::list
                     : filter == 7 ? Tiles<7>::list
                                   : Tiles<0>::list;
  int count = filter == 3   ? tile_count<3>()
              : filter == 5 ? tile_count<5>()
              : filter == 7 ? tile_count<7>()
                            : tile_count<0>();
  if (index >= count) return 0;
  out[0] = list[index].vector, out[1] = list[index].rows, out[2] = list[index].columns;
  return 1;
}
