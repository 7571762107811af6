// Forward convolution as CUTLASS 2.x implicit GEMM (mma.sync and cp.async), for sm80 and later.
// Takes channel counts and filters that the sm90 kernels cannot, and small problems.
#pragma once

// clang-format off: the device header needs the kernel headers before it
#include "cutlass/conv/kernel/default_conv2d_fprop.h"
#include "cutlass/conv/kernel/default_conv2d_fprop_with_broadcast.h"
#include "cutlass/conv/device/implicit_gemm_convolution.h"
#include "cutlass/device_kernel.h"
#include "cutlass/epilogue/thread/linear_combination.h"
#include "split_k.cuh"
// clang-format on

namespace convoy {

// Output operator of the broadcast epilogue: activation(accumulator [+ residual] + bias).
// The broadcast vector is the bias (zeros when its pointer is null), the source is the residual.
template <class Spec, int kVector>
class Sm80OutputOp {
 public:
  static_assert(!Spec::kAffineRelu, "a second output needs split-K here, or an sm90 kernel");
  using ElementOutput = typename Spec::Element;
  using ElementC = ElementOutput;
  using ElementVector = ElementOutput;
  using ElementZ = ElementOutput;
  using ElementT = ElementOutput;
  using ElementAccumulator = float;
  using ElementCompute = float;
  static int const kElementsPerAccess = kVector;
  static int const kCount = kVector;
  static bool const kIsSingleSource = true;
  static bool const kIsHeavy =
      Spec::kActivation == Activation::kSigmoid || Spec::kActivation == Activation::kSilu;
  static bool const kStoreZ = true;
  static bool const kStoreT = false;

  using FragmentAccumulator = cutlass::Array<float, kVector>;
  using FragmentCompute = cutlass::Array<float, kVector>;
  using FragmentC = cutlass::Array<ElementC, kVector>;
  using FragmentOutput = cutlass::Array<ElementOutput, kVector>;
  using FragmentZ = FragmentOutput;
  using FragmentT = FragmentOutput;

  struct Params {
    ClipBounds bounds;
  };

  CUTLASS_HOST_DEVICE explicit Sm80OutputOp(Params const& params) : bounds_(params.bounds) {}
  CUTLASS_HOST_DEVICE bool is_source_needed() const { return Spec::kResidual; }
  CUTLASS_HOST_DEVICE void set_k_partition(int, int) {}  // serial split-K is never used

  CUTLASS_HOST_DEVICE void operator()(FragmentZ& z, FragmentT&, FragmentAccumulator const& sum,
                                      FragmentC const& residual,
                                      FragmentCompute const& bias) const {
    FragmentCompute wide = cutlass::NumericArrayConverter<float, ElementC, kVector>()(residual);
    CUTLASS_PRAGMA_UNROLL
    for (int i = 0; i < kVector; ++i) {
      wide[i] = activate<Spec::kActivation>(sum[i] + wide[i] + bias[i], bounds_);
    }
    z = cutlass::NumericArrayConverter<ElementOutput, float, kVector>()(wide);
  }

  CUTLASS_HOST_DEVICE void operator()(FragmentZ& z, FragmentT&, FragmentAccumulator const& sum,
                                      FragmentCompute const& bias) const {
    FragmentCompute wide;
    CUTLASS_PRAGMA_UNROLL
    for (int i = 0; i < kVector; ++i) {
      wide[i] = activate<Spec::kActivation>(sum[i] + bias[i], bounds_);
    }
    z = cutlass::NumericArrayConverter<ElementOutput, float, kVector>()(wide);
  }

 private:
  ClipBounds bounds_;
};

// kAlignA and kAlignOut are vector widths in elements: C must be a multiple of the first, K of the
// second. kFixedChannels wants C == kAlignA, kFewChannels C a multiple of it; both spread the
// reduction over (r, s, c) without padding C to the K tile.
template <class Element_, class Spec_, int kTileM, int kTileN, int kTileK, int kWarpM, int kWarpN,
          int kStages, cutlass::conv::IteratorAlgorithm kIterator_, int kAlignA_, int kAlignOut_,
          bool kSplitK_>
struct Sm80Config {
  using Element = Element_;
  using Spec = Spec_;
  static constexpr auto kIterator = kIterator_;
  static constexpr int kAlignA = kAlignA_, kAlignOut = kAlignOut_;
  static constexpr bool kSplitK = kSplitK_;
  static constexpr bool kTf32 = cutlass::platform::is_same<Element, float>::value;
  static constexpr bool kSpreadsChannels =
      kIterator == cutlass::conv::IteratorAlgorithm::kFixedChannels ||
      kIterator == cutlass::conv::IteratorAlgorithm::kFewChannels;
  static_assert(!(kSplitK && kSpreadsChannels), "split-K divides channels");

  using Tile = cutlass::gemm::GemmShape<kTileM, kTileN, kTileK>;
  using Warp = cutlass::gemm::GemmShape<kWarpM, kWarpN, kTileK>;
  using Instruction = cutlass::gemm::GemmShape<16, 8, kTf32 ? 8 : 16>;
  using Layout = cutlass::layout::TensorNHWC;
  using Swizzle = cutlass::gemm::threadblock::GemmIdentityThreadblockSwizzle<4>;
  // What the main kernel writes: the result, or fp32 partial sums.
  using Output = cutlass::platform::conditional_t<kSplitK, float, typename Spec::Element>;

  template <class Op>
  using Plain = typename cutlass::conv::kernel::DefaultConv2dFprop<
      Element, Layout, Element, Layout, Output, Layout, float, cutlass::arch::OpClassTensorOp,
      cutlass::arch::Sm80, Tile, Warp, Instruction, Op, Swizzle, kStages,
      cutlass::arch::OpMultiplyAdd, kIterator, cutlass::conv::StrideSupport::kStrided, kAlignA,
      kAlignA>::Kernel;
  template <class Op>
  using Fused = typename cutlass::conv::kernel::DefaultConv2dFpropWithBroadcast<
      Element, Layout, Element, Layout, Output, Layout, float, cutlass::arch::OpClassTensorOp,
      cutlass::arch::Sm80, Tile, Warp, Instruction, Op, Swizzle, kStages,
      cutlass::arch::OpMultiplyAdd, kIterator, cutlass::conv::StrideSupport::kStrided, kAlignA,
      kAlignA>::Kernel;
};

// The CUTLASS kernel of a configuration, chosen without instantiating the other one.
template <class Config, bool kSplitK = Config::kSplitK>
struct Sm80Select {
  using Kernel =
      typename Config::template Fused<Sm80OutputOp<typename Config::Spec, Config::kAlignOut>>;
};
template <class Config>
struct Sm80Select<Config, true> {
  using Kernel = typename Config::template Plain<cutlass::epilogue::thread::LinearCombination<
      float, Config::kAlignOut, float, float,
      cutlass::epilogue::thread::ScaleType::OnlyAlphaScaling>>;
};

template <class Config>
struct Sm80Conv {
  using Kernel = typename Sm80Select<Config>::Kernel;
  using Device = cutlass::conv::device::ImplicitGemmConvolution<Kernel>;
  using Arguments = typename Kernel::Arguments;
  using Spec = typename Config::Spec;
  using Element = typename Config::Element;
  using Output = typename Config::Output;
  using Layout = typename Config::Layout;
  static constexpr int kShared = int(sizeof(typename Kernel::SharedStorage));
  static constexpr int kReduceVector = Config::kAlignOut < 4 ? Config::kAlignOut : 4;

  struct State {
    typename Kernel::Params params;
    dim3 grid;
    ReduceParams<typename Spec::Element> reduce;
  };

  static int32_t check(ConvoyShape const& s) {
    if (int32_t code = check_sizes(s)) return code;
    if (s.op != CONVOY_FPROP) return kWrongOp;
    if (s.groups != 1) return kUnsupported;
    if (s.c % Config::kAlignA || s.k % Config::kAlignOut) return kMisaligned;
    int slices_of_channels = (s.c + Config::Tile::kK - 1) / Config::Tile::kK;
    if (Config::kSplitK ? s.split_k < 2 || s.split_k > slices_of_channels : s.split_k != 1) {
      return kBadSplit;
    }
    if (output_rows(s) > INT32_MAX || int64_t(s.c) * s.r * s.s > INT32_MAX) return kTooLarge;
    return from_cutlass(Device::can_implement(arguments(s, {})));
  }

  static int64_t workspace(ConvoyShape const& s) {
    return Config::kSplitK ? split_k_workspace(s) : 0;
  }

  static int32_t prepare(ConvoyShape const& s, ConvoyOperands const& o, State* state) {
    if (int32_t code = check_operands<Spec>(o)) return code;
    state->params = typename Kernel::Params(arguments(s, o), nullptr);
    // The broadcast kernel counts main loop steps as if channels were never spread.
    state->params.gemm_k_iterations = cutlass::conv::implicit_gemm_k_iterations(
        Kernel::kConvolutionalOperator, Config::Tile::kK, state->params.problem_size,
        Kernel::kIteratorAlgorithm);
    if (s.swizzle > 0) {
      int log_tile = 0;
      while ((2 << log_tile) <= s.swizzle && log_tile < 3) ++log_tile;
      state->params.swizzle_log_tile = log_tile;
    }
    auto tiles = state->params.grid_tiled_shape;
    int width = 1 << state->params.swizzle_log_tile;
    state->grid = dim3(tiles.m() * width, (tiles.n() + width - 1) / width, tiles.k());
    if constexpr (Config::kSplitK) state->reduce = make_reduce_params<Spec>(s, o);
    return allow_shared(function(), kShared);
  }

  static int32_t launch(State const& state, cudaStream_t stream) {
    void* arguments[] = {const_cast<typename Kernel::Params*>(&state.params)};
    int32_t code = from_cuda(cudaLaunchKernel(function(), state.grid, dim3(Kernel::kThreadCount),
                                              arguments, kShared, stream));
    if constexpr (Config::kSplitK) {
      if (code == kOk) code = launch_reduce<Spec, kReduceVector, false>(state.reduce, stream);
    }
    return code;
  }

  static int32_t footprint(State const& state, ConvoyFootprint* out) {
    return fill_footprint(function(), blocks(state.grid), Kernel::kThreadCount, kShared, out);
  }

 private:
  static void const* function() { return reinterpret_cast<void const*>(cutlass::Kernel<Kernel>); }

  // Bottom and right padding follow from p and q: reads beyond the image are masked to zero.
  static Arguments arguments(ConvoyShape const& s, ConvoyOperands const& o) {
    cutlass::conv::Conv2dProblemSize problem(s.n, s.h, s.w, s.c, s.k, s.r, s.s, s.p, s.q, s.pad_top,
                                             s.pad_left, s.stride_h, s.stride_w, s.dilation_h,
                                             s.dilation_w, cutlass::conv::Mode::kCrossCorrelation,
                                             Config::kSplitK ? s.split_k : 1);
    Layout x = Layout::packed({s.n, s.h, s.w, s.c});
    Layout filter = Layout::packed({s.k, s.r, s.s, s.c});
    Layout y = Layout::packed({s.n, s.p, s.q, s.k});
    auto* a = static_cast<Element*>(const_cast<void*>(o.a));
    auto* b = static_cast<Element*>(const_cast<void*>(o.b));
    if constexpr (Config::kSplitK) {
      auto* partials = static_cast<Output*>(o.workspace);
      return {problem,
              {a, x},
              {b, filter},
              {partials, y},
              {partials, y},
              {1.f},
              cutlass::conv::SplitKMode::kParallel};
    } else {
      auto* d = static_cast<Output*>(o.d);
      auto* residual = static_cast<Output*>(const_cast<void*>(o.residual));
      return {problem,
              {a, x},
              {b, filter},
              {residual ? residual : d, y},
              {d, y},
              {{s.clip_min, s.clip_max}},
              cutlass::conv::SplitKMode::kSerial,
              const_cast<void*>(o.bias),
              nullptr,
              0,
              s.k};
    }
  }
};

}  // namespace convoy
