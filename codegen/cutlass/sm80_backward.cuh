// What dgrad and wgrad as CUTLASS 2.x implicit GEMMs (mma.sync and cp.async) share, for sm80 and
// later. They take channel counts and dtypes that the sm90 kernels cannot.
#pragma once

#include "slice_sum.cuh"
#include "sm80_conv.cuh"

namespace convoy {

// kUnitDgrad: stride 1, any dilation. kStridedDgrad: any stride, no dilation; the blocks of phases
// that no filter position reaches write zeros. kWgrad: fp32 partial sums of one or more slices of
// the pixels into the workspace, added up by sum_slices.
enum class Sm80Backward { kUnitDgrad, kStridedDgrad, kWgrad };

// An Sm80Config that tells its stages. kAlignA is the vector width along C, kAlignOut that along K.
template <class Element, class Spec, int kTileM, int kTileN, int kTileK, int kWarpM, int kWarpN,
          int kStages_, cutlass::conv::IteratorAlgorithm kIterator, int kAlignA, int kAlignOut>
struct Sm80BackwardConfig : Sm80Config<Element, Spec, kTileM, kTileN, kTileK, kWarpM, kWarpN,
                                       kStages_, kIterator, kAlignA, kAlignOut, false> {
  static constexpr int kStages = kStages_;
};

// Kernel is a CUTLASS convolution kernel with the threadblock swizzle Swizzle that writes Output.
template <class Config, Sm80Backward kKind, class Kernel_, class Swizzle, class Output>
struct Sm80BackwardConv {
  static constexpr bool kWgrad = kKind == Sm80Backward::kWgrad;
  using Kernel = Kernel_;
  using Device = cutlass::conv::device::ImplicitGemmConvolution<Kernel>;
  using Arguments = typename Kernel::Arguments;
  using Element = typename Config::Element;
  using Result = typename Config::Spec::Element;
  using Layout = typename Config::Layout;
  static constexpr int kShared = int(sizeof(typename Kernel::SharedStorage));

  struct State {
    typename Kernel::Params params;
    dim3 grid;
    SliceSum<Result> sum;
  };

  static int32_t check(ConvoyShape const& s) {
    if (int32_t code = check_sizes(s)) return code;
    if (s.op != (kWgrad ? CONVOY_WGRAD : CONVOY_DGRAD)) return kWrongOp;
    if (s.groups != 1) return kUnsupported;
    bool unit = s.stride_h == 1 && s.stride_w == 1;
    if (kKind == Sm80Backward::kUnitDgrad && !unit) return kUnsupported;
    if (kKind == Sm80Backward::kStridedDgrad && (s.dilation_h != 1 || s.dilation_w != 1)) {
      return kUnsupported;
    }
    if (s.c % Config::kAlignA || s.k % Config::kAlignOut) return kMisaligned;
    if (kWgrad && filter_size(s) % SliceSum<Result>::kVector) return kMisaligned;
    int64_t steps = (output_rows(s) + Config::Tile::kK - 1) / Config::Tile::kK;
    if (kWgrad ? s.split_k > steps : s.split_k != 1) return kBadSplit;
    int64_t inputs = int64_t(s.n) * s.h * s.w;
    if (inputs > INT32_MAX || output_rows(s) > INT32_MAX || filter_size(s) > INT32_MAX) {
      return kTooLarge;
    }
    return from_cutlass(Device::can_implement(arguments(s, {})));
  }

  static int64_t workspace(ConvoyShape const& s) { return kWgrad ? slices_bytes(s) : 0; }

  static int32_t prepare(ConvoyShape const& s, ConvoyOperands const& o, State* state) {
    if (!o.a || !o.b || !o.d) return kMissingOperand;
    state->params = typename Kernel::Params(arguments(s, o), nullptr);
    state->grid = Swizzle().get_grid_shape(state->params.grid_tiled_shape);
    if constexpr (kWgrad) state->sum = make_slice_sum<Result>(s, o);
    return allow_shared(function(), kShared);
  }

  static int32_t launch(State const& state, cudaStream_t stream) {
    void* parameters[] = {const_cast<typename Kernel::Params*>(&state.params)};
    int32_t code = from_cuda(cudaLaunchKernel(function(), state.grid, dim3(Kernel::kThreadCount),
                                              parameters, kShared, stream));
    if constexpr (kWgrad) {
      if (code == kOk) code = state.sum.enqueue(stream, false);
    }
    return code;
  }

  static int32_t footprint(State const& state, ConvoyFootprint* out) {
    return fill_footprint(function(), blocks(state.grid), Kernel::kThreadCount, kShared, out);
  }

 private:
  static void const* function() { return reinterpret_cast<void const*>(cutlass::Kernel<Kernel>); }

  static Arguments arguments(ConvoyShape const& s, ConvoyOperands const& o) {
    cutlass::conv::Conv2dProblemSize problem(
        s.n, s.h, s.w, s.c, s.k, s.r, s.s, s.p, s.q, s.pad_top, s.pad_left, s.stride_h, s.stride_w,
        s.dilation_h, s.dilation_w, cutlass::conv::Mode::kCrossCorrelation, s.split_k);
    Layout x = Layout::packed({s.n, s.h, s.w, s.c});
    Layout filter = Layout::packed({s.k, s.r, s.s, s.c});
    Layout y = Layout::packed({s.n, s.p, s.q, s.k});
    auto* a = static_cast<Element*>(const_cast<void*>(o.a));
    auto* b = static_cast<Element*>(const_cast<void*>(o.b));
    auto* d = static_cast<Output*>(kWgrad ? o.workspace : o.d);
    Layout const& out = kWgrad ? filter : x;
    auto mode = kWgrad ? cutlass::conv::SplitKMode::kParallel : cutlass::conv::SplitKMode::kSerial;
    return {problem, {a, y}, {b, kWgrad ? x : filter}, {d, out}, {d, out}, {1.f}, mode};
  }
};

}  // namespace convoy
