// dgrad of a 1x1 convolution with stride 1 and no padding as an sm90 GEMM:
//   dx (rows, C) = dy (rows, K) * filter (K, C), the filter read as it lies in memory.
// Split-K runs as a batched GEMM whose batch index walks along the reduction.
#pragma once

#include "dgrad_shape.cuh"
#include "sm90_gemm.cuh"

namespace convoy {

// Sizes are those of the turned problem: c is the reduction, k the columns.
template <class Config_>
struct Sm90DgradGemmProblem : Sm90GemmProblem<Config_> {
  using Base = Sm90GemmProblem<Config_>;
  using Config = Config_;
  using Element = typename Config::Element;
  using Mainloop = typename cutlass::gemm::collective::CollectiveBuilder<
      cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp, Element, cutlass::layout::RowMajor,
      Config::kAlignment, Element, cutlass::layout::RowMajor, Config::kAlignment, float,
      typename Base::TileShape, typename Config::ClusterShape, typename Base::Stages,
      typename Base::KernelSchedule>::CollectiveOp;
  using Kernel = cutlass::gemm::kernel::GemmUniversal<cute::Shape<int, int, int, int>, Mainloop,
                                                      typename Base::Epilogue::Collective,
                                                      typename Config::SchedulerTag>;

  static typename Kernel::Arguments arguments(ConvoyShape const& t, ConvoyOperands const& o) {
    int slices = Config::kSplitK ? t.split_k : 1;
    int depth = t.c / slices;
    typename Kernel::Arguments a{};
    a.problem_shape = cute::make_shape(int(output_rows(t)), t.k, depth, slices);
    a.mainloop.ptr_A = static_cast<Element const*>(o.a);
    a.mainloop.ptr_B = static_cast<Element const*>(o.b);
    a.mainloop.dA = cute::make_stride(int64_t(t.c), cute::_1{}, int64_t(depth));
    a.mainloop.dB = cute::make_stride(cute::_1{}, int64_t(t.k), int64_t(depth) * t.k);
    return a;
  }
};

template <class Config>
using Sm90DgradGemm = UnitDgrad<Sm90Kernel<Sm90DgradGemmProblem<Config>>>;

}  // namespace convoy
