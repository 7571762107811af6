// Fused epilogues of the sm90 kernels as CUTLASS epilogue visitor trees.
//
//   Sum     = activation(accumulator [+ residual] + bias)            one compute node
//   plain   : D = Sum
//   affine  : y = store(Sum) on the side, D = y2 = relu(scale * y + shift)
// The residual is the epilogue's source tensor C, loaded by TMA ahead of use. A tile passes through
// the epilogue in subtiles of 128 rows (cooperative) or 64 (pingpong), each through its own stage.
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

// How deep the epilogue is pipelined: subtiles of the residual in shared memory (being loaded, in
// use, or overwritten by a result that is being stored), subtiles of which stores are under way, and
// columns of a subtile. Zeros leave the choice to CUTLASS: up to 4, up to 2, 32 columns.
template <int kLoadStages_ = 0, int kStoreStages_ = 0, int kColumns_ = 0>
struct EpilogueShape {
  static constexpr int kLoadStages = kLoadStages_, kStoreStages = kStoreStages_;
  static constexpr int kColumns = kColumns_;
  static constexpr bool kAuto = kStoreStages == 0;
};

// A row vector that stays in shared memory while a persistent block remains in the same column of
// tiles: loading it costs every tile a round trip to memory between main loop and epilogue. Only
// for the cooperative schedule, since the warpgroups of pingpong share the copy and not the tile.
template <class Base>
struct KeptRow : Base {
  using Base::Base;
  int column = -1;

  template <class Callbacks>
  struct SkipBegin : Callbacks {
    bool needed;

    CUTLASS_DEVICE SkipBegin(Callbacks const& callbacks, bool needed)
        : Callbacks(callbacks), needed(needed) {}

    CUTLASS_DEVICE void begin() {
      if (needed) Callbacks::begin();
    }
  };

  template <bool kReferenceSource, class Args>
  CUTLASS_DEVICE auto get_consumer_store_callbacks(Args const& args) {
    auto callbacks = Base::template get_consumer_store_callbacks<kReferenceSource>(args);
    int wanted = int(cute::get<1>(args.tile_coord_mnkl));
    bool needed = wanted != column;
    column = wanted;
    return SkipBegin<decltype(callbacks)>(callbacks, needed);
  }
};

// Subtile and stages of an epilogue, in the form of CUTLASS's EpilogueDescriptor.
template <class TileShape, class Source, class Element, class Schedule, class Shape>
struct EpiloguePipeline {
  static constexpr bool kCooperative =
      cute::is_same_v<Schedule, cutlass::epilogue::TmaWarpSpecializedCooperative>;
  using Subtile = cute::conditional_t<
      Shape::kColumns == 0, cutlass::epilogue::collective::EpilogueTileAuto,
      cute::Shape<cute::Int<kCooperative ? 128 : 64>, cute::Int<Shape::kColumns>>>;
  using Auto = cutlass::epilogue::collective::detail::EpilogueDescriptor<TileShape, Subtile, Source,
                                                                         Element, Schedule>;
  using EpilogueTile = typename Auto::EpilogueTile;

  // Results overwrite the residual in place. Without a residual nothing limits the issue of stores
  // but the store itself, so it is delayed to overlap with the next subtile's arithmetic.
  static constexpr bool kReuse = !cute::is_void_v<Source>;
  static_assert(Shape::kAuto || !kReuse || Shape::kLoadStages > Shape::kStoreStages,
                "stages of the residual are given back only when stores have finished");
  using DispatchPolicy = cute::conditional_t<
      Shape::kAuto, typename Auto::DispatchPolicy,
      cutlass::epilogue::Sm90TmaWarpSpecialized<
          Shape::kLoadStages, Shape::kStoreStages,
          int(cute::size(EpilogueTile{})) / (kCooperative ? 256 : 128), kReuse, !kReuse>>;
  static constexpr int StagesC = DispatchPolicy::StagesC, StagesD = DispatchPolicy::StagesD;
};

// Builds the collective epilogue of one kernel. Schedule is TmaWarpSpecialized (pingpong) or
// TmaWarpSpecializedCooperative, Shape an EpilogueShape; output is a row-major (rows, K) matrix.
template <class Spec, class TileShape, class Schedule, class Shape = EpilogueShape<>>
struct Sm90Epilogue {
  using Element = typename Spec::Element;
  using Layout = cutlass::layout::RowMajor;
  static constexpr auto kRound = cutlass::FloatRoundStyle::round_to_nearest;
  static constexpr int kAlignment = 128 / cutlass::sizeof_bits<Element>::value;
  using Source = cute::conditional_t<Spec::kResidual, Element, void>;

  template <class Node, class... Children>
  using Tree = cutlass::epilogue::fusion::Sm90EVT<Node, Children...>;
  using Pipeline = EpiloguePipeline<TileShape, Source, Element, Schedule, Shape>;
  using LoadedRow = cutlass::epilogue::fusion::Sm90RowBroadcast<0, TileShape, Element, float>;
  using Row =
      cute::conditional_t<Pipeline::kCooperative && !Shape::kAuto, KeptRow<LoadedRow>, LoadedRow>;
  using SumNode =
      cutlass::epilogue::fusion::Sm90Compute<SumThenActivate<Spec::kActivation>::template Fn, float,
                                             float, kRound>;
  using Accumulator = cutlass::epilogue::fusion::Sm90AccFetch;
  using Residual = cutlass::epilogue::fusion::Sm90SrcFetch<Element>;
  using Sum = cute::conditional_t<Spec::kResidual, Tree<SumNode, Accumulator, Residual, Row>,
                                  Tree<SumNode, Accumulator, Row>>;

  using Side = cutlass::epilogue::collective::detail::AuxStoreDescriptor<Pipeline, Layout, Element>;
  using Store = cutlass::epilogue::fusion::Sm90AuxStore<
      Side::Stages, typename Pipeline::EpilogueTile, Element, kRound, typename Side::Stride,
      typename Side::SmemLayoutAtom, typename Side::CopyOpR2S>;
  using AffineNode = cutlass::epilogue::fusion::Sm90Compute<AffineRelu, float, float, kRound>;
  using Affine = Tree<AffineNode, Tree<Store, Sum>, Row, Row>;

  using Fusion = cute::conditional_t<Spec::kAffineRelu, Affine, Sum>;
  using Collective = typename cutlass::epilogue::collective::detail::Sm90TmaBuilderImpl<
      TileShape, typename Pipeline::EpilogueTile, float, float, Source, Layout, kAlignment, Element,
      Layout, kAlignment, Fusion, typename Pipeline::DispatchPolicy>::CollectiveOp;

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
