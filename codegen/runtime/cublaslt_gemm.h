// A workload as cuBLASLt's matmul, and the algorithms that its heuristic proposes.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "library.h"
#include "workload.h"

namespace convoy {

// The process's handle on a device, created on first use and never destroyed. cuBLASLt allows any
// number of threads to use it at once.
cublaslt::Handle CublasLtHandle(int device);

// Throws RuntimeError naming `what` when `status` is not success.
void CheckCublasLt(cublaslt::Status status, const char* what);

// Owns a descriptor of cuBLASLt.
class LtDescriptor {
 public:
  using Destroy = cublaslt::Status (*)(void*);

  LtDescriptor() = default;
  LtDescriptor(void* raw, Destroy destroy) : raw_(raw), destroy_(destroy) {}
  ~LtDescriptor() {
    if (raw_) destroy_(raw_);
  }
  LtDescriptor(LtDescriptor&& other) noexcept
      : raw_(std::exchange(other.raw_, nullptr)), destroy_(other.destroy_) {}
  LtDescriptor& operator=(LtDescriptor&& other) noexcept {
    std::swap(raw_, other.raw_);
    std::swap(destroy_, other.destroy_);
    return *this;
  }
  void* get() const { return raw_; }

 private:
  void* raw_ = nullptr;
  Destroy destroy_ = nullptr;
};

struct LtAlgo {
  cublaslt::Algo algo{};
  size_t workspace = 0;
};

// Throws InvalidOption where the workload is not a GEMM with an epilogue of cuBLASLt. Needs no
// cuBLASLt.
void CheckGemm(const Workload& load);

// d = activation(op(a) op(b) + c + bias). Matrices are column-major as cuBLASLt has them, so each
// is the transpose of a row-major operand, and d the transpose of the result:
//
//   fprop, matmul  y^T  = w x^T     (k, pixels), with the bias along the rows
//   dgrad          dx^T = w^T dy^T  (c, pixels)
//   wgrad          dw^T = x^T dy    (c, k)
//
// A batched matmul is one such product for each group.
class LtGemm {
 public:
  // Throws as CheckGemm does.
  explicit LtGemm(const Workload& load);

  // The description of the operation with the bias at that address.
  LtDescriptor Operation(const void* bias) const;

  // At most `count` algorithms, best first, that sum in float32 and need at most `max_workspace`
  // bytes. Empty where cuBLASLt has none.
  std::vector<LtAlgo> Heuristic(cublaslt::Handle handle, int count, size_t max_workspace) const;

  // Whether the algorithm runs this operation on the current device; completes its workspace.
  bool Check(cublaslt::Handle handle, LtAlgo* algo) const;

  // Places of the operands in a call; -1 where there is none.
  int a = -1, b = -1, c = -1, d = -1, bias = -1;
  LtDescriptor a_layout, b_layout, c_layout, d_layout;  // c_layout only with c

  void* CLayout() const { return c < 0 ? d_layout.get() : c_layout.get(); }

 private:
  cublaslt::ComputeType compute_;
  cublaslt::Operation transpose_a_, transpose_b_;
  uint32_t epilogue_ = cublaslt::kDefault;
};

// "algo66_tile393_stages35": the numbers of its configuration that are not the default.
std::string Name(const cublaslt::Algo& algo);

}  // namespace convoy
