// The sm90 convolutions and GEMMs on slices of wider tensors. Only the host's side differs: the
// device code takes all strides from tensor maps, and is that of the kernels for compact tensors.
#pragma once

#include "convoy/strided_abi.h"
#include "sm90_conv_activated.cuh"
#include "sm90_gemm_activated.cuh"

namespace convoy {

template <class Problem>
struct StridedInput;

template <class Config>
struct StridedInput<Sm90GemmProblem<Config>> {
  template <class Arguments>
  static int32_t set(ConvoyShape const&, int64_t row, Arguments* a) {
    cute::get<0>(a->mainloop.dA) = row;
    return kOk;
  }
};

template <class Config>
struct StridedInput<Sm90ConvProblem<Config>> {
  // Taps of a folded row are neighbours only where the pixels are.
  template <class Arguments>
  static int32_t set(ConvoyShape const& s, int64_t row, Arguments* a) {
    if (Sm90ConvProblem<Config>::folds_width(s)) return row == s.c ? kOk : kUnsupported;
    auto& strides = a->mainloop.shape.stride_A;
    strides[0] = row * s.w * s.h;
    strides[1] = row * s.w;
    strides[2] = row;
    return kOk;
  }
};

template <class Kernel>
struct Sm90Strided;

template <class Problem>
struct Sm90Strided<Sm90Kernel<Problem>> {
  using Base = Sm90Kernel<Problem>;
  using State = typename Base::State;
  using Config = typename Base::Config;
  static_assert(Config::kScheduler == Scheduler::kPersistent && !Config::Spec::kAffineRelu,
                "slices are read and written by whole tiles, with one result");

  static int32_t prepare(ConvoyShape const& s, ConvoyOperands const& o,
                         ConvoyRowStrides const& rows, State* state) {
    if (int32_t code = Base::check(s)) return code;
    if (int32_t code = check_operands<typename Config::Spec>(o)) return code;
    int64_t align = Config::kAlignment, align_out = Config::Spec::kOutputVector;
    if (rows.a % align || rows.d % align_out || rows.residual % align_out) return kMisaligned;
    if (rows.a < s.c || rows.d < s.k) return kBadShape;
    auto a = Problem::arguments(s, o);
    if (int32_t code = StridedInput<Problem>::set(s, rows.a, &a)) return code;
    a.epilogue = Problem::Epilogue::arguments(s, o);
    set_rows(s, rows.d, &a.epilogue.dD);
    if constexpr (Config::Spec::kResidual) {
      if (rows.residual < s.k) return kBadShape;
      set_rows(s, rows.residual, &a.epilogue.dC);
    }
    Base::Launch::set_schedule(s, &a);
    return Base::Launch::prepare(a, o.workspace, state);
  }

 private:
  template <class Stride>
  static void set_rows(ConvoyShape const& s, int64_t row, Stride* stride) {
    *stride = cute::make_stride(row, cute::_1{}, output_rows(s) * row);
  }
};

}  // namespace convoy

#define CONVOY_EXPORT_STRIDED(Kernel)                                                            \
  CONVOY_API int32_t convoy_kernel_prepare_strided(                                              \
      const ConvoyShape* shape, const ConvoyOperands* operands, const ConvoyRowStrides* strides, \
      void* buffer) {                                                                            \
    auto* state = new (convoy::state_at<Kernel::State>(buffer)) Kernel::State();                 \
    return convoy::Sm90Strided<Kernel>::prepare(*shape, *operands, *strides, state);             \
  }
