// A stand-in for libcublasLt.so.13 on the fake GPU's memory: column-major matrix products in float32,
// with the epilogues that the runtime asks for.
//
// FAKE_CUBLASLT_VERSION is the version that it claims. Its heuristic proposes the algorithms 1 to
// FAKE_CUBLASLT_ALGOS, which need as many KiB of workspace; no other algorithm exists.
#include <dlfcn.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>

#include "journal.h"

namespace {

struct Layout {
  uint64_t rows, columns;
  int64_t ld;
  int32_t batch = 1;
  int64_t stride = 0;
};
struct Operation {
  int transpose_a = 0, transpose_b = 0;
  uint32_t epilogue = 1;
  const float* bias = nullptr;
};
struct Preference {
  uint64_t workspace = 0;
};
struct Algo {
  uint64_t data[8];
};
struct Result {
  Algo algo;
  size_t workspace;
  int state;
  float waves;
  int reserved[4];
};
struct Call {
  Operation operation;
  Layout a_layout, b_layout, c_layout, d_layout;
  const float *a, *b, *c;
  float* d;
  float beta;
};

float At(const float* matrix, const Layout& layout, bool transpose, uint64_t row, uint64_t column) {
  return transpose ? matrix[row * layout.ld + column] : matrix[column * layout.ld + row];
}

void RunOne(const Call& call) {
  const Operation& operation = call.operation;
  uint64_t depth = operation.transpose_a ? call.a_layout.rows : call.a_layout.columns;
  for (uint64_t column = 0; column < call.d_layout.columns; ++column) {
    for (uint64_t row = 0; row < call.d_layout.rows; ++row) {
      float y = 0;
      for (uint64_t i = 0; i < depth; ++i) {
        y += At(call.a, call.a_layout, operation.transpose_a, row, i) *
             At(call.b, call.b_layout, operation.transpose_b, i, column);
      }
      if (call.beta != 0) y += call.beta * At(call.c, call.c_layout, false, row, column);
      if (operation.epilogue & 4) y += operation.bias[row];
      if (operation.epilogue & 2) y = std::fmax(y, 0.0f);
      if (operation.epilogue & 32) {
        y = 0.5f * y * (1 + std::tanh(0.7978845608f * (y + 0.044715f * y * y * y)));
      }
      call.d[column * call.d_layout.ld + row] = y;
    }
  }
}

void Run(void* data) {
  Call call;
  std::memcpy(&call, data, sizeof(call));
  for (int32_t i = 0; i < call.d_layout.batch; ++i) {
    RunOne(call);
    call.a += call.a_layout.stride;
    call.b += call.b_layout.stride;
    call.d += call.d_layout.stride;
  }
}

}  // namespace

API const char* fake_cublaslt_log() { return TakeRecords(); }

API size_t cublasLtGetVersion() { return Environment("FAKE_CUBLASLT_VERSION", 131000); }
API const char* cublasLtGetStatusString(int status) { return status ? "FAKE_STATUS" : "SUCCESS"; }
API int cublasLtCreate(void** handle) {
  Record("create");
  return *handle = new int, 0;
}
API int cublasLtMatmulDescCreate(Operation** operation, int, int) {
  return *operation = new Operation, 0;
}
API int cublasLtMatmulDescSetAttribute(Operation* operation, int attribute, const void* value,
                                       size_t bytes) {
  void* field = attribute == 3   ? static_cast<void*>(&operation->transpose_a)
                : attribute == 4 ? static_cast<void*>(&operation->transpose_b)
                : attribute == 7 ? static_cast<void*>(&operation->epilogue)
                                 : static_cast<void*>(&operation->bias);
  std::memcpy(field, value, bytes);
  return 0;
}
API int cublasLtMatmulDescDestroy(Operation* operation) { return delete operation, 0; }
API int cublasLtMatrixLayoutCreate(Layout** layout, int, uint64_t rows, uint64_t columns,
                                   int64_t ld) {
  return *layout = new Layout{rows, columns, ld}, 0;
}
API int cublasLtMatrixLayoutSetAttribute(Layout* layout, int attribute, const void* value,
                                         size_t bytes) {
  void* field = attribute == 5   ? static_cast<void*>(&layout->batch)
                : attribute == 6 ? static_cast<void*>(&layout->stride)
                                 : nullptr;
  if (field == nullptr) return 7;
  std::memcpy(field, value, bytes);
  return 0;
}
API int cublasLtMatrixLayoutDestroy(Layout* layout) { return delete layout, 0; }
API int cublasLtMatmulPreferenceCreate(Preference** preference) {
  return *preference = new Preference, 0;
}
API int cublasLtMatmulPreferenceSetAttribute(Preference* preference, int attribute,
                                             const void* value, size_t bytes) {
  if (attribute == 1) std::memcpy(&preference->workspace, value, bytes);
  return 0;
}
API int cublasLtMatmulPreferenceDestroy(Preference* preference) { return delete preference, 0; }
API int cublasLtMatmulAlgoGetHeuristic(void*, Operation*, Layout*, Layout*, Layout*, Layout*,
                                       Preference* preference, int count, Result* results,
                                       int* found) {
  Record("heuristic");
  *found = 0;
  for (uint64_t i = 1; i <= static_cast<uint64_t>(Environment("FAKE_CUBLASLT_ALGOS", 3)); ++i) {
    if (*found == count || i * 1024 > preference->workspace) break;
    results[(*found)++] = {{{i}}, i * 1024, 0, 1.0f, {}};
  }
  return *found ? 0 : 15;
}
API int cublasLtMatmulAlgoCheck(void*, Operation*, Layout*, Layout*, Layout*, Layout*,
                                const Algo* algo, Result* result) {
  Record("check");
  int number = static_cast<int>(algo->data[0]);
  if (number < 1 || number > Environment("FAKE_CUBLASLT_ALGOS", 3)) return 15;
  *result = {*algo, static_cast<size_t>(number) * 1024, 0, 1.0f, {}};
  return 0;
}
API int cublasLtMatmulAlgoConfigGetAttribute(const Algo* algo, int attribute, void* value,
                                             size_t bytes, size_t*) {
  uint64_t number = attribute == 0 ? 60 + algo->data[0] : attribute == 1 ? 7 : attribute == 2;
  std::memcpy(value, &number, bytes);
  return 0;
}
API int cublasLtMatmul(void*, Operation* operation, const float* alpha, const float* a, Layout* la,
                       const float* b, Layout* lb, const float* beta, const float* c, Layout* lc,
                       float* d, Layout* ld, const Algo* algo, void* workspace, size_t bytes,
                       void* stream) {
  Record("matmul algo=" + std::to_string(algo->data[0]) + " bytes=" + std::to_string(bytes));
  if (workspace == nullptr || bytes != algo->data[0] * 1024) Record("VIOLATION: workspace");
  if (*alpha != 1) Record("VIOLATION: alpha");
  if (la->batch != ld->batch || lb->batch != ld->batch) Record("VIOLATION: batches");
  Call call{*operation, *la, *lb, *lc, *ld, a, b, c, d, *beta};
  using Launch = int (*)(void*, const char*, void (*)(void*), const void*, size_t);
  static auto launch = reinterpret_cast<Launch>(dlsym(RTLD_DEFAULT, "fake_cuda_launch"));
  return launch(stream, "cublaslt", Run, &call, sizeof(call)) ? 13 : 0;
}
