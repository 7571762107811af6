// The kernels of codegen/depthwise compiled for the host: the C ABI with the launch emulated.
#include "emulator.h"

#include "depthwise_conv_library.cuh"
#include "depthwise_wgrad_library.cuh"
#include "grouped_conv_library.cuh"
#include "staged_conv_library.cuh"

namespace convoy::depthwise {
alignas(16) float weights[64 << 10], shared[64 << 10];

template <class T>
void multiply(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2], T) {
  emulator::multiply<T>(threadIdx.x, d, a, b, [](T value) { return float(value); });
}

}  // namespace convoy::depthwise

namespace {

using namespace convoy::depthwise;

int32_t without_gpu(int32_t code) { return code >= convoy::kCuda ? 0 : code; }

// What a launch is given, and how far its pixels lie apart where they are not compact.
struct Given {
  const ConvoyOperands* operands;
  const ConvoyRowStrides* rows;
};

template <class Kernel, class Params>
int32_t prepare(const ConvoyShape& shape, const Given& given, typename Kernel::State* state) {
  if constexpr (!std::is_same<Params, WgradParams>::value) {
    if (given.rows) return Kernel::prepare_strided(shape, *given.operands, *given.rows, state);
  }
  return Kernel::prepare(shape, *given.operands, state);
}

template <class Kernel, class Params, class Launch>
int32_t run(const ConvoyShape& shape, const Given& given, Launch launch, float* memory = weights,
            int threads = kThreads) {
  if (int32_t code = Kernel::check(shape)) return code;
  if (!given.operands) return 0;
  typename Kernel::State state;
  if (int32_t code = without_gpu(prepare<Kernel, Params>(shape, given, &state))) return code;
  auto* kernel = reinterpret_cast<void (*)(Params)>(const_cast<void*>(state.kernel));
  emulator::launch(state.grid, dim3(threads), memory, size_t(state.shared_bytes),
                   [&] { kernel(state.params); });
  launch(state);
  return 0;
}

template <class T, int Filter>
int32_t run_conv(const ConvoyShape& shape, const Given& given) {
  using Kernel = DepthwiseConv<T, Filter>;
  return run<Kernel, ConvParams>(shape, given, [](const typename Kernel::State&) {});
}

template <class T, int Filter>
int32_t run_wgrad(const ConvoyShape& shape, const Given& given) {
  using Kernel = DepthwiseWgrad<T, Filter>;
  return run<Kernel, WgradParams>(shape, given, [](const typename Kernel::State& state) {
    typename Kernel::Sum sum(state);
    emulator::launch(sum.grid, sum.block(), weights, sum.kSharedBytes, [&] {
      sum_slices<T>(sum.slices, sum.dw, sum.slice_count, sum.channels, sum.taps);
    });
  });
}

template <class T, int Filter>
int32_t run_op(const ConvoyShape& shape, const Given& given) {
  return shape.op == CONVOY_WGRAD ? run_wgrad<T, Filter>(shape, given)
                                  : run_conv<T, Filter>(shape, given);
}

template <class T>
int32_t run_filter(int filter, const ConvoyShape& shape, const Given& given) {
  switch (filter) {
    case 3: return run_op<T, 3>(shape, given);
    case 5: return run_op<T, 5>(shape, given);
    case 7: return run_op<T, 7>(shape, given);
    default: return run_op<T, 0>(shape, given);
  }
}

template <class T>
int64_t workspace(int filter, const ConvoyShape& shape) {
  switch (filter) {
    case 3: return DepthwiseWgrad<T, 3>::workspace(shape);
    case 5: return DepthwiseWgrad<T, 5>::workspace(shape);
    case 7: return DepthwiseWgrad<T, 7>::workspace(shape);
    default: return DepthwiseWgrad<T, 0>::workspace(shape);
  }
}

template <int Filter>
int copy_tile(bool wgrad, int index, int* out) {
  const int count = wgrad ? wgrad_tile_count<Filter>() : tile_count<Filter>();
  if (index >= count) return 0;
  const Tile tile = wgrad ? WgradTiles<Filter>::list[index] : Tiles<Filter>::list[index];
  out[0] = tile.vector, out[1] = tile.rows, out[2] = tile.columns;
  return 1;
}

}  // namespace

// The grouped convolution of __half, as run_depthwise.
extern "C" int32_t run_grouped(const ConvoyShape* shape, const ConvoyOperands* operands,
                               const ConvoyRowStrides* rows) {
  using Kernel = GroupedConv<__half>;
  return run<Kernel, GroupedParams>(
      *shape, {operands, rows}, [](const Kernel::State&) {}, shared, kGroupedThreads);
}

extern "C" int grouped_tile_at(int index, int* out) {
  if (index >= kGroupedTileCount) return 0;
  out[0] = kGroupedTiles[index].rows, out[1] = kGroupedTiles[index].columns;
  return 1;
}

// The staged one of __half, as run_depthwise.
extern "C" int32_t run_staged(const ConvoyShape* shape, const ConvoyOperands* operands,
                              const ConvoyRowStrides* rows) {
  using Kernel = StagedConv<__half>;
  return run<Kernel, StagedParams>(
      *shape, {operands, rows}, [](const Kernel::State&) {}, shared, kStagedThreads);
}

extern "C" int staged_tile_at(int index, int* out) {
  if (index >= kStagedTileCount) return 0;
  out[0] = kStagedTiles[index].rows, out[1] = kStagedTiles[index].columns;
  return 1;
}

// Runs a problem in an element type of `bytes` (2: half), or checks it where there are no operands;
// compact ones without `rows`.
extern "C" int32_t run_depthwise(int bytes, int filter, const ConvoyShape* shape,
                                 const ConvoyOperands* operands, const ConvoyRowStrides* rows) {
  return bytes == 2 ? run_filter<__half>(filter, *shape, {operands, rows})
                    : run_filter<float>(filter, *shape, {operands, rows});
}

// Workspace bytes of a wgrad.
extern "C" int64_t wgrad_workspace(int bytes, int filter, const ConvoyShape* shape) {
  return bytes == 2 ? workspace<__half>(filter, *shape) : workspace<float>(filter, *shape);
}

// vector, rows and columns of a tile; 0 beyond the last one.
extern "C" int tile_at(int filter, int wgrad, int index, int* out) {
  switch (filter) {
    case 3: return copy_tile<3>(wgrad, index, out);
    case 5: return copy_tile<5>(wgrad, index, out);
    case 7: return copy_tile<7>(wgrad, index, out);
    default: return copy_tile<0>(wgrad, index, out);
  }
}
