// A 1x1 convolution and the depthwise convolution of its result by a kernel library that follows
// convoy/expansion_abi.h.
#include <tvm/ffi/error.h>

#include "kernel_library.h"

namespace convoy {
namespace {

ConvoyExpansion MakeProblem(const FunctionSpec& function, int sm_count) {
  const Expansion& expansion = function.workload.expansion;
  const Epilogue& epilogue = expansion.epilogue;
  ConvoyExpansion problem{};
  problem.conv = MakeShape(function, sm_count);
  problem.channels = static_cast<int32_t>(expansion.channels);
  problem.clip_min = epilogue.alpha != 0 ? epilogue.alpha : epilogue.clip_min;
  problem.clip_max = epilogue.clip_max;
  return problem;
}

class ExpansionExecutable : public Executable {
 public:
  ExpansionExecutable(const KernelLibrary& library, const FunctionSpec& function, int sm_count)
      : library_(library),
        problem_(MakeProblem(function, sm_count)),
        has_expand_bias_(function.workload.expansion.epilogue.bias),
        has_bias_(function.workload.epilogue.bias),
        programmatic_(Get<bool>(function.entry, "programmatic", true)),
        constant_weights_(Get<bool>(function.entry, "constant_weights", false)),
        symbol_(function.symbol) {
    if (library.expansion_check == nullptr) {
      TVM_FFI_THROW(CorruptArtefact)
          << "function '" << symbol_ << "' names a kernel that computes one convolution only";
    }
    RequireSupported(library, library.expansion_check(&problem_), symbol_);
    state_bytes_ = library.state_bytes();
  }

  int64_t workspace_bytes() const override { return 0; }

  std::unique_ptr<Prepared> Prepare(const Pointers& pointers, void*) override {
    auto call = std::make_unique<KernelCall>(library_, static_cast<size_t>(state_bytes_),
                                             programmatic_, constant_weights_);
    size_t next = 3;
    ConvoyExpansionOperands operands{};
    operands.x = pointers[0];
    operands.filter = pointers[1];
    operands.expand = pointers[2];
    if (has_expand_bias_) operands.expand_bias = pointers[next++];
    if (has_bias_) operands.bias = pointers[next++];
    operands.y = pointers[next];
    int32_t code = library_.expansion_prepare(&problem_, &operands, call->state());
    RequirePrepared(library_, code, symbol_);
    return call;
  }

 private:
  const KernelLibrary& library_;
  const ConvoyExpansion problem_;
  const bool has_expand_bias_, has_bias_, programmatic_, constant_weights_;
  const std::string symbol_;
  int64_t state_bytes_ = 0;
};

}  // namespace

std::unique_ptr<Executable> BuildExpansion(const KernelLibrary& library,
                                           const FunctionSpec& function, int sm_count) {
  return std::make_unique<ExpansionExecutable>(library, function, sm_count);
}

}  // namespace convoy
