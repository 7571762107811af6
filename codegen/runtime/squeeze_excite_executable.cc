// A squeeze-and-excitation block by a kernel library that follows convoy/squeeze_excite_abi.h.
#include "problem_executable.h"

namespace convoy {
namespace {

struct SqueezeExciteKind {
  using Problem = ConvoySqueezeExcite;
  using Operands = ConvoySqueezeExciteOperands;
  static constexpr auto kFunctions = &KernelLibrary::squeeze_excite;
  static constexpr const char* kMissing = "computes no squeeze-and-excitation blocks";

  static Problem MakeProblem(const FunctionSpec& function, int sm_count) {
    const SqueezeExcite& block = function.workload.squeeze_excite;
    Problem problem{};
    problem.image = MakeShape(function, sm_count);
    problem.squeezed = static_cast<int32_t>(block.channels);
    problem.squeeze_clip_min = ClipMin(block.squeeze_epilogue);
    problem.squeeze_clip_max = block.squeeze_epilogue.clip_max;
    problem.gate_clip_min = ClipMin(block.gate_epilogue);
    problem.gate_clip_max = block.gate_epilogue.clip_max;
    return problem;
  }

  static void SetOperand(Role role, void* pointer, Operands* operands) {
    switch (role) {
      case Role::kX: operands->x = pointer; break;
      case Role::kSqueeze: operands->squeeze = pointer; break;
      case Role::kExcite: operands->excite = pointer; break;
      case Role::kResidual: operands->residual = pointer; break;
      case Role::kSqueezeBias: operands->squeeze_bias = pointer; break;
      case Role::kExciteBias: operands->excite_bias = pointer; break;
      default: operands->y = pointer;
    }
  }
};

}  // namespace

std::unique_ptr<Executable> BuildSqueezeExcite(const KernelLibrary& library,
                                               const FunctionSpec& function, int sm_count) {
  return std::make_unique<ProblemExecutable<SqueezeExciteKind>>(library, function, sm_count);
}

}  // namespace convoy
