// A squeeze-and-excitation block by a kernel library that follows convoy/squeeze_excite_abi.h.
#include <tvm/ffi/error.h>

#include "kernel_library.h"

namespace convoy {
namespace {

ConvoySqueezeExcite MakeProblem(const FunctionSpec& function, int sm_count) {
  const SqueezeExcite& block = function.workload.squeeze_excite;
  const Epilogue& squeeze = block.squeeze_epilogue;
  const Epilogue& gate = block.gate_epilogue;
  ConvoySqueezeExcite problem{};
  problem.image = MakeShape(function, sm_count);
  problem.squeezed = static_cast<int32_t>(block.channels);
  problem.squeeze_clip_min = squeeze.alpha != 0 ? squeeze.alpha : squeeze.clip_min;
  problem.squeeze_clip_max = squeeze.clip_max;
  problem.gate_clip_min = gate.alpha != 0 ? gate.alpha : gate.clip_min;
  problem.gate_clip_max = gate.clip_max;
  return problem;
}

ConvoySqueezeExciteOperands MakeOperands(const std::vector<Role>& roles, const Pointers& pointers) {
  ConvoySqueezeExciteOperands operands{};
  for (size_t i = 0; i < roles.size(); ++i) {
    void* pointer = pointers[i];
    switch (roles[i]) {
      case Role::kX: operands.x = pointer; break;
      case Role::kSqueeze: operands.squeeze = pointer; break;
      case Role::kExcite: operands.excite = pointer; break;
      case Role::kResidual: operands.residual = pointer; break;
      case Role::kSqueezeBias: operands.squeeze_bias = pointer; break;
      case Role::kExciteBias: operands.excite_bias = pointer; break;
      default: operands.y = pointer;
    }
  }
  return operands;
}

class SqueezeExciteExecutable : public Executable {
 public:
  SqueezeExciteExecutable(const KernelLibrary& library, const FunctionSpec& function, int sm_count)
      : library_(library),
        problem_(MakeProblem(function, sm_count)),
        programmatic_(Get<bool>(function.entry, "programmatic", true)),
        constant_weights_(Get<bool>(function.entry, "constant_weights", false)),
        symbol_(function.symbol) {
    if (library.squeeze_excite_check == nullptr) {
      TVM_FFI_THROW(CorruptArtefact)
          << "function '" << symbol_
          << "' names a kernel that computes no squeeze-and-excitation blocks";
    }
    for (const Operand& operand : function.workload.operands) roles_.push_back(operand.role);
    RequireSupported(library, library.squeeze_excite_check(&problem_), symbol_);
    state_bytes_ = library.state_bytes();
  }

  int64_t workspace_bytes() const override { return 0; }

  std::unique_ptr<Prepared> Prepare(const Pointers& pointers, void*) override {
    auto call = std::make_unique<KernelCall>(library_, static_cast<size_t>(state_bytes_),
                                             programmatic_, constant_weights_);
    ConvoySqueezeExciteOperands operands = MakeOperands(roles_, pointers);
    int32_t code = library_.squeeze_excite_prepare(&problem_, &operands, call->state());
    RequirePrepared(library_, code, symbol_);
    return call;
  }

 private:
  const KernelLibrary& library_;
  const ConvoySqueezeExcite problem_;
  const bool programmatic_, constant_weights_;
  const std::string symbol_;
  std::vector<Role> roles_;
  int64_t state_bytes_ = 0;
};

}  // namespace

std::unique_ptr<Executable> BuildSqueezeExcite(const KernelLibrary& library,
                                               const FunctionSpec& function, int sm_count) {
  return std::make_unique<SqueezeExciteExecutable>(library, function, sm_count);
}

}  // namespace convoy
