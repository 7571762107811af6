// The first convolution of a network by a kernel library that follows convoy/stem_abi.h.
#include "problem_executable.h"

namespace convoy {
namespace {

struct StemKind {
  using Problem = ConvoyStem;
  using Operands = ConvoyOperands;
  static constexpr auto kFunctions = &KernelLibrary::stem;
  static constexpr const char* kMissing = "reads no images";

  static Problem MakeProblem(const FunctionSpec& function, int sm_count) {
    const Stem& stem = function.workload.stem;
    auto narrow = [](int64_t value) { return static_cast<int32_t>(value); };
    Problem problem{};
    problem.conv = MakeShape(function, sm_count);
    problem.channels = narrow(stem.channels);
    problem.channels_last = stem.channels_last;
    problem.is_float32 = stem.dtype == Dtype::kFloat32;
    problem.pool_h = narrow(stem.window[0]);
    problem.pool_w = narrow(stem.window[1]);
    problem.pool_stride_h = narrow(stem.stride[0]);
    problem.pool_stride_w = narrow(stem.stride[1]);
    problem.pool_top = narrow(stem.padding[0]);
    problem.pool_left = narrow(stem.padding[1]);
    problem.p = narrow(stem.p);
    problem.q = narrow(stem.q);
    return problem;
  }

  static void SetOperand(Role role, void* pointer, Operands* operands) {
    switch (role) {
      case Role::kX: operands->a = pointer; break;
      case Role::kW: operands->b = pointer; break;
      case Role::kBias: operands->bias = pointer; break;
      default: operands->d = pointer;
    }
  }
};

}  // namespace

std::unique_ptr<Executable> BuildStem(const KernelLibrary& library, const FunctionSpec& function,
                                      int sm_count) {
  return std::make_unique<ProblemExecutable<StemKind>>(library, function, sm_count);
}

}  // namespace convoy
