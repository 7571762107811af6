// The sm90 kernels as links of a chain of small kernels (convoy/programmatic_abi.h): barriers,
// tensor maps and, where they are constant, the first stages of weights are ready before the
// predecessor has ended.
#pragma once

#include "convoy/programmatic_abi.h"
#include "sm90_conv.cuh"
#include "sm90_gemm.cuh"

namespace convoy {

CUTLASS_DEVICE void launch_dependents() {
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}

// Returns when the kernels before this one have ended and what they wrote is visible to the grid.
CUTLASS_DEVICE void wait_for_predecessors() { asm volatile("griddepcontrol.wait;" ::: "memory"); }

// A main loop (GEMM or convolution) of one producer warp that waits before its first load of A. All
// else that a kernel touches follows from that load: the residual's loads start behind it, and
// results are stored when it has been multiplied.
template <class Base>
struct WaitingMainloop : Base {
  using TileShape = typename Base::TileShape;
  using Pipeline = typename Base::MainloopPipeline;
  using PipelineState = typename Base::PipelineState;
  static constexpr int kStages = Base::DispatchPolicy::Stages;
  static_assert(cute::size(typename Base::DispatchPolicy::ClusterShape{}) == 1,
                "loads before the wait are not multicast");

  struct Params : Base::Params {
    bool constant_weights = false;
  };

  template <class Shape>
  static Params to_underlying_arguments(Shape const& shape, typename Base::Arguments const& a,
                                        void* workspace) {
    return {Base::to_underlying_arguments(shape, a, workspace)};
  }

  template <class TensorA, class TensorB, class BlockCoord, class TileIterator>
  CUTLASS_DEVICE void load(Params const& params, Pipeline pipeline, PipelineState state,
                           cute::tuple<TensorA, TensorB> const& inputs, BlockCoord const& block,
                           TileIterator tile, int tile_count, int thread_index, uint32_t block_rank,
                           typename Base::TensorStorage& storage) {
    if (!waited) {
      waited = true;
      int early = !params.constant_weights ? 0 : tile_count < kStages ? tile_count : kStages;
      auto a = tiles_of(cute::get<0>(inputs), cute::get<0>(block), block);
      auto b = tiles_of(cute::get<1>(inputs), cute::get<1>(block), block);
      auto to_a = cute::make_tensor(cute::make_smem_ptr(storage.smem_A.data()),
                                    typename Base::SmemLayoutA{});
      auto to_b = cute::make_tensor(cute::make_smem_ptr(storage.smem_B.data()),
                                    typename Base::SmemLayoutB{});
      if (cute::elect_one_sync()) {
        for (PipelineState s = state; s.count() < state.count() + early; ++s) {
          pipeline.producer_acquire(s);  // expects the bytes of A and B
        }
        copy_tiles(params.tma_load_b, b, to_b, pipeline, state, tile, early);
      }
      __syncwarp();
      wait_for_predecessors();
      if (cute::elect_one_sync()) {
        copy_tiles(params.tma_load_a, a, to_a, pipeline, state, tile, early);
      }
      __syncwarp();
      for (; early > 0; --early, --tile_count) {
        ++state;
        ++tile;
      }
    }
    Base::load(params, pipeline, state, inputs, block, tile, tile_count, thread_index, block_rank,
               storage);
  }

 private:
  bool waited = false;

  // (rows, depth, tiles of the reduction) of one tile; GEMMs have a batch mode behind.
  template <class Tensor, class Coord, class BlockCoord>
  CUTLASS_DEVICE static auto tiles_of(Tensor const& t, Coord const& coord,
                                      BlockCoord const& block) {
    if constexpr (Tensor::rank == 5) {
      return t(cute::_, cute::_, coord, cute::_, cute::get<3>(block));
    } else {
      return t(cute::_, cute::_, coord, cute::_);
    }
  }

  template <class Copy, class From, class To, class TileIterator>
  CUTLASS_DEVICE static void copy_tiles(Copy const& copy, From const& from, To const& to,
                                        Pipeline pipeline, PipelineState state, TileIterator tile,
                                        int count) {
    auto slice = copy.get_slice(0);
    auto source = slice.partition_S(from);
    auto target = slice.partition_D(to);
    for (; count > 0; --count) {
      cute::copy(copy.with(*pipeline.producer_get_barrier(state), 0),
                 source(cute::_, cute::_, cute::_, *tile),
                 target(cute::_, cute::_, cute::_, state.index()));
      ++state;
      ++tile;
    }
  }
};

// A kernel that lets its successor start at once.
template <class Base>
struct EarlyKernel : Base {
  CUTLASS_DEVICE void operator()(typename Base::Params const& params, char* shared) {
    launch_dependents();
    Base::operator()(params, shared);
  }
};

template <class Config_>
struct ProgrammaticConvProblem : Sm90ConvProblem<Config_> {
  using Base = Sm90ConvProblem<Config_>;
  using Config = Config_;
  using Collective =
      typename Sm90ConvCollective<Config, typename Base::TileShape, Base::kStages>::Type;
  using Mainloop = Sm90ConvMainloop<WaitingMainloop<Collective>, Config::kSplitK>;
  using Kernel =
      EarlyKernel<cutlass::gemm::kernel::GemmUniversal<typename Base::GemmShape, Mainloop,
                                                       typename Base::Epilogue::Collective,
                                                       typename Config::SchedulerTag>>;

  static typename Kernel::Arguments arguments(ConvoyShape const& s, ConvoyOperands const& o) {
    auto base = Base::arguments(s, o);
    typename Kernel::Arguments a{};
    a.problem_shape = base.problem_shape;
    a.mainloop = {base.mainloop.ptr_A, base.mainloop.ptr_B, base.mainloop.shape,
                  base.mainloop.reduction};
    return a;
  }
};

template <class Config_>
struct ProgrammaticGemmProblem : Sm90GemmProblem<Config_> {
  using Base = Sm90GemmProblem<Config_>;
  using Config = Config_;
  using Kernel = EarlyKernel<cutlass::gemm::kernel::GemmUniversal<
      cute::Shape<int, int, int, int>, WaitingMainloop<typename Base::Mainloop>,
      typename Base::Epilogue::Collective, typename Config::SchedulerTag>>;

  static typename Kernel::Arguments arguments(ConvoyShape const& s, ConvoyOperands const& o) {
    auto base = Base::arguments(s, o);
    typename Kernel::Arguments a{};
    a.problem_shape = base.problem_shape;
    a.mainloop = base.mainloop;
    return a;
  }
};

template <class Problem>
struct Sm90Programmatic : Sm90Kernel<Problem> {
  using Base = Sm90Kernel<Problem>;
  using Kernel = typename Problem::Kernel;
  using Config = typename Problem::Config;
  using typename Base::State;
  static_assert(Config::kScheduler != Scheduler::kStreamK, "stream-K clears its barriers first");

  static int32_t launch_programmatic(State const& state, cudaStream_t stream,
                                     bool constant_weights) {
    typename Kernel::Params params = state.params;
    params.mainloop.constant_weights = constant_weights;
    cudaLaunchAttribute overlap;
    overlap.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    overlap.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = state.grid;
    config.blockDim = Kernel::get_block_shape();
    config.dynamicSmemBytes = Kernel::SharedStorageSize;
    config.stream = stream;
    config.attrs = &overlap;
    config.numAttrs = 1;
    void* arguments[] = {&params};
    auto* function = reinterpret_cast<void const*>(cutlass::device_kernel<Kernel>);
    int32_t code = from_cuda(cudaLaunchKernelExC(&config, function, arguments));
    if constexpr (Config::kSplitK) {
      using Spec = typename Config::Spec;
      if (code == kOk) {
        code = launch_reduce<Spec, Base::kReduceVector, true>(state.reduce, stream);
      }
    }
    return code;
  }
};

template <class Config>
using Sm90ProgrammaticConv = Sm90Programmatic<ProgrammaticConvProblem<Config>>;
template <class Config>
using Sm90ProgrammaticGemm = Sm90Programmatic<ProgrammaticGemmProblem<Config>>;

}  // namespace convoy

#define CONVOY_EXPORT_PROGRAMMATIC_KERNEL(Kernel)                                            \
  CONVOY_EXPORT_KERNEL(Kernel)                                                               \
  CONVOY_API int32_t convoy_kernel_launch_programmatic(const void* buffer, void* stream,     \
                                                       int32_t constant_weights) {           \
    return Kernel::launch_programmatic(*convoy::state_at<Kernel::State>(buffer),             \
                                       static_cast<cudaStream_t>(stream), constant_weights); \
  }
