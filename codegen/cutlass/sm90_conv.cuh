// Forward convolution on sm90 as a persistent kernel: CUTLASS's TMA-im2col main loop for
// convolutions under its GEMM cooperative or pingpong kernel, which adds tile scheduling, two
// consumer warpgroups, stream-K and the GEMM epilogues. Packed NHWC output is a (NPQ, K) matrix.
#pragma once

// clang-format off: CUTLASS's convolution headers need those of cute and the GEMM kernels first
#include "sm90_kernel.cuh"
#include "cutlass/conv/convnd_problem_shape.hpp"
#include "cutlass/conv/dispatch_policy.hpp"
#include "cutlass/conv/collective/collective_builder.hpp"
// clang-format on

namespace convoy {

// The convolution main loop refuses CUTLASS's own placeholder persistent schedules by name; the
// GEMM kernels select by base class.
struct ConvCooperative : cutlass::gemm::KernelTmaWarpSpecializedCooperative {};
struct ConvPingpong : cutlass::gemm::KernelTmaWarpSpecializedPingpong {};

// The collective of CUTLASS's convolution builder, for the schedules above.
template <class Config, class TileShape, int kStages>
struct Sm90ConvCollective {
  static constexpr auto kOp = cutlass::conv::Operator::kFprop;
  using Element = typename Config::Element;
  using MmaElement =
      cute::conditional_t<cute::is_same_v<Element, float>, cutlass::tfloat32_t, Element>;
  using Schedule = cute::conditional_t<Config::kCooperative, ConvCooperative, ConvPingpong>;
  using ClusterShape = typename Config::ClusterShape;
  using TileM = cute::Int<Config::kTileM>;
  using TileN = cute::Int<Config::kTileN>;
  using TileK = cute::Shape<cute::Int<Config::kTileK>>;
  static constexpr auto kMajor = cute::GMMA::Major::K;

  using Warpgroups =
      cute::Layout<cute::Shape<cute::Int<Config::kCooperative ? 2 : 1>, cute::_1, cute::_1>>;
  using TiledMma = decltype(cute::make_tiled_mma(
      cute::GMMA::ss_op_selector<MmaElement, MmaElement, float, TileShape, kMajor, kMajor>(),
      Warpgroups{}));
  // The activations are shared along N, the filter along M of a cluster.
  using CopyA = decltype(cutlass::conv::collective::detail::sm90_cluster_shape_to_im2col_tma_atom(
      cute::shape<1>(ClusterShape{})));
  using CopyB = decltype(cutlass::gemm::collective::detail::sm90_cluster_shape_to_tma_atom(
      cute::shape<0>(ClusterShape{})));
  using AtomA = decltype(cutlass::gemm::collective::detail::ss_smem_selector<kMajor, MmaElement,
                                                                             TileM, TileK>());
  using AtomB = decltype(cutlass::gemm::collective::detail::ss_smem_selector<kMajor, MmaElement,
                                                                             TileN, TileK>());
  using SmemA = decltype(cute::tile_to_shape(
      AtomA{}, cute::make_shape(TileM{}, TileK{}, cute::Int<kStages>{}),
      cute::Step<cute::_2, cute::_1, cute::_3>{}));
  using SmemB = decltype(cute::tile_to_shape(
      AtomB{}, cute::make_shape(TileN{}, TileK{}, cute::Int<kStages>{}),
      cute::Step<cute::_2, cute::_1, cute::_3>{}));
  using Type = cutlass::conv::collective::CollectiveConv<
      cutlass::conv::MainloopSm90TmaGmmaWarpSpecializedImplicitGemm<kOp, kStages, 2, ClusterShape,
                                                                    Schedule>,
      TileShape, Element, Element, TiledMma,
      cutlass::conv::collective::detail::Sm90ImplicitGemmTileTraits<CopyA, SmemA>,
      cutlass::conv::collective::detail::Sm90ImplicitGemmTileTraits<CopyB, SmemB>>;
};

// Gives that collective the interface that the GEMM kernels call. The GEMM problem is
// (NPQ, K, (C, S, R), 1); with split-K it is (NPQ, K, (tiles of one slice * kTileK, 1, 1), slices)
// and the true reduction extents travel in Params.
template <class Base, bool kSplitK>
struct Sm90ConvMainloop : Base {
  using ConvShape = typename Base::ProblemShape;
  using Reduction = cute::Shape<int, int, int>;
  using TileShape = typename Base::TileShape;
  using StrideA = cute::Stride<int64_t, cute::_1, int64_t>;  // only its rank is looked at
  using StrideB = StrideA;
  static constexpr uint32_t NumProducerThreadEvents = 1;

  struct Arguments {
    typename Base::ElementA const* ptr_A = nullptr;
    typename Base::ElementB const* ptr_B = nullptr;
    ConvShape shape{};
    Reduction reduction{};
  };
  struct Params : Base::Params {
    Reduction reduction{};
  };

  template <class GemmShape>
  static Params to_underlying_arguments(GemmShape const&, Arguments const& a, void* workspace) {
    return {Base::to_underlying_arguments(a.shape, {a.ptr_A, a.ptr_B}, workspace), a.reduction};
  }

  template <class GemmShape>
  static bool can_implement(GemmShape const&, Arguments const& a) {
    return Base::can_implement(a.shape, typename Base::Arguments{a.ptr_A, a.ptr_B});
  }

  // Two tensors whose reduction-tile mode 3 and batch mode 4 the kernels iterate over, then the
  // true tile views that load() reads through.
  template <class GemmShape>
  CUTLASS_DEVICE auto load_init(GemmShape const& shape, Params const& params) {
    auto [m, n, k, l] = shape;
    auto true_shape = cute::make_shape(m, n, params.reduction, cute::_1{});
    auto [a, b] = Base::load_init(true_shape, params);
    if constexpr (kSplitK) {
      int tiles = cute::size(cute::ceil_div(k, cute::shape<2>(TileShape{})));
      return cute::make_tuple(extents(a, tiles, l), extents(b, tiles, l), a, b);
    } else {
      return cute::make_tuple(with_batch(a), with_batch(b), a, b);
    }
  }

  template <class LikeA, class LikeB, class TensorA, class TensorB, class BlockCoord,
            class TileIterator>
  CUTLASS_DEVICE void load(Params const& params, typename Base::MainloopPipeline pipeline,
                           typename Base::PipelineState state,
                           cute::tuple<LikeA, LikeB, TensorA, TensorB> const& inputs,
                           BlockCoord const& block, TileIterator tile, int tile_count,
                           int thread_index, uint32_t block_rank,
                           typename Base::TensorStorage& storage) {
    auto a = cute::get<2>(inputs);
    auto b = cute::get<3>(inputs);
    if constexpr (kSplitK) {
      auto extent = cute::shape<3>(a);
      auto first = cute::idx2crd(int(cute::get<3>(block)) * tile_count, extent);
      Base::load(params, pipeline, state, cute::make_tuple(a, b), block,
                 cute::make_coord_iterator(first, extent), tile_count, thread_index, block_rank,
                 storage);
    } else {
      Base::load(params, pipeline, state, cute::make_tuple(a, b), block, tile, tile_count,
                 thread_index, block_rank, storage);
    }
  }

  // The matrix descriptors must be warp-uniform for the compiler to keep them in uniform
  // registers, so the thread index that selects the warpgroup's rows is broadcast.
  template <class Fragment>
  CUTLASS_DEVICE void mma(typename Base::MainloopPipeline pipeline,
                          typename Base::PipelineState state, Fragment& accumulators,
                          int tile_count, int thread_index, typename Base::TensorStorage& storage,
                          Params const& params) {
    int warpgroup = __shfl_sync(0xffffffff, thread_index / 128, 0) * 128;
    Base::mma(pipeline, state, accumulators, tile_count, warpgroup, storage, params);
  }

 private:
  template <class Tensor>
  CUTLASS_DEVICE static auto with_batch(Tensor const& t) {
    return cute::make_tensor(
        t.data(), cute::append<5>(t.layout(), cute::make_layout(cute::_1{}, cute::_0{})));
  }

  // A stand-in with the same tile modes, but `tiles` reduction tiles and `slices` batches, for the
  // kernels to read extents from; never dereferenced.
  template <class Tensor>
  CUTLASS_DEVICE static auto extents(Tensor const& t, int tiles, int slices) {
    auto shape =
        cute::make_shape(cute::shape<0>(t), cute::shape<1>(t), cute::shape<2>(t), tiles, slices);
    auto layout = cute::make_layout(shape, cute::repeat_like(shape, cute::_0{}));
    return cute::make_tensor(cute::make_gmem_ptr(static_cast<int*>(nullptr)), layout);
  }
};

template <class Config_>
struct Sm90ConvProblem {
  using Config = Config_;
  using Element = typename Config::Element;
  using TileShape = cute::Shape<cute::Int<Config::kTileM>, cute::Int<Config::kTileN>,
                                cute::Shape<cute::Int<Config::kTileK>>>;
  using Epilogue = Sm90Epilogue<typename Config::MainSpec, TileShape,
                                typename Config::EpilogueSchedule, typename Config::EpilogueShape>;

  // Stages that fit beside the epilogue; 2 KiB are left for barriers and alignment.
  static constexpr int kStageBytes =
      (Config::kTileM + Config::kTileN) * Config::kTileK * int(sizeof(Element));
  static constexpr int kFittingStages =
      (232448 - 2048 - int(sizeof(typename Epilogue::Collective::SharedStorage))) / kStageBytes;
  static constexpr int kStages = Config::kStages ? Config::kStages : kFittingStages;
  static_assert(kStages >= 2, "the tile leaves no room for two pipeline stages");

  using Mainloop = Sm90ConvMainloop<typename Sm90ConvCollective<Config, TileShape, kStages>::Type,
                                    Config::kSplitK>;
  using GemmShape = cute::Shape<int, int, cute::Shape<int, int, int>, int>;
  using Kernel =
      cutlass::gemm::kernel::GemmUniversal<GemmShape, Mainloop, typename Epilogue::Collective,
                                           typename Config::SchedulerTag>;

  // Without padding to the left and right, the S taps of a filter row read S*C neighbouring
  // elements. With few channels the row is then read as one tap of S*C channels, through an
  // activation view whose pixels overlap (W stride of stride_w * C elements for S*C channels): a
  // reduction tile of kTileK elements would otherwise be mostly zero fill.
  static bool folds_width(ConvoyShape const& s) {
    return s.s > 1 && s.c < Config::kTileK && s.dilation_w == 1 && !s.pad_left && !s.pad_right &&
           int64_t(s.stride_w) * s.c * int(sizeof(Element)) % 16 == 0;
  }

  // (C, S, R) as the main loop runs over them.
  static cute::Shape<int, int, int> reduction(ConvoyShape const& s) {
    if (folds_width(s)) return cute::make_shape(s.c * s.s, 1, s.r);
    return cute::make_shape(s.c, s.s, s.r);
  }

  static int reduction_tiles(ConvoyShape const& s) {
    auto [c, width, height] = reduction(s);
    return (c + Config::kTileK - 1) / Config::kTileK * width * height;
  }

  static typename Mainloop::ConvShape conv_shape(ConvoyShape const& s) {
    auto mode = cutlass::conv::Mode::kCrossCorrelation;
    if (!folds_width(s)) {
      return {mode,
              {s.n, s.h, s.w, s.c},
              {s.k, s.r, s.s, s.c},
              {s.pad_top, s.pad_left},
              {s.pad_bottom, s.pad_right},
              {s.stride_h, s.stride_w},
              {s.dilation_h, s.dilation_w},
              1};
    }
    int64_t row = int64_t(s.w) * s.c, taps = int64_t(s.s) * s.c;
    return {mode,
            {s.n, s.h, s.q, s.s * s.c},
            {s.h * row, row, int64_t(s.stride_w) * s.c, 1},
            {s.k, s.r, 1, s.s * s.c},
            {s.r * taps, taps, taps, 1},
            {s.pad_top, 0},
            {s.pad_bottom, 0},
            {s.stride_h, 1},
            {s.dilation_h, 1},
            1};
  }

  static int32_t check(ConvoyShape const& s) {
    if (s.stride_h > 8 || s.stride_w > 8) return kUnsupported;  // a limit of tensor maps
    if (Config::kSplitK && reduction_tiles(s) % s.split_k) return kBadSplit;
    return kOk;
  }

  static typename Kernel::Arguments arguments(ConvoyShape const& s, ConvoyOperands const& o) {
    typename Kernel::Arguments a{};
    int rows = int(output_rows(s));
    a.mainloop.ptr_A = static_cast<Element const*>(o.a);
    a.mainloop.ptr_B = static_cast<Element const*>(o.b);
    a.mainloop.reduction = reduction(s);
    a.mainloop.shape = conv_shape(s);
    if constexpr (Config::kSplitK) {
      int depth = reduction_tiles(s) / s.split_k * Config::kTileK;
      a.problem_shape = cute::make_shape(rows, s.k, cute::make_shape(depth, 1, 1), s.split_k);
    } else {
      a.problem_shape = cute::make_shape(rows, s.k, reduction(s), 1);
    }
    return a;
  }
};

template <class Config>
using Sm90Conv = Sm90Kernel<Sm90ConvProblem<Config>>;

}  // namespace convoy
