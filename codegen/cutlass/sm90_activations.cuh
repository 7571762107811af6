// The activations of activations.cuh in the visitor trees of the sm90 kernels.
#pragma once

#include "activations.cuh"
#include "sm90_epilogue.cuh"

namespace convoy {

// Of accumulator, residual and bias.
template <Activation kActivation>
struct ActivateThenAdd {
  template <class Fragment>
  struct Fn {
    using Arguments = ClipBounds;

    CUTLASS_HOST_DEVICE Fragment operator()(Fragment const& sum, Fragment const& residual,
                                            Fragment const& bias, ClipBounds const& bounds) const {
      Fragment out;
      CUTLASS_PRAGMA_UNROLL
      for (int i = 0; i < Fragment::kElements; ++i) {
        out[i] = activate<kActivation>(sum[i] + bias[i], bounds) + residual[i];
      }
      return out;
    }
  };
};

#define CONVOY_RESIDUAL_LAST(activation) \
  template <>                            \
  struct SumThenActivate<residual_last(activation)> : ActivateThenAdd<activation> {};
CONVOY_ACTIVATIONS(CONVOY_RESIDUAL_LAST)
#undef CONVOY_RESIDUAL_LAST

}  // namespace convoy
