// dgrad with any stride and no dilation, mma.sync: one GEMM for each position of dx modulo
// the stride, a block each.
#pragma once

// clang-format off: the device header needs the kernel headers before it
#include "cutlass/conv/kernel/default_conv2d_dgrad.h"
#include "sm80_backward.cuh"
// clang-format on

namespace convoy {

template <class Config>
struct Sm80StridedDgradKernel {
  using Output = typename Config::Spec::Element;
  static constexpr int kVector = Config::kAlignA;
  using Op = cutlass::epilogue::thread::LinearCombination<
      Output, kVector, float, float, cutlass::epilogue::thread::ScaleType::OnlyAlphaScaling>;
  using Swizzle = cutlass::conv::threadblock::StridedDgradIdentityThreadblockSwizzle<4>;
  using Type = typename cutlass::conv::kernel::DefaultConv2dDgrad<
      typename Config::Element, typename Config::Layout, typename Config::Element,
      typename Config::Layout, Output, typename Config::Layout, float,
      cutlass::arch::OpClassTensorOp, cutlass::arch::Sm80, typename Config::Tile,
      typename Config::Warp, typename Config::Instruction, Op, Swizzle, Config::kStages,
      cutlass::arch::OpMultiplyAdd, Config::kIterator, cutlass::conv::StrideSupport::kStrided,
      Config::kAlignOut, Config::kAlignA>::Kernel;
};

template <class Config>
using Sm80StridedDgrad = Sm80BackwardConv<Config, Sm80Backward::kStridedDgrad,
                                          typename Sm80StridedDgradKernel<Config>::Type,
                                          typename Sm80StridedDgradKernel<Config>::Swizzle,
                                          typename Sm80StridedDgradKernel<Config>::Output>;

}  // namespace convoy
