#include "cublaslt_gemm.h"

#include <tvm/ffi/error.h>

#include <map>
#include <mutex>

namespace convoy {
namespace {

// What the runtime promises of every operand's address.
constexpr uint32_t kAlignment = 16;

cublaslt::DataType ToCublasLt(Dtype dtype) {
  switch (dtype) {
    case Dtype::kFloat16: return cublaslt::kReal16F;
    case Dtype::kBfloat16: return cublaslt::kReal16BF;
    case Dtype::kFloat32: return cublaslt::kReal32F;
    case Dtype::kInt8:
    case Dtype::kInt32: break;
  }
  TVM_FFI_THROW(InvalidWorkload) << "cuBLASLt for " << Name(dtype) << "; expected floats";
}

int PlaceOf(const Workload& load, Role role) {
  for (size_t i = 0; i < load.operands.size(); ++i) {
    if (load.operands[i].role == role) return static_cast<int>(i);
  }
  return -1;
}

// Whether the result is one matrix product, or one for each group of a matmul: the pixels of x and
// y are the same rows.
bool IsGemm(const Workload& load) {
  return load.op != Op::kAttention && load.op != Op::kStem && !load.is_back_to_back() &&
         !load.depth.is_3d && (load.groups == 1 || load.is_batched()) && load.r == 1 &&
         load.s == 1 && load.stride[0] == 1 && load.stride[1] == 1 &&
         load.padding == std::array<int64_t, 4>{0, 0, 0, 0};
}

// cuBLASLt's epilogue; 0 where it has none that is the same.
uint32_t EpilogueOf(const Epilogue& epilogue) {
  uint32_t bits = epilogue.bias ? uint32_t{cublaslt::kBias} : 0;
  if (epilogue.residual_last || epilogue.affine_relu) return 0;
  switch (epilogue.activation) {
    case Activation::kNone: return bits ? bits : cublaslt::kDefault;
    case Activation::kRelu: return bits | cublaslt::kRelu;
    case Activation::kGeluTanh: return bits | cublaslt::kGelu;
    default: return 0;
  }
}

// Matrices behind each other, `batch` of them; `leading` elements from one column to the next.
LtDescriptor Layout(cublaslt::DataType type, int64_t rows, int64_t columns, int64_t leading,
                    int64_t batch = 1) {
  const CublasLtApi& api = CublasLt();
  void* raw = nullptr;
  CheckCublasLt(api.cublasLtMatrixLayoutCreate(&raw, type, rows, columns, leading), "a layout");
  LtDescriptor layout(raw, api.cublasLtMatrixLayoutDestroy);
  auto set = [&](cublaslt::LayoutAttribute attribute, auto value) {
    CheckCublasLt(api.cublasLtMatrixLayoutSetAttribute(raw, attribute, &value, sizeof(value)),
                  "a layout of a batch");
  };
  if (batch > 1) {
    set(cublaslt::kLayoutBatchCount, static_cast<int32_t>(batch));
    set(cublaslt::kLayoutStridedBatchOffset, int64_t{rows * columns});
  }
  return layout;
}

template <typename T>
void Set(const LtDescriptor& operation, cublaslt::MatmulDescAttribute attribute, const T& value) {
  CheckCublasLt(
      CublasLt().cublasLtMatmulDescSetAttribute(operation.get(), attribute, &value, sizeof(T)),
      "an attribute");
}

LtDescriptor Preference(size_t max_workspace) {
  const CublasLtApi& api = CublasLt();
  void* raw = nullptr;
  CheckCublasLt(api.cublasLtMatmulPreferenceCreate(&raw), "a preference");
  LtDescriptor preference(raw, api.cublasLtMatmulPreferenceDestroy);
  auto set = [&](cublaslt::PreferenceAttribute attribute, auto value) {
    CheckCublasLt(api.cublasLtMatmulPreferenceSetAttribute(raw, attribute, &value, sizeof(value)),
                  "a preference");
  };
  set(cublaslt::kPreferenceMaxWorkspace, static_cast<uint64_t>(max_workspace));
  set(cublaslt::kPreferenceReductionSchemeMask, cublaslt::kReductionComputeType);
  for (auto matrix : {cublaslt::kPreferenceMinAlignmentA, cublaslt::kPreferenceMinAlignmentB,
                      cublaslt::kPreferenceMinAlignmentC, cublaslt::kPreferenceMinAlignmentD}) {
    set(matrix, kAlignment);
  }
  return preference;
}

}  // namespace

cublaslt::Handle CublasLtHandle(int device) {
  static auto* mutex = new std::mutex;
  static auto* handles = new std::map<int, cublaslt::Handle>;
  std::lock_guard<std::mutex> lock(*mutex);
  cublaslt::Handle& handle = (*handles)[device];
  if (handle == nullptr) {
    DeviceGuard guard(device);
    CheckCublasLt(CublasLt().cublasLtCreate(&handle), "a handle");
  }
  return handle;
}

void CheckCublasLt(cublaslt::Status status, const char* what) {
  if (status == cublaslt::kSuccess) return;
  TVM_FFI_THROW(RuntimeError) << "cuBLASLt refuses " << what << ": "
                              << CublasLt().cublasLtGetStatusString(status);
}

void CheckGemm(const Workload& load) {
  if (!IsGemm(load) || EpilogueOf(load.epilogue) == 0 || load.acc_dtype != Dtype::kFloat32) {
    TVM_FFI_THROW(InvalidOption) << "a workload for cuBLASLt that is no GEMM with bias, relu, GELU "
                                    "in its tanh form or a residual";
  }
}

LtGemm::LtGemm(const Workload& load) : epilogue_(EpilogueOf(load.epilogue)) {
  CheckGemm(load);
  compute_ = load.dtype == Dtype::kFloat32 && load.tf32 ? cublaslt::kCompute32FFastTF32
                                                        : cublaslt::kCompute32F;
  cublaslt::DataType in = ToCublasLt(load.dtype), out = ToCublasLt(load.out_dtype);
  int64_t pixels = load.n * load.h * load.w, batch = load.groups;
  transpose_a_ = transpose_b_ = cublaslt::kNoTranspose;
  int x = PlaceOf(load, Role::kX), w = PlaceOf(load, Role::kW), y = PlaceOf(load, Role::kY);
  int64_t x_stride = load.operands[x].row_stride, y_stride = load.operands[y].row_stride;
  switch (load.op) {
    case Op::kDgrad:
      a = w, b = y, d = x;
      a_layout = Layout(in, load.c, load.k, load.c);
      b_layout = Layout(in, load.k, pixels, y_stride);
      d_layout = Layout(out, load.c, pixels, x_stride);
      return;
    case Op::kWgrad:
      a = x, b = y, d = w;
      transpose_b_ = cublaslt::kTranspose;
      a_layout = Layout(in, load.c, pixels, x_stride);
      b_layout = Layout(in, load.k, pixels, y_stride);
      d_layout = Layout(out, load.c, load.k, load.c);
      return;
    default:
      a = w, b = x, d = y;
      c = PlaceOf(load, Role::kResidual), bias = PlaceOf(load, Role::kBias);
      transpose_a_ = cublaslt::kTranspose;
      a_layout = Layout(in, load.c / batch, load.k / batch, load.c / batch, batch);
      b_layout = Layout(in, load.c / batch, pixels, x_stride, batch);
      d_layout = Layout(out, load.k / batch, pixels, y_stride, batch);
      if (c >= 0) c_layout = Layout(out, load.k, pixels, load.operands[c].row_stride);
  }
}

LtDescriptor LtGemm::Operation(const void* bias_data) const {
  const CublasLtApi& api = CublasLt();
  void* raw = nullptr;
  CheckCublasLt(api.cublasLtMatmulDescCreate(&raw, compute_, cublaslt::kReal32F), "an operation");
  LtDescriptor operation(raw, api.cublasLtMatmulDescDestroy);
  Set(operation, cublaslt::kDescTransA, transpose_a_);
  Set(operation, cublaslt::kDescTransB, transpose_b_);
  Set(operation, cublaslt::kDescEpilogue, epilogue_);
  if (bias >= 0) Set(operation, cublaslt::kDescBiasPointer, bias_data);
  return operation;
}

std::vector<LtAlgo> LtGemm::Heuristic(cublaslt::Handle handle, int count,
                                      size_t max_workspace) const {
  // The bias is not read, but its alignment counts.
  LtDescriptor operation = Operation(reinterpret_cast<const void*>(uintptr_t{kAlignment}));
  LtDescriptor preference = Preference(max_workspace);
  std::vector<cublaslt::HeuristicResult> results(count);
  int found = 0;
  cublaslt::Status status = CublasLt().cublasLtMatmulAlgoGetHeuristic(
      handle, operation.get(), a_layout.get(), b_layout.get(), CLayout(), d_layout.get(),
      preference.get(), count, results.data(), &found);
  std::vector<LtAlgo> algos;
  if (status != cublaslt::kSuccess) return algos;
  for (int i = 0; i < found; ++i) {
    if (results[i].state != cublaslt::kSuccess) continue;
    algos.push_back({results[i].algo, results[i].workspace});
  }
  return algos;
}

bool LtGemm::Check(cublaslt::Handle handle, LtAlgo* algo) const {
  LtDescriptor operation = Operation(reinterpret_cast<const void*>(uintptr_t{kAlignment}));
  cublaslt::HeuristicResult result{};
  cublaslt::Status status =
      CublasLt().cublasLtMatmulAlgoCheck(handle, operation.get(), a_layout.get(), b_layout.get(),
                                         CLayout(), d_layout.get(), &algo->algo, &result);
  algo->workspace = result.workspace;
  return status == cublaslt::kSuccess;
}

std::string Name(const cublaslt::Algo& algo) {
  struct Field {
    const char* name;
    cublaslt::AlgoConfig attribute;
    size_t bytes;
    int64_t usual;
  };
  constexpr Field kFields[] = {{"tile", cublaslt::kAlgoTile, 4, 0},
                               {"stages", cublaslt::kAlgoStages, 4, 0},
                               {"split", cublaslt::kAlgoSplitK, 4, 1},
                               {"reduction", cublaslt::kAlgoReductionScheme, 4, 0},
                               {"swizzle", cublaslt::kAlgoSwizzle, 4, 0},
                               {"option", cublaslt::kAlgoCustomOption, 4, 0},
                               {"inner", cublaslt::kAlgoInnerShape, 2, 0},
                               {"cluster", cublaslt::kAlgoClusterShape, 2, 0}};
  auto value = [&](cublaslt::AlgoConfig attribute, size_t bytes, int64_t* number) {
    uint64_t raw = 0;  // little endian, as artifact.cc asserts
    size_t written = 0;
    cublaslt::Status status =
        CublasLt().cublasLtMatmulAlgoConfigGetAttribute(&algo, attribute, &raw, bytes, &written);
    *number = static_cast<int64_t>(raw);
    return status == cublaslt::kSuccess;
  };
  int64_t number = 0;
  value(cublaslt::kAlgoId, 4, &number);
  std::string name = "algo" + std::to_string(number);
  for (const Field& field : kFields) {
    if (value(field.attribute, field.bytes, &number) && number != field.usual) {
      name += std::string("_") + field.name + std::to_string(number);
    }
  }
  return name;
}

}  // namespace convoy
