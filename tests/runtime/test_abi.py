"""The declarations in the *_abi.h of the runtime against the headers of the real libraries."""

from __future__ import annotations

import importlib.util
import re
import subprocess
from pathlib import Path

import pytest
from support import ROOT

RUNTIME = ROOT / "codegen/runtime"


def wheel_folder(relative: str) -> Path | None:
    spec = importlib.util.find_spec("nvidia")
    for folder in spec.submodule_search_locations or () if spec else ():
        if (path := Path(folder) / relative).is_dir():
            return path
    return None


def cuda_include() -> Path:
    for folder in (wheel_folder("cu13/include"), Path("/usr/local/cuda/include")):
        # The runtime's wheel has no crt folder; that of the compiler does.
        if folder and all((folder / n).exists() for n in ("cuda_runtime_api.h", "crt")):
            return folder
    pytest.skip("no complete CUDA headers (nvidia-cuda-runtime and nvidia-cuda-crt)")


def compiles(source: str, folder: Path, *includes: Path) -> None:
    file = folder / "check.cc"
    file.write_text(source)
    flags = [f"-I{path}" for path in (RUNTIME, *includes)]
    done = subprocess.run(
        ["g++", "-std=c++17", "-fsyntax-only", "-w", *flags, file], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[:4000]


def equal(ours: str, theirs: str) -> str:
    return f'static_assert((long)({ours}) == (long)({theirs}), "{ours} is {theirs}");\n'


def test_cuda_constants_and_layouts(tmp_path: Path) -> None:
    pairs = {
        "kSuccess": "cudaSuccess",
        "kOutOfMemory": "cudaErrorMemoryAllocation",
        "kStubLibrary": "cudaErrorStubLibrary",
        "kInsufficientDriver": "cudaErrorInsufficientDriver",
        "kNoDevice": "cudaErrorNoDevice",
        "kInvalidDevice": "cudaErrorInvalidDevice",
        "kCaptureUnsupported": "cudaErrorStreamCaptureUnsupported",
        "kCaptureImplicit": "cudaErrorStreamCaptureImplicit",
        "kMultiProcessorCount": "cudaDevAttrMultiProcessorCount",
        "kMemoryClockRate": "cudaDevAttrMemoryClockRate",
        "kGlobalMemoryBusWidth": "cudaDevAttrGlobalMemoryBusWidth",
        "kL2CacheSize": "cudaDevAttrL2CacheSize",
        "kComputeCapabilityMajor": "cudaDevAttrComputeCapabilityMajor",
        "kComputeCapabilityMinor": "cudaDevAttrComputeCapabilityMinor",
        "kMaxSharedMemoryPerBlockOptin": "cudaDevAttrMaxSharedMemoryPerBlockOptin",
        "kNotCapturing": "cudaStreamCaptureStatusNone",
        "kCapturing": "cudaStreamCaptureStatusActive",
        "kCaptureInvalidated": "cudaStreamCaptureStatusInvalidated",
        "kCaptureGlobal": "cudaStreamCaptureModeGlobal",
        "kCaptureThreadLocal": "cudaStreamCaptureModeThreadLocal",
        "kCaptureRelaxed": "cudaStreamCaptureModeRelaxed",
        "kHostToDevice": "cudaMemcpyHostToDevice",
        "kDeviceToHost": "cudaMemcpyDeviceToHost",
        "kDeviceToDevice": "cudaMemcpyDeviceToDevice",
        "kAnyToAny": "cudaMemcpyDefault",
        "kStreamNonBlocking": "cudaStreamNonBlocking",
        "kEventDisableTiming": "cudaEventDisableTiming",
        "kEventRecordExternal": "cudaEventRecordExternal",
        "kSetCaptureDependencies": "cudaStreamSetCaptureDependencies",
        "kUserObjectNoDestructorSync": "cudaUserObjectNoDestructorSync",
        "kGraphUserObjectMove": "cudaGraphUserObjectMove",
    }
    declared = set(re.findall(r"\b(k[A-Z]\w+)\s*=", (RUNTIME / "cuda_abi.h").read_text()))
    assert declared == set(pairs), "each constant has its counterpart here"
    source = '#include "cuda_abi.h"\n#include <cuda_runtime_api.h>\nusing namespace convoy::cuda;\n'
    source += "".join(equal(ours, theirs) for ours, theirs in pairs.items())
    source += equal("offsetof(cudaDeviceProp, name)", "offsetof(DeviceProperties, name)")
    source += equal(
        "offsetof(cudaDeviceProp, totalGlobalMem)", "offsetof(DeviceProperties, total_memory)"
    )
    source += 'static_assert(sizeof(cudaDeviceProp) <= sizeof(DeviceProperties), "fits");\n'
    compiles(source, tmp_path, cuda_include())


def test_cuda_functions_take_arguments_of_the_same_sizes(tmp_path: Path) -> None:
    """Handles are void pointers and enumerations their own in cuda_abi.h, so sizes are compared."""
    source = """
#include "cuda_abi.h"
#include <cuda_runtime_api.h>
#include <type_traits>
#include <utility>
template <typename R, typename... A>
std::integer_sequence<size_t, sizeof(R), sizeof(A)...> Sizes(R (*)(A...));
#define DECLARE(name, arguments) using Ours_##name = int(*) arguments;
CONVOY_CUDART_FUNCTIONS(DECLARE)
"""
    names = re.findall(r"X\((cuda\w+),", (RUNTIME / "cuda_abi.h").read_text())
    assert len(names) > 30
    for name in names:
        source += (
            f"static_assert(std::is_same<decltype(Sizes((Ours_{name})nullptr)), "
            f'decltype(Sizes(&{name}))>::value, "{name}");\n'
        )
    compiles(source, tmp_path, cuda_include())


def test_driver_declarations(tmp_path: Path) -> None:
    folder = cuda_include()
    if not (folder / "cuda.h").is_file():
        pytest.skip("no cuda.h")
    source = """
#include "driver_abi.h"
#include <cuda.h>
#include <type_traits>
#include <utility>
using namespace convoy::driver;
template <typename R, typename... A>
std::integer_sequence<size_t, sizeof(R), sizeof(A)...> Sizes(R (*)(A...));
#define DECLARE(name, arguments) using Ours_##name = int(*) arguments;
CONVOY_DRIVER_FUNCTIONS(DECLARE)
static_assert(sizeof(KernelNodeParams) == sizeof(CUDA_KERNEL_NODE_PARAMS), "size");
"""
    source += equal("kKernelNode", "CU_GRAPH_NODE_TYPE_KERNEL")
    source += equal("kSharedSizeBytes", "CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES")
    source += equal("kNumRegs", "CU_FUNC_ATTRIBUTE_NUM_REGS")
    fields = {
        "function": "func",
        "grid": "gridDimX",
        "block": "blockDimX",
        "shared_bytes": "sharedMemBytes",
        "arguments": "kernelParams",
        "kernel": "kern",
    }
    for ours, theirs in fields.items():
        ours = f"offsetof(KernelNodeParams, {ours})"
        source += equal(ours, f"offsetof(CUDA_KERNEL_NODE_PARAMS, {theirs})")
    names = re.findall(r"X\((cu\w+),", (RUNTIME / "driver_abi.h").read_text())
    assert len(names) == 6
    for name in names:
        theirs = name.removesuffix("_v2")  # cuda.h maps it to the version of its own
        source += (
            f"static_assert(std::is_same<decltype(Sizes((Ours_{name})nullptr)), "
            f'decltype(Sizes(&{theirs}))>::value, "{name}");\n'
        )
    compiles(source, tmp_path, folder)


CUDNN = {
    # enumerators of cudnn_abi.h by the prefix of cuDNN's names
    "kSuccess": "CUDNN_STATUS_SUCCESS",
    "kFloat": "CUDNN_DATA_FLOAT",
    "kHalf": "CUDNN_DATA_HALF",
    "kBfloat16": "CUDNN_DATA_BFLOAT16",
    "kInt32": "CUDNN_DATA_INT32",
    "kBoolean": "CUDNN_DATA_BOOLEAN",
    "kCrossCorrelation": "CUDNN_CROSS_CORRELATION",
    "kAdd": "CUDNN_POINTWISE_ADD",
    "kMultiply": "CUDNN_POINTWISE_MUL",
    "kDivide": "CUDNN_POINTWISE_DIV",
    "kSubtract": "CUDNN_POINTWISE_SUB",
    "kExp": "CUDNN_POINTWISE_EXP",
    "kLog": "CUDNN_POINTWISE_LOG",
    "kGreaterEqual": "CUDNN_POINTWISE_CMP_GE",
    "kGenerateIndex": "CUDNN_POINTWISE_GEN_INDEX",
    "kBinarySelect": "CUDNN_POINTWISE_BINARY_SELECT",
    "kSum": "CUDNN_REDUCE_TENSOR_ADD",
    "kMaximum": "CUDNN_REDUCE_TENSOR_MAX",
    "kReluForward": "CUDNN_POINTWISE_RELU_FWD",
    "kTanhForward": "CUDNN_POINTWISE_TANH_FWD",
    "kSigmoidForward": "CUDNN_POINTWISE_SIGMOID_FWD",
    "kEluForward": "CUDNN_POINTWISE_ELU_FWD",
    "kGeluForward": "CUDNN_POINTWISE_GELU_FWD",
    "kSoftplusForward": "CUDNN_POINTWISE_SOFTPLUS_FWD",
    "kSwishForward": "CUDNN_POINTWISE_SWISH_FWD",
    "kGeluTanhForward": "CUDNN_POINTWISE_GELU_APPROX_TANH_FWD",
    "kHeuristicA": "CUDNN_HEUR_MODE_A",
    "kHeuristicB": "CUDNN_HEUR_MODE_B",
    "kHeuristicFallback": "CUDNN_HEUR_MODE_FALLBACK",
    "kTensorCore": "CUDNN_NUMERICAL_NOTE_TENSOR_CORE",
    "kDownConvertInputs": "CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS",
    "kReducedPrecisionReduction": "CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION",
    "kFft": "CUDNN_NUMERICAL_NOTE_FFT",
    "kNondeterministic": "CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC",
    "kWinograd": "CUDNN_NUMERICAL_NOTE_WINOGRAD",
    "kWinograd4x4": "CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_4x4",
    "kWinograd6x6": "CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_6x6",
    "kWinograd13x13": "CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_13x13",
    "kStrictNanPropagation": "CUDNN_NUMERICAL_NOTE_STRICT_NAN_PROP",
    "kRuntimeCompilation": "CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION",
    "kNeedsFilterReorder": "CUDNN_BEHAVIOR_NOTE_REQUIRES_FILTER_INT8x32_REORDER",
    "kNeedsBiasReorder": "CUDNN_BEHAVIOR_NOTE_REQUIRES_BIAS_INT8x32_REORDER",
    "kNativeCudaGraph": "CUDNN_BEHAVIOR_NOTE_SUPPORTS_CUDA_GRAPH_NATIVE_API",
    "kNeedsCublasLt": "CUDNN_BEHAVIOR_NOTE_CUBLASLT_DEPENDENCY",
    "kPointwise": "CUDNN_BACKEND_POINTWISE_DESCRIPTOR",
    "kConvolution": "CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR",
    "kEngine": "CUDNN_BACKEND_ENGINE_DESCRIPTOR",
    "kEngineConfig": "CUDNN_BACKEND_ENGINECFG_DESCRIPTOR",
    "kEngineHeuristics": "CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR",
    "kExecutionPlan": "CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR",
    "kKnobChoice": "CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR",
    "kKnobInfo": "CUDNN_BACKEND_KNOB_INFO_DESCRIPTOR",
    "kOperationForward": "CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR",
    "kOperationBackwardFilter": "CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR",
    "kOperationBackwardData": "CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR",
    "kOperationPointwise": "CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR",
    "kOperationGraph": "CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR",
    "kVariantPack": "CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR",
    "kTensor": "CUDNN_BACKEND_TENSOR_DESCRIPTOR",
    "kMatmul": "CUDNN_BACKEND_MATMUL_DESCRIPTOR",
    "kOperationMatmul": "CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR",
    "kReduction": "CUDNN_BACKEND_REDUCTION_DESCRIPTOR",
    "kOperationReduction": "CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR",
    "kDeviceProperties": "CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR",
    "kTypeHandle": "CUDNN_TYPE_HANDLE",
    "kTypeDataType": "CUDNN_TYPE_DATA_TYPE",
    "kTypeBoolean": "CUDNN_TYPE_BOOLEAN",
    "kTypeInt64": "CUDNN_TYPE_INT64",
    "kTypeFloat": "CUDNN_TYPE_FLOAT",
    "kTypeVoidPtr": "CUDNN_TYPE_VOID_PTR",
    "kTypeConvolutionMode": "CUDNN_TYPE_CONVOLUTION_MODE",
    "kTypeHeuristicMode": "CUDNN_TYPE_HEUR_MODE",
    "kTypeKnobType": "CUDNN_TYPE_KNOB_TYPE",
    "kTypeNumericalNote": "CUDNN_TYPE_NUMERICAL_NOTE",
    "kTypePointwiseMode": "CUDNN_TYPE_POINTWISE_MODE",
    "kTypeDescriptor": "CUDNN_TYPE_BACKEND_DESCRIPTOR",
    "kTypeReductionOperator": "CUDNN_TYPE_REDUCTION_OPERATOR_TYPE",
    "kTypeBehaviorNote": "CUDNN_TYPE_BEHAVIOR_NOTE",
    "kTypeInt32": "CUDNN_TYPE_INT32",
    "kTypeChar": "CUDNN_TYPE_CHAR",
    "kPointwiseMode": "CUDNN_ATTR_POINTWISE_MODE",
    "kPointwiseMathType": "CUDNN_ATTR_POINTWISE_MATH_PREC",
    "kPointwiseLowerClip": "CUDNN_ATTR_POINTWISE_RELU_LOWER_CLIP",
    "kPointwiseLowerClipSlope": "CUDNN_ATTR_POINTWISE_RELU_LOWER_CLIP_SLOPE",
    "kPointwiseEluAlpha": "CUDNN_ATTR_POINTWISE_ELU_ALPHA",
    "kPointwiseAxis": "CUDNN_ATTR_POINTWISE_AXIS",
    "kPointwiseUpperClip": "CUDNN_ATTR_POINTWISE_RELU_UPPER_CLIP",
    "kConvolutionComputeType": "CUDNN_ATTR_CONVOLUTION_COMP_TYPE",
    "kConvolutionMode": "CUDNN_ATTR_CONVOLUTION_CONV_MODE",
    "kConvolutionDilations": "CUDNN_ATTR_CONVOLUTION_DILATIONS",
    "kConvolutionStrides": "CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES",
    "kConvolutionPostPaddings": "CUDNN_ATTR_CONVOLUTION_POST_PADDINGS",
    "kConvolutionPrePaddings": "CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS",
    "kConvolutionSpatialDims": "CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS",
    "kHeuristicsMode": "CUDNN_ATTR_ENGINEHEUR_MODE",
    "kHeuristicsGraph": "CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH",
    "kHeuristicsResults": "CUDNN_ATTR_ENGINEHEUR_RESULTS",
    "kHeuristicsSmCountTarget": "CUDNN_ATTR_ENGINEHEUR_SM_COUNT_TARGET",
    "kHeuristicsDeviceProperties": "CUDNN_ATTR_ENGINEHEUR_DEVICEPROP",
    "kConfigEngine": "CUDNN_ATTR_ENGINECFG_ENGINE",
    "kConfigKnobChoices": "CUDNN_ATTR_ENGINECFG_KNOB_CHOICES",
    "kConfigWorkspaceSize": "CUDNN_ATTR_ENGINECFG_WORKSPACE_SIZE",
    "kPlanHandle": "CUDNN_ATTR_EXECUTION_PLAN_HANDLE",
    "kPlanConfig": "CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG",
    "kPlanWorkspaceSize": "CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE",
    "kPlanJson": "CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION",
    "kPlanDeviceProperties": "CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP",
    "kKnobChoiceType": "CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE",
    "kKnobChoiceValue": "CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE",
    "kForwardAlpha": "CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA",
    "kForwardBeta": "CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA",
    "kForwardConvolution": "CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC",
    "kForwardW": "CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W",
    "kForwardX": "CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X",
    "kForwardY": "CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y",
    "kBackwardDataAlpha": "CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA",
    "kBackwardDataBeta": "CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA",
    "kBackwardDataConvolution": "CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC",
    "kBackwardDataW": "CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W",
    "kBackwardDataDx": "CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX",
    "kBackwardDataDy": "CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY",
    "kBackwardFilterAlpha": "CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA",
    "kBackwardFilterBeta": "CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA",
    "kBackwardFilterConvolution": "CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC",
    "kBackwardFilterDw": "CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW",
    "kBackwardFilterX": "CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X",
    "kBackwardFilterDy": "CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY",
    "kOperationPointwiseDescriptor": "CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR",
    "kOperationPointwiseX": "CUDNN_ATTR_OPERATION_POINTWISE_XDESC",
    "kOperationPointwiseB": "CUDNN_ATTR_OPERATION_POINTWISE_BDESC",
    "kOperationPointwiseY": "CUDNN_ATTR_OPERATION_POINTWISE_YDESC",
    "kOperationPointwiseT": "CUDNN_ATTR_OPERATION_POINTWISE_TDESC",
    "kMatmulComputeType": "CUDNN_ATTR_MATMUL_COMP_TYPE",
    "kOperationMatmulA": "CUDNN_ATTR_OPERATION_MATMUL_ADESC",
    "kOperationMatmulB": "CUDNN_ATTR_OPERATION_MATMUL_BDESC",
    "kOperationMatmulC": "CUDNN_ATTR_OPERATION_MATMUL_CDESC",
    "kOperationMatmulDescriptor": "CUDNN_ATTR_OPERATION_MATMUL_DESC",
    "kReductionOperator": "CUDNN_ATTR_REDUCTION_OPERATOR",
    "kReductionComputeType": "CUDNN_ATTR_REDUCTION_COMP_TYPE",
    "kOperationReductionX": "CUDNN_ATTR_OPERATION_REDUCTION_XDESC",
    "kOperationReductionY": "CUDNN_ATTR_OPERATION_REDUCTION_YDESC",
    "kOperationReductionDescriptor": "CUDNN_ATTR_OPERATION_REDUCTION_DESC",
    "kGraphHandle": "CUDNN_ATTR_OPERATIONGRAPH_HANDLE",
    "kGraphOperations": "CUDNN_ATTR_OPERATIONGRAPH_OPS",
    "kTensorByteAlignment": "CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT",
    "kTensorDataType": "CUDNN_ATTR_TENSOR_DATA_TYPE",
    "kTensorDimensions": "CUDNN_ATTR_TENSOR_DIMENSIONS",
    "kTensorStrides": "CUDNN_ATTR_TENSOR_STRIDES",
    "kTensorUniqueId": "CUDNN_ATTR_TENSOR_UNIQUE_ID",
    "kTensorIsVirtual": "CUDNN_ATTR_TENSOR_IS_VIRTUAL",
    "kTensorIsByValue": "CUDNN_ATTR_TENSOR_IS_BY_VALUE",
    "kPackUniqueIds": "CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS",
    "kPackDataPointers": "CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS",
    "kPackWorkspace": "CUDNN_ATTR_VARIANT_PACK_WORKSPACE",
    "kKnobInfoType": "CUDNN_ATTR_KNOB_INFO_TYPE",
    "kKnobInfoMaximum": "CUDNN_ATTR_KNOB_INFO_MAXIMUM_VALUE",
    "kKnobInfoMinimum": "CUDNN_ATTR_KNOB_INFO_MINIMUM_VALUE",
    "kKnobInfoStride": "CUDNN_ATTR_KNOB_INFO_STRIDE",
    "kEngineKnobInfo": "CUDNN_ATTR_ENGINE_KNOB_INFO",
    "kEngineGraph": "CUDNN_ATTR_ENGINE_OPERATION_GRAPH",
    "kEngineGlobalIndex": "CUDNN_ATTR_ENGINE_GLOBAL_INDEX",
    "kEngineNumericalNote": "CUDNN_ATTR_ENGINE_NUMERICAL_NOTE",
    "kEngineBehaviorNote": "CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE",
    "kEngineDeviceProperties": "CUDNN_ATTR_ENGINE_DEVICEPROP",
    "kDevicePropertiesHandle": "CUDNN_ATTR_DEVICEPROP_HANDLE",
    "kDevicePropertiesJson": "CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION",
}


def test_cudnn_constants(tmp_path: Path) -> None:
    headers = wheel_folder("cudnn/include")
    if headers is None:
        pytest.skip("no cuDNN wheel installed")
    declared = set(re.findall(r"\b(k[A-Z]\w+)\s*=", (RUNTIME / "cudnn_abi.h").read_text()))
    assert declared == set(CUDNN), "each constant has its counterpart here"
    source = '#include "cudnn_abi.h"\n#include <cudnn.h>\n'
    source += "".join(equal(f"convoy::cudnn::{ours}", theirs) for ours, theirs in CUDNN.items())
    compiles(source, tmp_path, headers, cuda_include())


CUBLASLT = {
    "kSuccess": "CUBLAS_STATUS_SUCCESS",
    "kReal32F": "CUDA_R_32F",
    "kReal16F": "CUDA_R_16F",
    "kReal16BF": "CUDA_R_16BF",
    "kCompute32F": "CUBLAS_COMPUTE_32F",
    "kCompute32FFastTF32": "CUBLAS_COMPUTE_32F_FAST_TF32",
    "kNoTranspose": "CUBLAS_OP_N",
    "kTranspose": "CUBLAS_OP_T",
    "kDescTransA": "CUBLASLT_MATMUL_DESC_TRANSA",
    "kDescTransB": "CUBLASLT_MATMUL_DESC_TRANSB",
    "kDescEpilogue": "CUBLASLT_MATMUL_DESC_EPILOGUE",
    "kDescBiasPointer": "CUBLASLT_MATMUL_DESC_BIAS_POINTER",
    "kDefault": "CUBLASLT_EPILOGUE_DEFAULT",
    "kRelu": "CUBLASLT_EPILOGUE_RELU",
    "kBias": "CUBLASLT_EPILOGUE_BIAS",
    "kGelu": "CUBLASLT_EPILOGUE_GELU",
    "kLayoutBatchCount": "CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT",
    "kLayoutStridedBatchOffset": "CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET",
    "kPreferenceMaxWorkspace": "CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES",
    "kPreferenceReductionSchemeMask": "CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK",
    "kPreferenceMinAlignmentA": "CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES",
    "kPreferenceMinAlignmentB": "CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES",
    "kPreferenceMinAlignmentC": "CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES",
    "kPreferenceMinAlignmentD": "CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES",
    "kReductionComputeType": "CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE",
    "kAlgoId": "CUBLASLT_ALGO_CONFIG_ID",
    "kAlgoTile": "CUBLASLT_ALGO_CONFIG_TILE_ID",
    "kAlgoSplitK": "CUBLASLT_ALGO_CONFIG_SPLITK_NUM",
    "kAlgoReductionScheme": "CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME",
    "kAlgoSwizzle": "CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING",
    "kAlgoCustomOption": "CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION",
    "kAlgoStages": "CUBLASLT_ALGO_CONFIG_STAGES_ID",
    "kAlgoInnerShape": "CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID",
    "kAlgoClusterShape": "CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID",
}


def test_cublaslt_declarations(tmp_path: Path) -> None:
    folder = cuda_include()
    if not (folder / "cublasLt.h").is_file():
        pytest.skip("no cublasLt.h")
    text = (RUNTIME / "cublaslt_abi.h").read_text()
    declared = set(re.findall(r"\b(k[A-Z]\w+)\s*=", text))
    assert declared == set(CUBLASLT), "each constant has its counterpart here"
    source = """
#include "cublaslt_abi.h"
#include <cublasLt.h>
#include <type_traits>
#include <utility>
template <typename R, typename... A>
std::integer_sequence<size_t, sizeof(R), sizeof(A)...> Sizes(R (*)(A...));
#define DECLARE(result, name, arguments) using Ours_##name = result(*) arguments;
CONVOY_CUBLASLT_FUNCTIONS(DECLARE)
"""
    source += "".join(equal(f"convoy::cublaslt::{o}", theirs) for o, theirs in CUBLASLT.items())
    source += equal("sizeof(convoy::cublaslt::Algo)", "sizeof(cublasLtMatmulAlgo_t)")
    result = "cublasLtMatmulHeuristicResult_t"
    source += equal("sizeof(convoy::cublaslt::HeuristicResult)", f"sizeof({result})")
    for ours, theirs in {"workspace": "workspaceSize", "state": "state"}.items():
        source += equal(
            f"offsetof(convoy::cublaslt::HeuristicResult, {ours})", f"offsetof({result}, {theirs})"
        )
    names = re.findall(r"X\([^,]+, (cublasLt\w+),", text)
    assert len(names) == 16
    for name in names:
        source += (
            f"static_assert(std::is_same<decltype(Sizes((Ours_{name})nullptr)), "
            f'decltype(Sizes(&{name}))>::value, "{name}");\n'
        )
    compiles(source, tmp_path, folder)
