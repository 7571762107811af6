// sm80_conv.cuh with the activations of activations.cuh.
#pragma once

#include "activations.cuh"
#include "sm80_conv.cuh"

namespace convoy {

template <class Element, Activation kActivation, bool kResidual, int kVector>
class Sm80OutputOp<ActivatedSpec<Element, kActivation, kResidual, false>, kVector>
    : public Sm80OutputOp<EpilogueSpec<Element, kActivation, kResidual, false>, kVector> {
 public:
  using Base = Sm80OutputOp<EpilogueSpec<Element, kActivation, kResidual, false>, kVector>;
  using typename Base::FragmentAccumulator;
  using typename Base::FragmentC;
  using typename Base::FragmentCompute;
  using typename Base::FragmentT;
  using typename Base::FragmentZ;
  using typename Base::Params;
  static bool const kIsHeavy = is_heavy(kActivation);

  CUTLASS_HOST_DEVICE explicit Sm80OutputOp(Params const& params)
      : Base(params), bounds_(params.bounds) {}

  CUTLASS_HOST_DEVICE void operator()(FragmentZ& z, FragmentT& t, FragmentAccumulator const& sum,
                                      FragmentC const& residual,
                                      FragmentCompute const& bias) const {
    if constexpr (is_residual_last(kActivation)) {
      FragmentCompute wide = cutlass::NumericArrayConverter<float, Element, kVector>()(residual);
      CUTLASS_PRAGMA_UNROLL
      for (int i = 0; i < kVector; ++i) {
        wide[i] += activate<without_residual(kActivation)>(sum[i] + bias[i], bounds_);
      }
      z = cutlass::NumericArrayConverter<Element, float, kVector>()(wide);
    } else {
      Base::operator()(z, t, sum, residual, bias);
    }
  }

  CUTLASS_HOST_DEVICE void operator()(FragmentZ& z, FragmentT& t, FragmentAccumulator const& sum,
                                      FragmentCompute const& bias) const {
    if constexpr (!is_residual_last(kActivation)) Base::operator()(z, t, sum, bias);
  }

 private:
  ClipBounds bounds_;
};

}  // namespace convoy
