// wgrad on sm90 as a persistent kernel: dw (K, (C, S, R)) = dy^T (K, NPQ) * im2col(x) (NPQ, (C, S, R)).
// CUTLASS's wgrad main loop under its GEMM kernels; any stride and dilation.
//
// The output is a filter, often only a few tiles, and the reduction runs over all pixels: with
// kSplitK each slice of pixels is a batch of its own that writes fp32 partial sums, added up by
// sum_slices. Slices need not be equal: pixels behind the last one are read as zeros.
#pragma once

#include "slice_sum.cuh"
#include "sm90_conv.cuh"

namespace convoy {

// Both operands lie against the reduction's grain: pixels are rows in memory.
template <class Config, class TileShape, int kStages>
struct Sm90WgradCollective : Sm90ConvCollective<Config, TileShape, kStages> {
  using Base = Sm90ConvCollective<Config, TileShape, kStages>;
  static constexpr auto kOp = cutlass::conv::Operator::kWgrad;
  static constexpr auto kMajor = cute::GMMA::Major::MN;
  using Element = typename Base::MmaElement;
  using TileM = typename Base::TileM;
  using TileN = typename Base::TileN;
  using TileK = typename Base::TileK;
  using ClusterShape = typename Base::ClusterShape;
  static_assert(sizeof(Element) == 2, "wgmma reads tf32 operands along the reduction only");

  using TiledMma = decltype(cute::make_tiled_mma(
      cute::GMMA::ss_op_selector<Element, Element, float, TileShape, kMajor, kMajor>(),
      typename Base::Warpgroups{}));
  // dy is shared along N of a cluster, x along M.
  using CopyA = decltype(cutlass::gemm::collective::detail::sm90_cluster_shape_to_tma_atom(
      cute::shape<1>(ClusterShape{})));
  using CopyB = decltype(cutlass::conv::collective::detail::sm90_cluster_shape_to_im2col_tma_atom(
      cute::shape<0>(ClusterShape{})));
  using AtomA = decltype(cutlass::gemm::collective::detail::ss_smem_selector<kMajor, Element, TileM,
                                                                             TileK>());
  using AtomB = decltype(cutlass::gemm::collective::detail::ss_smem_selector<kMajor, Element, TileN,
                                                                             TileK>());
  using SmemA = decltype(cute::tile_to_shape(
      AtomA{}, cute::make_shape(TileM{}, TileK{}, cute::Int<kStages>{}),
      cute::Step<cute::_2, cute::_1, cute::_3>{}));
  using SmemB = decltype(cute::tile_to_shape(
      AtomB{}, cute::make_shape(TileN{}, TileK{}, cute::Int<kStages>{}),
      cute::Step<cute::_2, cute::_1, cute::_3>{}));
  using Type = cutlass::conv::collective::CollectiveConv<
      cutlass::conv::MainloopSm90TmaGmmaWarpSpecializedImplicitGemm<kOp, kStages, 2, ClusterShape,
                                                                    typename Base::Schedule>,
      TileShape, Element, Element, TiledMma,
      cutlass::conv::collective::detail::Sm90ImplicitGemmTileTraits<CopyA, SmemA>,
      cutlass::conv::collective::detail::Sm90ImplicitGemmTileTraits<CopyB, SmemB>>;
};

// The GEMM problem is (K, (C, S, R), pixels, 1); with split-K it is (K, (C, S, R), pixels of one
// slice, slices), and the true number of pixels travels in Params as the first reduction extent.
template <class Base, bool kSplitK>
struct Sm90WgradMainloop : Sm90ConvMainloop<Base, kSplitK> {
  using Params = typename Sm90ConvMainloop<Base, kSplitK>::Params;
  using TileShape = typename Base::TileShape;

  template <class GemmShape>
  CUTLASS_DEVICE auto load_init(GemmShape const& shape, Params const& params) {
    auto [m, n, k, l] = shape;
    auto true_shape = cute::make_shape(m, n, cute::get<0>(params.reduction), cute::_1{});
    auto [a, b] = Base::load_init(true_shape, params);
    int tiles = cute::size(cute::ceil_div(k, cute::shape<2>(TileShape{})));
    return cute::make_tuple(extents(a, tiles, l), extents(b, tiles, l), a, b);
  }

 private:
  // A stand-in for the kernels to read numbers of tiles and batches from; never dereferenced.
  template <class Tensor>
  CUTLASS_DEVICE static auto extents(Tensor const& t, int tiles, int slices) {
    auto shape =
        cute::make_shape(cute::shape<0>(t), cute::shape<1>(t), cute::shape<2>(t), tiles, slices);
    auto layout = cute::make_layout(shape, cute::repeat_like(shape, cute::_0{}));
    return cute::make_tensor(cute::make_gmem_ptr(static_cast<int*>(nullptr)), layout);
  }
};

template <class Config_>
struct Sm90Wgrad {
  using Config = Config_;
  using Element = typename Config::Element;
  using Output = typename Config::Spec::Element;
  static constexpr bool kSplitK = Config::kSplitK;

  using TileShape = cute::Shape<cute::Int<Config::kTileM>, cute::Shape<cute::Int<Config::kTileN>>,
                                cute::Shape<cute::Int<Config::kTileK>>>;
  // What the main kernel writes: (k, (c, s, r), slice), c contiguous.
  using Written = typename Config::MainSpec::Element;
  using Stride = cute::Stride<int64_t, cute::Stride<cute::_1, int64_t, int64_t>, int64_t>;
  static constexpr int kAlignment = 128 / cutlass::sizeof_bits<Written>::value;
  using Epilogue = typename cutlass::epilogue::collective::CollectiveBuilder<
      cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp, TileShape, typename Config::ClusterShape,
      cutlass::epilogue::collective::EpilogueTileAuto, float, float, void, Stride, kAlignment,
      Written, Stride, kAlignment, typename Config::EpilogueSchedule,
      cutlass::epilogue::fusion::LinearCombination<Written, float, void, float>>::CollectiveOp;

  static constexpr int kStageBytes =
      (Config::kTileM + Config::kTileN) * Config::kTileK * int(sizeof(Element));
  static constexpr int kFittingStages =
      (232448 - 2048 - int(sizeof(typename Epilogue::SharedStorage))) / kStageBytes;
  static constexpr int kStages = Config::kStages ? Config::kStages : kFittingStages;
  static_assert(kStages >= 2, "the tile leaves no room for two pipeline stages");

  using Mainloop =
      Sm90WgradMainloop<typename Sm90WgradCollective<Config, TileShape, kStages>::Type, kSplitK>;
  using GemmShape = cute::Shape<int, cute::Shape<int, int, int>, int, int>;
  using Kernel = cutlass::gemm::kernel::GemmUniversal<GemmShape, Mainloop, Epilogue,
                                                      typename Config::SchedulerTag>;
  using Arguments = typename Kernel::Arguments;
  using Launch = Sm90Launch<Kernel, Config>;

  struct State : Launch::State {
    SliceSum<Output> sum;
  };

  static int reduction_tiles(ConvoyShape const& s) {
    return int((output_rows(s) + Config::kTileK - 1) / Config::kTileK);
  }

  static int32_t check(ConvoyShape const& s) {
    if (int32_t code = check_sizes(s)) return code;
    if (s.op != CONVOY_WGRAD) return kWrongOp;
    if (s.groups != 1 || s.stride_h > 8 || s.stride_w > 8) return kUnsupported;
    if (s.c % Config::kAlignment || s.k % Config::kAlignment) return kMisaligned;
    if (Config::kScheduler == Scheduler::kPersistent && s.split_k != 1) return kBadSplit;
    if (kSplitK && s.split_k < 2) return kBadSplit;
    if (output_rows(s) > INT32_MAX - 4096 || filter_size(s) > INT32_MAX) return kTooLarge;
    if (s.split_k > reduction_tiles(s)) return kBadSplit;
    return Launch::check(arguments(s, placeholder_operands()));
  }

  static int64_t workspace(ConvoyShape const& s) {
    if (kSplitK) return slices_bytes(s);
    return int64_t(Kernel::get_workspace_size(arguments(s, placeholder_operands())));
  }

  static int32_t prepare(ConvoyShape const& s, ConvoyOperands const& o, State* state) {
    if (!o.a || !o.b || !o.d) return kMissingOperand;
    state->sum = make_slice_sum<Output>(s, o);
    return Launch::prepare(arguments(s, o), kSplitK ? nullptr : o.workspace, state);
  }

  static int32_t launch(State const& state, cudaStream_t stream) {
    int32_t code = Launch::launch(state, stream);
    if constexpr (kSplitK) {
      if (code == kOk) code = state.sum.enqueue(stream, true);
    }
    return code;
  }

  static int32_t footprint(State const& state, ConvoyFootprint* out) {
    return Launch::footprint(state, out);
  }

 private:
  // Aligned stand-ins for questions that are asked before there is memory.
  static ConvoyOperands placeholder_operands() {
    void* p = reinterpret_cast<void*>(uintptr_t(256));
    return {p, p, nullptr, nullptr, nullptr, nullptr, p, nullptr, p};
  }

  static Arguments arguments(ConvoyShape const& s, ConvoyOperands const& o) {
    int pixels = int(output_rows(s)), slices = kSplitK ? s.split_k : 1;
    int tiles = (reduction_tiles(s) + slices - 1) / slices;
    Arguments a{};
    a.problem_shape = cute::make_shape(s.k, cute::make_shape(s.c, s.s, s.r),
                                       kSplitK ? tiles * Config::kTileK : pixels, slices);
    a.mainloop.ptr_A = static_cast<Element const*>(o.a);
    a.mainloop.ptr_B = static_cast<Element const*>(o.b);
    a.mainloop.reduction = cute::make_shape(pixels, 1, 1);
    a.mainloop.shape = {cutlass::conv::Mode::kCrossCorrelation,
                        {s.n, s.h, s.w, s.c},
                        {s.k, s.r, s.s, s.c},
                        {s.pad_top, s.pad_left},
                        {s.pad_bottom, s.pad_right},
                        {s.stride_h, s.stride_w},
                        {s.dilation_h, s.dilation_w},
                        1};
    int64_t row = int64_t(s.s) * s.c;
    a.epilogue.thread.alpha = 1.f;
    a.epilogue.thread.beta = 0.f;
    a.epilogue.ptr_D = static_cast<Written*>(kSplitK ? o.workspace : o.d);
    a.epilogue.dD = cute::make_stride(s.r * row, cute::make_stride(cute::_1{}, int64_t(s.c), row),
                                      filter_size(s));
    Launch::set_schedule(s, &a);
    return a;
  }
};

}  // namespace convoy
