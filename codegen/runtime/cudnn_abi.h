// The part of the cuDNN 9 backend API that the runtime calls, declared here so that it builds where
// no cuDNN is installed. The values are fixed for all of cuDNN 9; tests/runtime/test_abi.py
// compares them with the installed headers.
#pragma once

#include <cstddef>
#include <cstdint>

namespace convoy::cudnn {

using Handle = struct cudnnContext*;
using Descriptor = void*;
using Status = int;

constexpr Status kSuccess = 0;

enum DataType : int { kFloat = 0, kHalf = 2, kInt32 = 4, kBfloat16 = 9, kBoolean = 11 };
enum ConvolutionMode : int { kCrossCorrelation = 1 };

enum PointwiseMode : int {
  kAdd = 0,
  kMultiply = 1,
  kDivide = 6,
  kSubtract = 9,
  kExp = 13,
  kLog = 15,
  kReluForward = 100,
  kTanhForward = 101,
  kSigmoidForward = 102,
  kEluForward = 103,
  kGeluForward = 104,
  kSoftplusForward = 105,
  kSwishForward = 106,
  kGeluTanhForward = 107,
  kGreaterEqual = 303,
  kGenerateIndex = 501,
  kBinarySelect = 601,
};

enum ReductionOperator : int { kSum = 0, kMaximum = 3 };

enum HeuristicMode : int { kHeuristicB = 1, kHeuristicFallback = 2, kHeuristicA = 3 };

enum NumericalNote : int {
  kTensorCore = 0,
  kDownConvertInputs = 1,
  kReducedPrecisionReduction = 2,
  kFft = 3,
  kNondeterministic = 4,
  kWinograd = 5,
  kWinograd4x4 = 6,
  kWinograd6x6 = 7,
  kWinograd13x13 = 8,
  kStrictNanPropagation = 9,
};

enum BehaviorNote : int {
  kRuntimeCompilation = 0,
  kNeedsFilterReorder = 1,
  kNeedsBiasReorder = 2,
  kNativeCudaGraph = 3,
  kNeedsCublasLt = 4,
};

enum DescriptorType : int {
  kPointwise = 0,
  kConvolution = 1,
  kEngine = 2,
  kEngineConfig = 3,
  kEngineHeuristics = 4,
  kExecutionPlan = 5,
  kKnobChoice = 7,
  kKnobInfo = 8,
  kOperationForward = 10,
  kOperationBackwardFilter = 11,
  kOperationBackwardData = 12,
  kOperationPointwise = 13,
  kOperationGraph = 15,
  kVariantPack = 16,
  kTensor = 17,
  kMatmul = 18,
  kOperationMatmul = 19,
  kReduction = 21,
  kOperationReduction = 22,
  kDeviceProperties = 38,
};

enum AttributeType : int {
  kTypeHandle = 0,
  kTypeDataType = 1,
  kTypeBoolean = 2,
  kTypeInt64 = 3,
  kTypeFloat = 4,
  kTypeVoidPtr = 6,
  kTypeConvolutionMode = 7,
  kTypeHeuristicMode = 8,
  kTypeKnobType = 9,
  kTypeNumericalNote = 11,
  kTypePointwiseMode = 14,
  kTypeDescriptor = 15,
  kTypeReductionOperator = 18,
  kTypeBehaviorNote = 19,
  kTypeInt32 = 23,
  kTypeChar = 24,
};

enum Attribute : int {
  kPointwiseMode = 0,
  kPointwiseMathType = 1,
  kPointwiseLowerClip = 3,
  kPointwiseUpperClip = 4,
  kPointwiseLowerClipSlope = 5,
  kPointwiseEluAlpha = 6,
  kPointwiseAxis = 9,
  kConvolutionComputeType = 100,
  kConvolutionMode = 101,
  kConvolutionDilations = 102,
  kConvolutionStrides = 103,
  kConvolutionPostPaddings = 104,
  kConvolutionPrePaddings = 105,
  kConvolutionSpatialDims = 106,
  kHeuristicsMode = 200,
  kHeuristicsGraph = 201,
  kHeuristicsResults = 202,
  kHeuristicsSmCountTarget = 203,
  kHeuristicsDeviceProperties = 204,
  kConfigEngine = 300,
  kConfigKnobChoices = 302,
  kConfigWorkspaceSize = 303,
  kPlanHandle = 400,
  kPlanConfig = 401,
  kPlanWorkspaceSize = 402,
  kPlanJson = 405,
  kPlanDeviceProperties = 407,
  kKnobChoiceType = 600,
  kKnobChoiceValue = 601,
  kForwardAlpha = 700,
  kForwardBeta = 701,
  kForwardConvolution = 702,
  kForwardW = 703,
  kForwardX = 704,
  kForwardY = 705,
  kBackwardDataAlpha = 706,
  kBackwardDataBeta = 707,
  kBackwardDataConvolution = 708,
  kBackwardDataW = 709,
  kBackwardDataDx = 710,
  kBackwardDataDy = 711,
  kBackwardFilterAlpha = 712,
  kBackwardFilterBeta = 713,
  kBackwardFilterConvolution = 714,
  kBackwardFilterDw = 715,
  kBackwardFilterX = 716,
  kBackwardFilterDy = 717,
  kOperationPointwiseDescriptor = 750,
  kOperationPointwiseX = 751,
  kOperationPointwiseB = 752,
  kOperationPointwiseY = 753,
  kOperationPointwiseT = 758,
  kGraphHandle = 800,
  kGraphOperations = 801,
  kTensorByteAlignment = 900,
  kTensorDataType = 901,
  kTensorDimensions = 902,
  kTensorStrides = 903,
  kTensorUniqueId = 906,
  kTensorIsVirtual = 907,
  kTensorIsByValue = 908,
  kPackUniqueIds = 1000,
  kPackDataPointers = 1001,
  kPackWorkspace = 1003,
  kKnobInfoType = 1200,
  kKnobInfoMaximum = 1201,
  kKnobInfoMinimum = 1202,
  kKnobInfoStride = 1203,
  kEngineGraph = 1300,
  kEngineGlobalIndex = 1301,
  kEngineKnobInfo = 1302,
  kEngineNumericalNote = 1303,
  kEngineBehaviorNote = 1305,
  kEngineDeviceProperties = 1307,
  kMatmulComputeType = 1500,
  kOperationMatmulA = 1520,
  kOperationMatmulB = 1521,
  kOperationMatmulC = 1522,
  kOperationMatmulDescriptor = 1523,
  kReductionOperator = 1600,
  kReductionComputeType = 1601,
  kOperationReductionX = 1610,
  kOperationReductionY = 1611,
  kOperationReductionDescriptor = 1612,
  kDevicePropertiesHandle = 2701,
  kDevicePropertiesJson = 2702,
};

// X(result, name, argument types)
#define CONVOY_CUDNN_FUNCTIONS(X)                                                             \
  X(size_t, cudnnGetVersion, ())                                                              \
  X(size_t, cudnnGetCudartVersion, ())                                                        \
  X(const char*, cudnnGetErrorString, (::convoy::cudnn::Status))                              \
  X(void, cudnnGetLastErrorString, (char*, size_t))                                           \
  X(::convoy::cudnn::Status, cudnnCreate, (::convoy::cudnn::Handle*))                         \
  X(::convoy::cudnn::Status, cudnnSetStream, (::convoy::cudnn::Handle, void*))                \
  X(::convoy::cudnn::Status, cudnnBackendCreateDescriptor,                                    \
    (::convoy::cudnn::DescriptorType, ::convoy::cudnn::Descriptor*))                          \
  X(::convoy::cudnn::Status, cudnnBackendDestroyDescriptor, (::convoy::cudnn::Descriptor))    \
  X(::convoy::cudnn::Status, cudnnBackendFinalize, (::convoy::cudnn::Descriptor))             \
  X(::convoy::cudnn::Status, cudnnBackendSetAttribute,                                        \
    (::convoy::cudnn::Descriptor, ::convoy::cudnn::Attribute, ::convoy::cudnn::AttributeType, \
     int64_t, const void*))                                                                   \
  X(::convoy::cudnn::Status, cudnnBackendGetAttribute,                                        \
    (::convoy::cudnn::Descriptor, ::convoy::cudnn::Attribute, ::convoy::cudnn::AttributeType, \
     int64_t, int64_t*, void*))                                                               \
  X(::convoy::cudnn::Status, cudnnBackendExecute,                                             \
    (::convoy::cudnn::Handle, ::convoy::cudnn::Descriptor, ::convoy::cudnn::Descriptor))

}  // namespace convoy::cudnn
