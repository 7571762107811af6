// The part of cuBLASLt's API that the runtime calls, declared here so that it builds where no
// cuBLASLt is installed. tests/runtime/test_abi.py compares every value and signature with the real
// headers.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda_abi.h"

namespace convoy::cublaslt {

using Status = int;
using Handle = void*;
using MatmulDesc = void*;
using MatrixLayout = void*;
using Preference = void*;

constexpr Status kSuccess = 0;

enum DataType : int { kReal32F = 0, kReal16F = 2, kReal16BF = 14 };
enum ComputeType : int { kCompute32F = 68, kCompute32FFastTF32 = 77 };
enum Operation : int { kNoTranspose = 0, kTranspose = 1 };

enum MatmulDescAttribute : int {
  kDescTransA = 3,
  kDescTransB = 4,
  kDescEpilogue = 7,
  kDescBiasPointer = 8,
};

// Bits: an activation and the bias may be set together. kGelu is the tanh form.
enum Epilogue : uint32_t { kDefault = 1, kRelu = 2, kBias = 4, kGelu = 32 };

enum LayoutAttribute : int { kLayoutBatchCount = 5, kLayoutStridedBatchOffset = 6 };

enum PreferenceAttribute : int {
  kPreferenceMaxWorkspace = 1,
  kPreferenceReductionSchemeMask = 3,
  kPreferenceMinAlignmentA = 5,
  kPreferenceMinAlignmentB = 6,
  kPreferenceMinAlignmentC = 7,
  kPreferenceMinAlignmentD = 8,
};

// How the slices of split-K are added: in the type of the accumulator.
constexpr uint32_t kReductionComputeType = 2;

enum AlgoConfig : int {
  kAlgoId = 0,
  kAlgoTile = 1,
  kAlgoSplitK = 2,
  kAlgoReductionScheme = 3,
  kAlgoSwizzle = 4,
  kAlgoCustomOption = 5,
  kAlgoStages = 6,
  kAlgoInnerShape = 7,
  kAlgoClusterShape = 8,
};

// Opaque; may be kept as bytes for the same version of the library.
struct Algo {
  uint64_t data[8];
};

struct HeuristicResult {
  Algo algo;
  size_t workspace;
  Status state;
  float waves;
  int reserved[4];
};

// X(result, name, argument types).
#define CONVOY_CUBLASLT_FUNCTIONS(X)                                                               \
  X(size_t, cublasLtGetVersion, ())                                                                \
  X(const char*, cublasLtGetStatusString, (::convoy::cublaslt::Status))                            \
  X(::convoy::cublaslt::Status, cublasLtCreate, (::convoy::cublaslt::Handle*))                     \
  X(::convoy::cublaslt::Status, cublasLtMatmulDescCreate,                                          \
    (::convoy::cublaslt::MatmulDesc*, ::convoy::cublaslt::ComputeType,                             \
     ::convoy::cublaslt::DataType))                                                                \
  X(::convoy::cublaslt::Status, cublasLtMatmulDescSetAttribute,                                    \
    (::convoy::cublaslt::MatmulDesc, ::convoy::cublaslt::MatmulDescAttribute, const void*,         \
     size_t))                                                                                      \
  X(::convoy::cublaslt::Status, cublasLtMatmulDescDestroy, (::convoy::cublaslt::MatmulDesc))       \
  X(::convoy::cublaslt::Status, cublasLtMatrixLayoutCreate,                                        \
    (::convoy::cublaslt::MatrixLayout*, ::convoy::cublaslt::DataType, uint64_t, uint64_t,          \
     int64_t))                                                                                     \
  X(::convoy::cublaslt::Status, cublasLtMatrixLayoutSetAttribute,                                  \
    (::convoy::cublaslt::MatrixLayout, ::convoy::cublaslt::LayoutAttribute, const void*, size_t))  \
  X(::convoy::cublaslt::Status, cublasLtMatrixLayoutDestroy, (::convoy::cublaslt::MatrixLayout))   \
  X(::convoy::cublaslt::Status, cublasLtMatmulPreferenceCreate, (::convoy::cublaslt::Preference*)) \
  X(::convoy::cublaslt::Status, cublasLtMatmulPreferenceSetAttribute,                              \
    (::convoy::cublaslt::Preference, ::convoy::cublaslt::PreferenceAttribute, const void*,         \
     size_t))                                                                                      \
  X(::convoy::cublaslt::Status, cublasLtMatmulPreferenceDestroy, (::convoy::cublaslt::Preference)) \
  X(::convoy::cublaslt::Status, cublasLtMatmulAlgoGetHeuristic,                                    \
    (::convoy::cublaslt::Handle, ::convoy::cublaslt::MatmulDesc, ::convoy::cublaslt::MatrixLayout, \
     ::convoy::cublaslt::MatrixLayout, ::convoy::cublaslt::MatrixLayout,                           \
     ::convoy::cublaslt::MatrixLayout, ::convoy::cublaslt::Preference, int,                        \
     ::convoy::cublaslt::HeuristicResult*, int*))                                                  \
  X(::convoy::cublaslt::Status, cublasLtMatmulAlgoCheck,                                           \
    (::convoy::cublaslt::Handle, ::convoy::cublaslt::MatmulDesc, ::convoy::cublaslt::MatrixLayout, \
     ::convoy::cublaslt::MatrixLayout, ::convoy::cublaslt::MatrixLayout,                           \
     ::convoy::cublaslt::MatrixLayout, const ::convoy::cublaslt::Algo*,                            \
     ::convoy::cublaslt::HeuristicResult*))                                                        \
  X(::convoy::cublaslt::Status, cublasLtMatmulAlgoConfigGetAttribute,                              \
    (const ::convoy::cublaslt::Algo*, ::convoy::cublaslt::AlgoConfig, void*, size_t, size_t*))     \
  X(::convoy::cublaslt::Status, cublasLtMatmul,                                                    \
    (::convoy::cublaslt::Handle, ::convoy::cublaslt::MatmulDesc, const void*, const void*,         \
     ::convoy::cublaslt::MatrixLayout, const void*, ::convoy::cublaslt::MatrixLayout, const void*, \
     const void*, ::convoy::cublaslt::MatrixLayout, void*, ::convoy::cublaslt::MatrixLayout,       \
     const ::convoy::cublaslt::Algo*, void*, size_t, ::convoy::cuda::Stream))

}  // namespace convoy::cublaslt
