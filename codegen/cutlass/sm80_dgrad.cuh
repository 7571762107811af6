// dgrad with stride 1 and any dilation, mma.sync.
#pragma once

// clang-format off: the device header needs the kernel headers before it
#include "cutlass/conv/kernel/default_conv2d_dgrad.h"
#include "sm80_backward.cuh"
// clang-format on

namespace convoy {

template <class Config>
struct Sm80DgradKernel {
  using Output = typename Config::Spec::Element;
  static constexpr int kVector = Config::kAlignA;
  using Op = cutlass::epilogue::thread::LinearCombination<
      Output, kVector, float, float, cutlass::epilogue::thread::ScaleType::OnlyAlphaScaling>;
  using Swizzle = typename Config::Swizzle;
  using Type = typename cutlass::conv::kernel::DefaultConv2dDgrad<
      typename Config::Element, typename Config::Layout, typename Config::Element,
      typename Config::Layout, Output, typename Config::Layout, float,
      cutlass::arch::OpClassTensorOp, cutlass::arch::Sm80, typename Config::Tile,
      typename Config::Warp, typename Config::Instruction, Op, Swizzle, Config::kStages,
      cutlass::arch::OpMultiplyAdd, Config::kIterator, cutlass::conv::StrideSupport::kUnity,
      Config::kAlignOut, Config::kAlignA>::Kernel;
};

template <class Config>
using Sm80Dgrad =
    Sm80BackwardConv<Config, Sm80Backward::kUnitDgrad, typename Sm80DgradKernel<Config>::Type,
                     typename Sm80DgradKernel<Config>::Swizzle,
                     typename Sm80DgradKernel<Config>::Output>;

}  // namespace convoy
