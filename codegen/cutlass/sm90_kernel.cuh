// What the sm90 families share: configuration, and the launch of a CUTLASS GemmUniversal kernel
// (cooperative or pingpong, persistent, stream-K or split-K) from a prepared state.
#pragma once

#include "abi.cuh"
#include "cute/tensor.hpp"
#include "cutlass/device_kernel.h"
#include "cutlass/gemm/dispatch_policy.hpp"
#include "cutlass/gemm/kernel/gemm_universal.hpp"
#include "cutlass/gemm/kernel/tile_scheduler.hpp"
#include "sm90_epilogue.cuh"
#include "split_k.cuh"

namespace convoy {

// kCooperative: two consumer warpgroups share a tile. kPingpong: each has its own tile, so that
// the epilogue of one hides behind the main loop of the other.
enum class Schedule { kCooperative, kPingpong };

// kPersistent: whole tiles. kStreamK: CUTLASS's stream-K (cooperative only), reduced inside the
// kernel. kSplitK: equal slices of the reduction into the workspace, then reduce_slices.
enum class Scheduler { kPersistent, kStreamK, kSplitK };

// Element is the type of the operands; float means tf32 arithmetic. Spec is an EpilogueSpec.
// kStages_ = 0 takes as many pipeline stages as fit into shared memory beside the epilogue's, whose
// number and width EpilogueShape_ gives.
template <class Element_, class Spec_, int kTileM_, int kTileN_, int kTileK_, int kClusterM_,
          int kClusterN_, Schedule kSchedule_, Scheduler kScheduler_, int kStages_ = 0,
          class EpilogueShape_ = EpilogueShape<>>
struct Sm90Config {
  using Element = Element_;
  using Spec = Spec_;
  static constexpr int kTileM = kTileM_, kTileN = kTileN_, kTileK = kTileK_;
  static constexpr int kStages = kStages_;
  static constexpr Schedule kSchedule = kSchedule_;
  static constexpr Scheduler kScheduler = kScheduler_;
  static constexpr bool kCooperative = kSchedule == Schedule::kCooperative;
  static constexpr bool kSplitK = kScheduler == Scheduler::kSplitK;
  static constexpr int kAlignment = 128 / cutlass::sizeof_bits<Element>::value;
  static_assert(kTileM % (kCooperative ? 128 : 64) == 0 && kTileN % 8 == 0);
  static_assert(EpilogueShape_::kAuto || kScheduler == Scheduler::kPersistent,
                "only whole tiles have an epilogue of their own shape");
  static_assert(kCooperative || kScheduler != Scheduler::kStreamK,
                "stream-K needs the cooperative schedule");

  using ClusterShape = cute::Shape<cute::Int<kClusterM_>, cute::Int<kClusterN_>, cute::_1>;
  using EpilogueSchedule =
      cute::conditional_t<kCooperative, cutlass::epilogue::TmaWarpSpecializedCooperative,
                          cutlass::epilogue::TmaWarpSpecialized>;
  using SchedulerTag =
      cute::conditional_t<kScheduler == Scheduler::kStreamK, cutlass::gemm::StreamKScheduler,
                          cutlass::gemm::PersistentScheduler>;
  using EpilogueShape = EpilogueShape_;
  // What the main kernel writes: the result, or fp32 partial sums.
  using MainSpec =
      cute::conditional_t<kSplitK, EpilogueSpec<float, Activation::kNone, false, false>, Spec>;
};

// Host side of a CUTLASS GemmUniversal kernel: from arguments to a state, from a state to a launch.
template <class Kernel, class Config>
struct Sm90Launch {
  using Arguments = typename Kernel::Arguments;
  static constexpr bool kStreamK = Config::kScheduler == Scheduler::kStreamK;
  static_assert(Kernel::SharedStorageSize <= 232448, "tile and stages exceed shared memory");

  struct State {
    typename Kernel::Params params;
    Arguments arguments;  // stream-K needs them again to clear its barriers
    void* workspace;
    dim3 grid;
  };

  // The run-time choices of the problem.
  static void set_schedule(ConvoyShape const& s, Arguments* a) {
    a->mode = cutlass::gemm::GemmUniversalMode::kGemm;
    a->hw_info.device_id = 0;  // only used to ask for the SM count, which is given
    a->hw_info.sm_count = s.sm_count > 0 ? s.sm_count : 1;
    a->scheduler.max_swizzle_size = s.swizzle > 0 ? s.swizzle : 1;
    if constexpr (kStreamK) a->scheduler.splits = s.split_k;
  }

  static int32_t check(Arguments const& a) {
    return from_cutlass(Kernel::can_implement(a) ? cutlass::Status::kSuccess
                                                 : cutlass::Status::kErrorNotSupported);
  }

  static int32_t prepare(Arguments const& a, void* workspace, State* state) {
    state->arguments = a;
    state->workspace = workspace;
    state->params = Kernel::to_underlying_arguments(a, workspace);
    state->grid = Kernel::get_grid_shape(state->params);
    return allow_shared(function(), Kernel::SharedStorageSize);
  }

  static int32_t launch(State const& state, cudaStream_t stream) {
    if constexpr (kStreamK) {
      if (state.workspace) {  // the barriers count up and are not reset by the kernel
        auto status = Kernel::initialize_workspace(state.arguments, state.workspace, stream);
        if (status != cutlass::Status::kSuccess) return from_cutlass(status);
      }
    }
    cudaLaunchAttribute cluster;
    cluster.id = cudaLaunchAttributeClusterDimension;
    cluster.val.clusterDim = {cute::size<0>(typename Config::ClusterShape{}),
                              cute::size<1>(typename Config::ClusterShape{}), 1};
    cudaLaunchConfig_t config = {};
    config.gridDim = state.grid;
    config.blockDim = Kernel::get_block_shape();
    config.dynamicSmemBytes = Kernel::SharedStorageSize;
    config.stream = stream;
    config.attrs = &cluster;
    config.numAttrs = 1;
    void* parameters[] = {const_cast<typename Kernel::Params*>(&state.params)};
    return from_cuda(cudaLaunchKernelExC(&config, function(), parameters));
  }

  static int32_t footprint(State const& state, ConvoyFootprint* out) {
    return fill_footprint(function(), blocks(state.grid), int(Kernel::MaxThreadsPerBlock),
                          Kernel::SharedStorageSize, out);
  }

 private:
  static void const* function() {
    return reinterpret_cast<void const*>(cutlass::device_kernel<Kernel>);
  }
};

// Problem gives Config, Epilogue (a Sm90Epilogue), Kernel (a GemmUniversal), and
//   static int32_t check(ConvoyShape const&);
//   static int reduction_tiles(ConvoyShape const&);      main loop steps of one output tile
//   static typename Kernel::Arguments arguments(ConvoyShape const&, ConvoyOperands const&);
template <class Problem>
struct Sm90Kernel {
  using Config = typename Problem::Config;
  using Kernel = typename Problem::Kernel;
  using Arguments = typename Kernel::Arguments;
  using Spec = typename Config::Spec;
  using Launch = Sm90Launch<Kernel, Config>;
  static constexpr int kReduceVector = 4;

  struct State : Launch::State {
    ReduceParams<typename Spec::Element> reduce;
  };

  static int32_t check(ConvoyShape const& s) {
    if (int32_t code = check_sizes(s)) return code;
    if (s.op != CONVOY_FPROP) return kWrongOp;
    if (s.groups != 1) return kUnsupported;
    if (s.c % Config::kAlignment || s.k % Spec::kOutputVector) return kMisaligned;
    if (Config::kScheduler == Scheduler::kPersistent && s.split_k != 1) return kBadSplit;
    if (Config::kSplitK && s.split_k < 2) return kBadSplit;
    if (Launch::kStreamK && s.split_k > Problem::reduction_tiles(s)) return kBadSplit;
    if (output_rows(s) > INT32_MAX || output_rows(s) * s.k * int64_t(s.split_k) >= (1ll << 40)) {
      return kTooLarge;
    }
    if (int32_t code = Problem::check(s)) return code;
    return Launch::check(full_arguments(s, placeholder_operands()));
  }

  static int64_t workspace(ConvoyShape const& s) {
    if (Config::kSplitK) return split_k_workspace(s);
    return int64_t(Kernel::get_workspace_size(full_arguments(s, placeholder_operands())));
  }

  static int32_t prepare(ConvoyShape const& s, ConvoyOperands const& o, State* state) {
    if (int32_t code = check_operands<Spec>(o)) return code;
    ConvoyOperands main = o;
    if constexpr (Config::kSplitK) {
      main = {o.a, o.b, nullptr, nullptr, nullptr, nullptr, o.workspace, nullptr, nullptr};
      state->reduce = make_reduce_params<Spec>(s, o);
    }
    return Launch::prepare(full_arguments(s, main), main.workspace, state);
  }

  static int32_t launch(State const& state, cudaStream_t stream) {
    int32_t code = Launch::launch(state, stream);
    if constexpr (Config::kSplitK) {
      if (code == kOk) code = launch_reduce<Spec, kReduceVector, true>(state.reduce, stream);
    }
    return code;
  }

  static int32_t footprint(State const& state, ConvoyFootprint* out) {
    return Launch::footprint(state, out);
  }

 private:
  // Aligned stand-ins for questions that are asked before there is memory.
  static ConvoyOperands placeholder_operands() {
    void* p = reinterpret_cast<void*>(uintptr_t(256));
    return {p, p, p, p, p, p, p, p, p};
  }

  static Arguments full_arguments(ConvoyShape const& s, ConvoyOperands const& o) {
    Arguments a = Problem::arguments(s, o);
    a.epilogue = Problem::Epilogue::arguments(s, o);
    Launch::set_schedule(s, &a);
    return a;
  }
};

}  // namespace convoy
