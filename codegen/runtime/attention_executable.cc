// Attention by a kernel library that follows convoy/attention_abi.h.
#include <tvm/ffi/error.h>

#include "kernel_library.h"

namespace convoy {
namespace {

ConvoyAttentionView MakeView(const RowView& view) {
  ConvoyAttentionView result{};
  result.offset = view.offset;
  std::copy(view.strides.begin(), view.strides.end(), result.strides);
  return result;
}

ConvoyAttention MakeProblem(const Workload& load) {
  const Attention& attention = load.attention;
  auto narrow = [](int64_t value) { return static_cast<int32_t>(value); };
  ConvoyAttention problem{};
  problem.outer = narrow(attention.outer);
  problem.batch = narrow(load.n / attention.outer);
  problem.heads = narrow(load.groups);
  problem.queries = narrow(load.h);
  problem.keys = narrow(load.w);
  problem.dim = narrow(load.c / load.groups);
  problem.value_dim = narrow(load.k / load.groups);
  problem.bias = attention.bias.shape.empty()              ? CONVOY_NO_BIAS
                 : attention.bias_dtype == Dtype::kFloat32 ? CONVOY_FLOAT32_BIAS
                                                           : CONVOY_BIAS;
  problem.causal = attention.causal;
  problem.zeros = attention.zeros;
  problem.scale = attention.scale;
  problem.q_view = MakeView(attention.q);
  problem.k_view = MakeView(attention.k);
  problem.v_view = MakeView(attention.v);
  problem.o_view = MakeView(attention.o);
  problem.bias_view = MakeView(attention.bias);
  return problem;
}

class AttentionExecutable : public Executable {
 public:
  AttentionExecutable(const KernelLibrary& library, const FunctionSpec& function)
      : library_(library),
        problem_(MakeProblem(function.workload)),
        has_bias_(problem_.bias != CONVOY_NO_BIAS),
        programmatic_(Get<bool>(function.entry, "programmatic", true)),
        symbol_(function.symbol) {
    if (library.attention.check == nullptr) {
      TVM_FFI_THROW(CorruptArtefact)
          << "function '" << symbol_ << "' names a kernel that does not compute attention";
    }
    RequireSupported(library, library.attention.check(&problem_), symbol_);
    state_bytes_ = library.state_bytes();
  }

  int64_t workspace_bytes() const override { return 0; }

  std::unique_ptr<Prepared> Prepare(const Pointers& pointers, void*) override {
    auto call =
        std::make_unique<KernelCall>(library_, static_cast<size_t>(state_bytes_), programmatic_);
    ConvoyAttentionOperands operands{};
    operands.q = pointers[0];
    operands.k = pointers[1];
    operands.v = pointers[2];
    operands.bias = has_bias_ ? pointers[3] : nullptr;
    operands.o = pointers[has_bias_ ? 4 : 3];
    RequirePrepared(library_, library_.attention.prepare(&problem_, &operands, call->state()),
                    symbol_);
    return call;
  }

 private:
  const KernelLibrary& library_;
  const ConvoyAttention problem_;
  const bool has_bias_, programmatic_;
  const std::string symbol_;
  int64_t state_bytes_ = 0;
};

}  // namespace

std::unique_ptr<Executable> BuildAttention(const KernelLibrary& library,
                                           const FunctionSpec& function) {
  return std::make_unique<AttentionExecutable>(library, function);
}

}  // namespace convoy
