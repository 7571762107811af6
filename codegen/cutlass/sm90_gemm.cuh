// 1x1 stride-1 convolution without padding, and GEMM, as an sm90 GEMM:
//   d (rows, K) = a (rows, C) * b (K, C)^T.
// Split-K runs as a batched GEMM whose batch index walks along the reduction.
#pragma once

#include "cutlass/gemm/collective/collective_builder.hpp"
#include "sm90_kernel.cuh"

namespace convoy {

template <class Config_>
struct Sm90GemmProblem {
  using Config = Config_;
  using Element = typename Config::Element;
  using TileShape =
      cute::Shape<cute::Int<Config::kTileM>, cute::Int<Config::kTileN>, cute::Int<Config::kTileK>>;
  using Epilogue = Sm90Epilogue<typename Config::MainSpec, TileShape,
                                typename Config::EpilogueSchedule, typename Config::EpilogueShape>;
  using KernelSchedule =
      cute::conditional_t<Config::kCooperative, cutlass::gemm::KernelTmaWarpSpecializedCooperative,
                          cutlass::gemm::KernelTmaWarpSpecializedPingpong>;
  using Stages =
      cute::conditional_t<Config::kStages == 0,
                          cutlass::gemm::collective::StageCountAutoCarveout<static_cast<int>(
                              sizeof(typename Epilogue::Collective::SharedStorage))>,
                          cutlass::gemm::collective::StageCount<Config::kStages>>;
  using Mainloop = typename cutlass::gemm::collective::CollectiveBuilder<
      cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp, Element, cutlass::layout::RowMajor,
      Config::kAlignment, Element, cutlass::layout::ColumnMajor, Config::kAlignment, float,
      TileShape, typename Config::ClusterShape, Stages, KernelSchedule>::CollectiveOp;
  using Kernel = cutlass::gemm::kernel::GemmUniversal<cute::Shape<int, int, int, int>, Mainloop,
                                                      typename Epilogue::Collective,
                                                      typename Config::SchedulerTag>;

  static int reduction_tiles(ConvoyShape const& s) {
    return (s.c + Config::kTileK - 1) / Config::kTileK;
  }

  static int32_t check(ConvoyShape const& s) {
    bool pointwise = s.r == 1 && s.s == 1 && s.stride_h == 1 && s.stride_w == 1 && s.pad_top == 0 &&
                     s.pad_left == 0 && s.pad_bottom == 0 && s.pad_right == 0;
    if (!pointwise) return kUnsupported;
    if (Config::kSplitK && s.c % (s.split_k * Config::kAlignment)) return kBadSplit;
    return kOk;
  }

  static typename Kernel::Arguments arguments(ConvoyShape const& s, ConvoyOperands const& o) {
    int slices = Config::kSplitK ? s.split_k : 1;
    int depth = s.c / slices;
    typename Kernel::Arguments a{};
    a.problem_shape = cute::make_shape(int(output_rows(s)), s.k, depth, slices);
    a.mainloop.ptr_A = static_cast<Element const*>(o.a);
    a.mainloop.ptr_B = static_cast<Element const*>(o.b);
    a.mainloop.dA = cute::make_stride(int64_t(s.c), cute::_1{}, int64_t(depth));
    a.mainloop.dB = cute::make_stride(int64_t(s.c), cute::_1{}, int64_t(depth));
    return a;
  }
};

template <class Config>
using Sm90Gemm = Sm90Kernel<Sm90GemmProblem<Config>>;

}  // namespace convoy
