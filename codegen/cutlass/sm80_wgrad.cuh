// wgrad with any stride and dilation, mma.sync; fp32 partial sums of slices of the pixels.
#pragma once

// clang-format off: the device header needs the kernel headers before it
#include "cutlass/conv/kernel/default_conv2d_wgrad.h"
#include "sm80_backward.cuh"
// clang-format on

namespace convoy {

template <class Config>
struct Sm80WgradKernel {
  using Output = float;
  static constexpr int kVector = Config::kAlignA < 4 ? Config::kAlignA : 4;
  using Op = cutlass::epilogue::thread::LinearCombination<
      Output, kVector, float, float, cutlass::epilogue::thread::ScaleType::OnlyAlphaScaling>;
  using Swizzle = typename Config::Swizzle;
  using Type = typename cutlass::conv::kernel::DefaultConv2dWgrad<
      typename Config::Element, typename Config::Layout, typename Config::Element,
      typename Config::Layout, Output, typename Config::Layout, float,
      cutlass::arch::OpClassTensorOp, cutlass::arch::Sm80, typename Config::Tile,
      typename Config::Warp, typename Config::Instruction, Op, Swizzle, Config::kStages,
      cutlass::arch::OpMultiplyAdd, Config::kIterator, cutlass::conv::StrideSupport::kStrided,
      Config::kAlignOut, Config::kAlignA>::Kernel;
};

template <class Config>
using Sm80Wgrad =
    Sm80BackwardConv<Config, Sm80Backward::kWgrad, typename Sm80WgradKernel<Config>::Type,
                     typename Sm80WgradKernel<Config>::Swizzle,
                     typename Sm80WgradKernel<Config>::Output>;

}  // namespace convoy
