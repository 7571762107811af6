// dgrad with stride 1 on sm90: CUTLASS's dgrad main loop (im2col of dy, the filter as it lies in
// memory, read against its grain) under the persistent GEMM kernels. See dgrad_shape.cuh.
//
// CUTLASS accepts larger strides here and computes them wrongly; UnitDgrad declines them.
#pragma once

#include "dgrad_shape.cuh"
#include "sm90_conv.cuh"

namespace convoy {

// As for fprop, but the filter's tile is (c, k) with c contiguous, the M/N-major side of wgmma.
template <class Config, class TileShape, int kStages>
struct Sm90DgradCollective : Sm90ConvCollective<Config, TileShape, kStages> {
  using Base = Sm90ConvCollective<Config, TileShape, kStages>;
  static constexpr auto kOp = cutlass::conv::Operator::kDgrad;
  static constexpr auto kMajorA = cute::GMMA::Major::K, kMajorB = cute::GMMA::Major::MN;
  using Element = typename Base::MmaElement;
  static_assert(sizeof(Element) == 2, "wgmma reads tf32 operands along the reduction only");

  using TiledMma = decltype(cute::make_tiled_mma(
      cute::GMMA::ss_op_selector<Element, Element, float, TileShape, kMajorA, kMajorB>(),
      typename Base::Warpgroups{}));
  using AtomB = decltype(cutlass::gemm::collective::detail::ss_smem_selector<
                         kMajorB, Element, typename Base::TileN, typename Base::TileK>());
  using SmemB = decltype(cute::tile_to_shape(
      AtomB{},
      cute::make_shape(typename Base::TileN{}, typename Base::TileK{}, cute::Int<kStages>{}),
      cute::Step<cute::_2, cute::_1, cute::_3>{}));
  using Type = cutlass::conv::collective::CollectiveConv<
      cutlass::conv::MainloopSm90TmaGmmaWarpSpecializedImplicitGemm<
          kOp, kStages, 2, typename Base::ClusterShape, typename Base::Schedule>,
      TileShape, Element, Element, TiledMma,
      cutlass::conv::collective::detail::Sm90ImplicitGemmTileTraits<typename Base::CopyA,
                                                                    typename Base::SmemA>,
      cutlass::conv::collective::detail::Sm90ImplicitGemmTileTraits<typename Base::CopyB, SmemB>>;
};

// Sizes are those of the turned problem: x is dy (n, h, w, c), y is dx (n, p, q, k).
template <class Config_>
struct Sm90DgradProblem : Sm90ConvProblem<Config_> {
  using Base = Sm90ConvProblem<Config_>;
  using Config = Config_;
  using Element = typename Config::Element;
  using TileShape = typename Base::TileShape;
  using Mainloop =
      Sm90ConvMainloop<typename Sm90DgradCollective<Config, TileShape, Base::kStages>::Type,
                       Config::kSplitK>;
  using Kernel = cutlass::gemm::kernel::GemmUniversal<typename Base::GemmShape, Mainloop,
                                                      typename Base::Epilogue::Collective,
                                                      typename Config::SchedulerTag>;

  static cute::Shape<int, int, int> reduction(ConvoyShape const& t) {
    return cute::make_shape(t.c, t.s, t.r);
  }

  static int reduction_tiles(ConvoyShape const& t) {
    return (t.c + Config::kTileK - 1) / Config::kTileK * t.s * t.r;
  }

  // CUTLASS wants the forward problem whose gradient this is.
  static typename Mainloop::ConvShape conv_shape(ConvoyShape const& t) {
    ConvoyShape s = turned_shape(t, CONVOY_DGRAD);
    return {cutlass::conv::Mode::kCrossCorrelation,
            {s.n, s.h, s.w, s.c},
            {s.k, s.r, s.s, s.c},
            {s.pad_top, s.pad_left},
            {s.pad_bottom, s.pad_right},
            {1, 1},
            {s.dilation_h, s.dilation_w},
            1};
  }

  static int32_t check(ConvoyShape const& t) {
    return Config::kSplitK && reduction_tiles(t) % t.split_k ? kBadSplit : kOk;
  }

  static typename Kernel::Arguments arguments(ConvoyShape const& t, ConvoyOperands const& o) {
    typename Kernel::Arguments a{};
    int rows = int(output_rows(t));
    a.mainloop.ptr_A = static_cast<Element const*>(o.a);
    a.mainloop.ptr_B = static_cast<Element const*>(o.b);
    a.mainloop.reduction = reduction(t);
    a.mainloop.shape = conv_shape(t);
    if constexpr (Config::kSplitK) {
      int depth = reduction_tiles(t) / t.split_k * Config::kTileK;
      a.problem_shape = cute::make_shape(rows, t.k, cute::make_shape(depth, 1, 1), t.split_k);
    } else {
      a.problem_shape = cute::make_shape(rows, t.k, reduction(t), 1);
    }
    return a;
  }
};

template <class Config>
using Sm90Dgrad = UnitDgrad<Sm90Kernel<Sm90DgradProblem<Config>>>;

}  // namespace convoy
