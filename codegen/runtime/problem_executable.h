// A function of a kind of problem that has its own check and prepare in a kernel library.
#pragma once

#include <tvm/ffi/error.h>

#include <memory>
#include <string>
#include <vector>

#include "kernel_library.h"

namespace convoy {

// A `Kind` is a struct with
//   Problem, Operands: the structs of its ABI
//   kFunctions: its member of KernelLibrary
//   kMissing: what a kernel of another kind does not do, in an error: "reads no images"
//   MakeProblem(function, sm_count)
//   SetOperand(role, pointer, operands): stores the pointer of one operand
template <typename Kind>
class ProblemExecutable : public Executable {
 public:
  // Throws CorruptArtefact if the library is of another kind or cannot run the problem.
  ProblemExecutable(const KernelLibrary& library, const FunctionSpec& function, int sm_count)
      : library_(library),
        problem_(Kind::MakeProblem(function, sm_count)),
        programmatic_(Get<bool>(function.entry, "programmatic", true)),
        constant_weights_(Get<bool>(function.entry, "constant_weights", false)),
        symbol_(function.symbol) {
    const auto& functions = library.*Kind::kFunctions;
    if (functions.check == nullptr) {
      TVM_FFI_THROW(CorruptArtefact)
          << "function '" << symbol_ << "' names a kernel that " << Kind::kMissing;
    }
    for (const Operand& operand : function.workload.operands) roles_.push_back(operand.role);
    RequireSupported(library, functions.check(&problem_), symbol_);
    state_bytes_ = library.state_bytes();
  }

  int64_t workspace_bytes() const override { return 0; }

  std::unique_ptr<Prepared> Prepare(const Pointers& pointers, void*) override {
    auto call = std::make_unique<KernelCall>(library_, static_cast<size_t>(state_bytes_),
                                             programmatic_, constant_weights_);
    typename Kind::Operands operands{};
    for (size_t i = 0; i < roles_.size(); ++i) Kind::SetOperand(roles_[i], pointers[i], &operands);
    const auto& functions = library_.*Kind::kFunctions;
    RequirePrepared(library_, functions.prepare(&problem_, &operands, call->state()), symbol_);
    return call;
  }

 private:
  const KernelLibrary& library_;
  const typename Kind::Problem problem_;
  const bool programmatic_, constant_weights_;
  const std::string symbol_;
  std::vector<Role> roles_;  // in call order
  int64_t state_bytes_ = 0;
};

}  // namespace convoy
