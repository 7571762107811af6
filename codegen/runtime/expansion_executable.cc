// A 1x1 convolution and the depthwise convolution of its result by a kernel library that follows
// convoy/expansion_abi.h.
#include "problem_executable.h"

namespace convoy {
namespace {

struct ExpansionKind {
  using Problem = ConvoyExpansion;
  using Operands = ConvoyExpansionOperands;
  static constexpr auto kFunctions = &KernelLibrary::expansion;
  static constexpr const char* kMissing = "computes one convolution only";

  static Problem MakeProblem(const FunctionSpec& function, int sm_count) {
    const Expansion& expansion = function.workload.expansion;
    Problem problem{};
    problem.conv = MakeShape(function, sm_count);
    problem.channels = static_cast<int32_t>(expansion.channels);
    problem.clip_min = ClipMin(expansion.epilogue);
    problem.clip_max = expansion.epilogue.clip_max;
    return problem;
  }

  static void SetOperand(Role role, void* pointer, Operands* operands) {
    switch (role) {
      case Role::kX: operands->x = pointer; break;
      case Role::kW: operands->filter = pointer; break;
      case Role::kExpand: operands->expand = pointer; break;
      case Role::kExpandBias: operands->expand_bias = pointer; break;
      case Role::kBias: operands->bias = pointer; break;
      default: operands->y = pointer;
    }
  }
};

}  // namespace

std::unique_ptr<Executable> BuildExpansion(const KernelLibrary& library,
                                           const FunctionSpec& function, int sm_count) {
  return std::make_unique<ProblemExecutable<ExpansionKind>>(library, function, sm_count);
}

}  // namespace convoy
