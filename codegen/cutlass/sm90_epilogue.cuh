// Fused epilogues of the sm90 kernels as CUTLASS epilogue visitor trees.
//
//   Sum     = activation(accumulator [+ residual] + bias)            one compute node
//   plain   : D = Sum
//   affine  : y = store(Sum) on the side, D = y2 = relu(scale * y + shift)
// The residual is the epilogue's source tensor C, loaded by TMA ahead of use.
#pragma once

#include "abi.cuh"
#include "cutlass/epilogue/collective/collective_builder.hpp"
#include "cutlass/epilogue/dispatch_policy.hpp"
#include "cutlass/epilogue/fusion/sm90_callbacks_tma_warpspecialized.hpp"
#include "cutlass/layout/matrix.h"
#include "epilogue.cuh"

namespace convoy {

// As a class template in a class, because the visitor wants a template over the fragment alone.
template <Activation kActivation>
struct SumThenActivate {
  template <class Fragment>
  struct Fn {
    using Arguments = ClipBounds;

    CUTLASS_HOST_DEVICE Fragment operator()(Fragment const& a, Fragment const& b,
                                            ClipBounds const& bounds) const {
      Fragment out;
      CUTLASS_PRAGMA_UNROLL
      for (int i = 0; i < Fragment::kElements; ++i) {
        out[i] = activate<kActivation>(a[i] + b[i], bounds);
      }
      return out;
    }

    CUTLASS_HOST_DEVICE Fragment operator()(Fragment const& a, Fragment const& b, Fragment const& c,
                                            ClipBounds const& bounds) const {
      Fragment out;
      CUTLASS_PRAGMA_UNROLL
      for (int i = 0; i < Fragment::kElements; ++i) {
        out[i] = activate<kActivation>(a[i] + b[i] + c[i], bounds);
      }
      return out;
    }
  };
};

// The second output from the first, before the first is rounded to its type.
template <class Fragment>
struct AffineRelu {
  CUTLASS_HOST_DEVICE Fragment operator()(Fragment const& y, Fragment const& scale,
                                          Fragment const& shift) const {
    Fragment out;
    CUTLASS_PRAGMA_UNROLL
    for (int i = 0; i < Fragment::kElements; ++i) out[i] = affine_relu(y[i], scale[i], shift[i]);
    return out;
  }
};

// Builds the collective epilogue of one kernel. Schedule is TmaWarpSpecialized (pingpong) or
// TmaWarpSpecializedCooperative; output is a row-major (rows, K) matrix.
template <class Spec, class TileShape, class ClusterShape, class Schedule>
struct Sm90Epilogue {
  using Element = typename Spec::Element;
  using Layout = cutlass::layout::RowMajor;
  static constexpr auto kRound = cutlass::FloatRoundStyle::round_to_nearest;
  static constexpr int kAlignment = 128 / cutlass::sizeof_bits<Element>::value;
  using Source = cute::conditional_t<Spec::kResidual, Element, void>;

  template <class Node, class... Children>
  using Tree = cutlass::epilogue::fusion::Sm90EVT<Node, Children...>;
  using Row = cutlass::epilogue::fusion::Sm90RowBroadcast<0, TileShape, Element, float>;
  using SumNode =
      cutlass::epilogue::fusion::Sm90Compute<SumThenActivate<Spec::kActivation>::template Fn, float,
                                             float, kRound>;
  using Accumulator = cutlass::epilogue::fusion::Sm90AccFetch;
  using Residual = cutlass::epilogue::fusion::Sm90SrcFetch<Element>;
  using Sum = cute::conditional_t<Spec::kResidual, Tree<SumNode, Accumulator, Residual, Row>,
                                  Tree<SumNode, Accumulator, Row>>;

  using Descriptor = cutlass::epilogue::collective::detail::EpilogueDescriptor<
      TileShape, cutlass::epilogue::collective::EpilogueTileAuto, Source, Element, Schedule>;
  using Side =
      cutlass::epilogue::collective::detail::AuxStoreDescriptor<Descriptor, Layout, Element>;
  using Store = cutlass::epilogue::fusion::Sm90AuxStore<
      Side::Stages, typename Descriptor::EpilogueTile, Element, kRound, typename Side::Stride,
      typename Side::SmemLayoutAtom, typename Side::CopyOpR2S>;
  using AffineNode = cutlass::epilogue::fusion::Sm90Compute<AffineRelu, float, float, kRound>;
  using Affine = Tree<AffineNode, Tree<Store, Sum>, Row, Row>;

  using Fusion = cute::conditional_t<Spec::kAffineRelu, Affine, Sum>;
  using Collective = typename cutlass::epilogue::collective::CollectiveBuilder<
      cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp, TileShape, ClusterShape,
      cutlass::epilogue::collective::EpilogueTileAuto, float, float, Source, Layout, kAlignment,
      Element, Layout, kAlignment, Schedule, Fusion>::CollectiveOp;

  static typename Sum::Arguments sum_arguments(ConvoyShape const& s, ConvoyOperands const& o) {
    typename Row::Arguments bias;
    bias.ptr_row = static_cast<Element const*>(o.bias);
    ClipBounds bounds{s.clip_min, s.clip_max};
    if constexpr (Spec::kResidual) {
      return {{}, {}, bias, bounds};
    } else {
      return {{}, bias, bounds};
    }
  }

  // Arguments for `rows` rows of K columns; strides are those of packed matrices.
  static typename Collective::Arguments arguments(ConvoyShape const& s, ConvoyOperands const& o) {
    using Stride = typename Side::Stride;  // (row, 1, batch)
    typename Collective::Arguments a{};
    int64_t rows = output_rows(s);
    Stride packed = cute::make_stride(int64_t(s.k), cute::_1{}, rows * s.k);
    a.dD = packed;
    if constexpr (Spec::kResidual) {
      a.ptr_C = static_cast<Element const*>(o.residual);
      a.dC = packed;
    }
    if constexpr (Spec::kAffineRelu) {
      typename Row::Arguments scale, shift;
      scale.ptr_row = static_cast<Element const*>(o.scale);
      shift.ptr_row = static_cast<Element const*>(o.shift);
      typename Store::Arguments store;
      store.ptr_aux = static_cast<Element*>(o.d);
      store.dAux = packed;
      a.ptr_D = static_cast<Element*>(o.d2);
      a.thread = {{sum_arguments(s, o), store}, scale, shift, {}};
    } else {
      a.ptr_D = static_cast<Element*>(o.d);
      a.thread = sum_arguments(s, o);
    }
    return a;
  }
};

}  // namespace convoy
