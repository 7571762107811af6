// The first convolution of a network by a kernel library that follows convoy/stem_abi.h.
#include <tvm/ffi/error.h>

#include "kernel_library.h"

namespace convoy {
namespace {

ConvoyStem MakeProblem(const FunctionSpec& function, int sm_count) {
  const Workload& load = function.workload;
  const Stem& stem = load.stem;
  auto narrow = [](int64_t value) { return static_cast<int32_t>(value); };
  ConvoyStem problem{};
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

class StemExecutable : public Executable {
 public:
  StemExecutable(const KernelLibrary& library, const FunctionSpec& function, int sm_count)
      : library_(library),
        problem_(MakeProblem(function, sm_count)),
        has_bias_(function.workload.epilogue.bias),
        programmatic_(Get<bool>(function.entry, "programmatic", true)),
        constant_weights_(Get<bool>(function.entry, "constant_weights", false)),
        symbol_(function.symbol) {
    if (library.stem_check == nullptr) {
      TVM_FFI_THROW(CorruptArtefact)
          << "function '" << symbol_ << "' names a kernel that reads no images";
    }
    RequireSupported(library, library.stem_check(&problem_), symbol_);
    state_bytes_ = library.state_bytes();
  }

  int64_t workspace_bytes() const override { return 0; }

  std::unique_ptr<Prepared> Prepare(const Pointers& pointers, void*) override {
    auto call = std::make_unique<KernelCall>(library_, static_cast<size_t>(state_bytes_),
                                             programmatic_, constant_weights_);
    ConvoyOperands operands{};
    operands.a = pointers[0];
    operands.b = pointers[1];
    operands.bias = has_bias_ ? pointers[2] : nullptr;
    operands.d = pointers[has_bias_ ? 3 : 2];
    RequirePrepared(library_, library_.stem_prepare(&problem_, &operands, call->state()), symbol_);
    return call;
  }

 private:
  const KernelLibrary& library_;
  const ConvoyStem problem_;
  const bool has_bias_, programmatic_, constant_weights_;
  const std::string symbol_;
  int64_t state_bytes_ = 0;
};

}  // namespace

std::unique_ptr<Executable> BuildStem(const KernelLibrary& library, const FunctionSpec& function,
                                      int sm_count) {
  return std::make_unique<StemExecutable>(library, function, sm_count);
}

}  // namespace convoy
