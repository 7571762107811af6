// A convolution and one or two 1x1 convolutions behind it by a kernel library that follows
// convoy/bottleneck_abi.h.
#include <tvm/ffi/error.h>

#include "kernel_library.h"

namespace convoy {
namespace {

ConvoyBottleneck MakeProblem(const FunctionSpec& function, int sm_count) {
  const Bottleneck& bottleneck = function.workload.bottleneck;
  const Epilogue& second = bottleneck.expand_epilogue;
  const Epilogue& third = bottleneck.reduce_epilogue;
  ConvoyBottleneck problem{};
  problem.conv = MakeShape(function, sm_count);
  problem.expand = static_cast<int32_t>(bottleneck.expand);
  problem.reduce = static_cast<int32_t>(bottleneck.reduce);
  problem.expand_clip_min = second.alpha != 0 ? second.alpha : second.clip_min;
  problem.expand_clip_max = second.clip_max;
  problem.reduce_clip_min = third.alpha != 0 ? third.alpha : third.clip_min;
  problem.reduce_clip_max = third.clip_max;
  return problem;
}

ConvoyBottleneckOperands MakeOperands(const std::vector<Role>& roles, const Pointers& pointers) {
  ConvoyBottleneckOperands operands{};
  for (size_t i = 0; i < roles.size(); ++i) {
    void* pointer = pointers[i];
    switch (roles[i]) {
      case Role::kX: operands.x = pointer; break;
      case Role::kW: operands.filter = pointer; break;
      case Role::kExpand: operands.expand = pointer; break;
      case Role::kReduce: operands.reduce = pointer; break;
      case Role::kResidual: operands.residual = pointer; break;
      case Role::kBias: operands.bias = pointer; break;
      case Role::kExpandBias: operands.expand_bias = pointer; break;
      case Role::kReduceBias: operands.reduce_bias = pointer; break;
      case Role::kZ: operands.z = pointer; break;
      default: operands.y = pointer;
    }
  }
  return operands;
}

class BottleneckExecutable : public Executable {
 public:
  BottleneckExecutable(const KernelLibrary& library, const FunctionSpec& function, int sm_count)
      : library_(library),
        problem_(MakeProblem(function, sm_count)),
        programmatic_(Get<bool>(function.entry, "programmatic", true)),
        constant_weights_(Get<bool>(function.entry, "constant_weights", false)),
        symbol_(function.symbol) {
    if (library.bottleneck_check == nullptr) {
      TVM_FFI_THROW(CorruptArtefact)
          << "function '" << symbol_ << "' names a kernel that computes no bottlenecks";
    }
    for (const Operand& operand : function.workload.operands) roles_.push_back(operand.role);
    RequireSupported(library, library.bottleneck_check(&problem_), symbol_);
    state_bytes_ = library.state_bytes();
  }

  int64_t workspace_bytes() const override { return 0; }

  std::unique_ptr<Prepared> Prepare(const Pointers& pointers, void*) override {
    auto call = std::make_unique<KernelCall>(library_, static_cast<size_t>(state_bytes_),
                                             programmatic_, constant_weights_);
    ConvoyBottleneckOperands operands = MakeOperands(roles_, pointers);
    int32_t code = library_.bottleneck_prepare(&problem_, &operands, call->state());
    RequirePrepared(library_, code, symbol_);
    return call;
  }

 private:
  const KernelLibrary& library_;
  const ConvoyBottleneck problem_;
  const bool programmatic_, constant_weights_;
  const std::string symbol_;
  std::vector<Role> roles_;
  int64_t state_bytes_ = 0;
};

}  // namespace

std::unique_ptr<Executable> BuildBottleneck(const KernelLibrary& library,
                                            const FunctionSpec& function, int sm_count) {
  return std::make_unique<BottleneckExecutable>(library, function, sm_count);
}

}  // namespace convoy
