// An opened kernel library, and a call of its kernel with fixed pointers.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <string>

#include "convoy/attention_abi.h"
#include "convoy/bottleneck_abi.h"
#include "convoy/expansion_abi.h"
#include "convoy/kernel_abi.h"
#include "convoy/programmatic_abi.h"
#include "convoy/squeeze_excite_abi.h"
#include "convoy/stem_abi.h"
#include "convoy/strided_abi.h"
#include "executable.h"

namespace convoy {

// Functions of a kind of problem, null in a library of another kind.
template <typename Check, typename Prepare>
struct ProblemFunctions {
  Check* check = nullptr;
  Prepare* prepare = nullptr;
};

// Functions of convoy/kernel_abi.h, or of the header of another kind of problem instead of `check`,
// `workspace` and `prepare`. `launch_programmatic` is null where the kernel starts only when its
// predecessor has ended, `prepare_strided` where it takes compact operands only.
struct KernelLibrary {
  decltype(&convoy_kernel_check) check = nullptr;
  decltype(&convoy_kernel_workspace) workspace = nullptr;
  decltype(&convoy_kernel_prepare) prepare = nullptr;
  ProblemFunctions<decltype(convoy_kernel_attention_check),
                   decltype(convoy_kernel_attention_prepare)>
      attention;
  ProblemFunctions<decltype(convoy_kernel_stem_check), decltype(convoy_kernel_stem_prepare)> stem;
  ProblemFunctions<decltype(convoy_kernel_expansion_check),
                   decltype(convoy_kernel_expansion_prepare)>
      expansion;
  ProblemFunctions<decltype(convoy_kernel_bottleneck_check),
                   decltype(convoy_kernel_bottleneck_prepare)>
      bottleneck;
  ProblemFunctions<decltype(convoy_kernel_squeeze_excite_check),
                   decltype(convoy_kernel_squeeze_excite_prepare)>
      squeeze_excite;
  decltype(&convoy_kernel_state_bytes) state_bytes = nullptr;
  decltype(&convoy_kernel_launch) launch = nullptr;
  decltype(&convoy_kernel_launch_programmatic) launch_programmatic = nullptr;
  decltype(&convoy_kernel_prepare_strided) prepare_strided = nullptr;
  decltype(&convoy_kernel_error) error = nullptr;
};

class KernelCall : public Prepared {
 public:
  // `programmatic`: launched before its predecessor has ended, where the library can be.
  // `constant_weights`: nothing on the device writes the filters any more.
  KernelCall(const KernelLibrary& library, size_t state_bytes, bool programmatic = false,
             bool constant_weights = false)
      : library_(library),
        programmatic_(programmatic && library.launch_programmatic != nullptr),
        constant_weights_(constant_weights),
        state_(std::aligned_alloc(64, std::max<size_t>(64, (state_bytes + 63) / 64 * 64))) {}
  ~KernelCall() override { std::free(state_); }

  void Launch(const StreamState& stream) override;

  void* state() { return state_; }

 private:
  const KernelLibrary& library_;
  const bool programmatic_, constant_weights_;
  void* state_;
};

// Throws CorruptArtefact if `code`, the library's check of a function's problem, is an error.
void RequireSupported(const KernelLibrary& library, int32_t code, const std::string& symbol);

// Throws RuntimeError if `code`, the result of preparing a launch of a function, is an error.
void RequirePrepared(const KernelLibrary& library, int32_t code, const std::string& symbol);

// The problem of a convolution or GEMM with the choices of its entry.
ConvoyShape MakeShape(const FunctionSpec& function, int sm_count);

// The first parameter of an activation in the ABIs: `alpha` where it has one, or its lower bound.
float ClipMin(const Epilogue& epilogue);

// Throw CorruptArtefact if the library is of another kind or cannot run the problem.
std::unique_ptr<Executable> BuildAttention(const KernelLibrary& library,
                                           const FunctionSpec& function);
std::unique_ptr<Executable> BuildStem(const KernelLibrary& library, const FunctionSpec& function,
                                      int sm_count);
std::unique_ptr<Executable> BuildExpansion(const KernelLibrary& library,
                                           const FunctionSpec& function, int sm_count);
std::unique_ptr<Executable> BuildBottleneck(const KernelLibrary& library,
                                            const FunctionSpec& function, int sm_count);
std::unique_ptr<Executable> BuildSqueezeExcite(const KernelLibrary& library,
                                               const FunctionSpec& function, int sm_count);

}  // namespace convoy
