// A convolution and one or two 1x1 convolutions behind it by a kernel library that follows
// convoy/bottleneck_abi.h.
#include "problem_executable.h"

namespace convoy {
namespace {

struct BottleneckKind {
  using Problem = ConvoyBottleneck;
  using Operands = ConvoyBottleneckOperands;
  static constexpr auto kFunctions = &KernelLibrary::bottleneck;
  static constexpr const char* kMissing = "computes no bottlenecks";

  static Problem MakeProblem(const FunctionSpec& function, int sm_count) {
    const Bottleneck& bottleneck = function.workload.bottleneck;
    Problem problem{};
    problem.conv = MakeShape(function, sm_count);
    problem.expand = static_cast<int32_t>(bottleneck.expand);
    problem.reduce = static_cast<int32_t>(bottleneck.reduce);
    problem.expand_clip_min = ClipMin(bottleneck.expand_epilogue);
    problem.expand_clip_max = bottleneck.expand_epilogue.clip_max;
    problem.reduce_clip_min = ClipMin(bottleneck.reduce_epilogue);
    problem.reduce_clip_max = bottleneck.reduce_epilogue.clip_max;
    return problem;
  }

  static void SetOperand(Role role, void* pointer, Operands* operands) {
    switch (role) {
      case Role::kX: operands->x = pointer; break;
      case Role::kW: operands->filter = pointer; break;
      case Role::kExpand: operands->expand = pointer; break;
      case Role::kReduce: operands->reduce = pointer; break;
      case Role::kResidual: operands->residual = pointer; break;
      case Role::kBias: operands->bias = pointer; break;
      case Role::kExpandBias: operands->expand_bias = pointer; break;
      case Role::kReduceBias: operands->reduce_bias = pointer; break;
      case Role::kZ: operands->z = pointer; break;
      default: operands->y = pointer;
    }
  }
};

}  // namespace

std::unique_ptr<Executable> BuildBottleneck(const KernelLibrary& library,
                                            const FunctionSpec& function, int sm_count) {
  return std::make_unique<ProblemExecutable<BottleneckKind>>(library, function, sm_count);
}

}  // namespace convoy
