#include "cudnn_graph.h"

namespace convoy {
namespace {

cudnn::DataType ToCudnn(Dtype dtype) {
  switch (dtype) {
    case Dtype::kFloat16: return cudnn::kHalf;
    case Dtype::kBfloat16: return cudnn::kBfloat16;
    case Dtype::kFloat32: return cudnn::kFloat;
    default: throw CudnnRefusal(std::string("the workload is of ") + Name(dtype));
  }
}

// cuDNN names dimensions N, C, [D,] H, W whatever the layout; in ours channels are last. A value
// per channel has no other axis, and a GEMM is a 1x1 convolution of 1x1 images.
std::vector<int64_t> Dimensions(const std::vector<int64_t>& shape, size_t rank) {
  std::vector<int64_t> sizes(rank, 1);
  sizes[1] = shape.back();
  if (shape.size() > 1) sizes[0] = shape[0];
  for (size_t i = 1; i + 1 < shape.size(); ++i) sizes[i + 1] = shape[i];
  return sizes;
}

// Strides of dimensions whose second one lies innermost.
std::vector<int64_t> ChannelsLast(const std::vector<int64_t>& sizes) {
  std::vector<int64_t> strides(sizes.size(), 1);
  int64_t stride = sizes[1];
  for (size_t i = sizes.size(); i-- > 2; stride *= sizes[i]) strides[i] = stride;
  strides[0] = stride;
  return strides;
}

// The outermost axis first.
std::vector<int64_t> Spatial(const Workload& load, int64_t depth, int64_t h, int64_t w) {
  return load.depth.is_3d ? std::vector<int64_t>{depth, h, w} : std::vector<int64_t>{h, w};
}

}  // namespace

std::vector<float> GraphConstants(const Workload& load) {
  return load.op == Op::kAttention ? AttentionConstants(load.attention)
                                   : EpilogueConstants(load.epilogue);
}

CudnnDescriptor& CudnnGraph::Tensor(int64_t id, const std::vector<int64_t>& shape,
                                    cudnn::DataType type, bool is_virtual) {
  std::vector<int64_t> sizes = Dimensions(shape, rank_);
  return StridedTensor(id, sizes, ChannelsLast(sizes), type, is_virtual);
}

CudnnDescriptor& CudnnGraph::StridedTensor(int64_t id, const std::vector<int64_t>& sizes,
                                           const std::vector<int64_t>& strides,
                                           cudnn::DataType type, bool is_virtual) {
  CudnnDescriptor& tensor = owned_.emplace_back(cudnn::kTensor);
  tensor.Set(cudnn::kTensorUniqueId, cudnn::kTypeInt64, id)
      .Set(cudnn::kTensorDataType, cudnn::kTypeDataType, type)
      .Set(cudnn::kTensorDimensions, sizes)
      .Set(cudnn::kTensorStrides, strides)
      .Set(cudnn::kTensorByteAlignment, cudnn::kTypeInt64, int64_t{16});
  if (is_virtual) tensor.Set(cudnn::kTensorIsVirtual, cudnn::kTypeBoolean, true);
  tensor.Finalize();
  return tensor;
}

CudnnDescriptor& CudnnGraph::OperandTensor(const Workload& load, Role role) {
  for (size_t i = 0; i < load.operands.size(); ++i) {
    const Operand& operand = load.operands[i];
    if (operand.role == role) {
      return Tensor(static_cast<int64_t>(i) + 1, operand.shape, ToCudnn(operand.dtype), false);
    }
  }
  throw CudnnRefusal("the workload has no such operand");
}

void CudnnGraph::AddConvolution(const Workload& load, const CudnnDescriptor& y) {
  CudnnDescriptor& convolution = owned_.emplace_back(cudnn::kConvolution);
  convolution.Set(cudnn::kConvolutionComputeType, cudnn::kTypeDataType, ToCudnn(load.acc_dtype))
      .Set(cudnn::kConvolutionMode, cudnn::kTypeConvolutionMode, cudnn::kCrossCorrelation)
      .Set(cudnn::kConvolutionSpatialDims, cudnn::kTypeInt64, static_cast<int64_t>(rank_) - 2)
      .Set(cudnn::kConvolutionPrePaddings,
           Spatial(load, load.depth.padding[0], load.padding[0], load.padding[1]))
      .Set(cudnn::kConvolutionPostPaddings,
           Spatial(load, load.depth.padding[1], load.padding[2], load.padding[3]))
      .Set(cudnn::kConvolutionDilations,
           Spatial(load, load.depth.dilation, load.dilation[0], load.dilation[1]))
      .Set(cudnn::kConvolutionStrides,
           Spatial(load, load.depth.stride, load.stride[0], load.stride[1]));
  convolution.Finalize();

  struct Names {
    cudnn::DescriptorType type;
    cudnn::Attribute x, w, y, convolution, alpha, beta;
  };
  const Names forward = {cudnn::kOperationForward, cudnn::kForwardX,           cudnn::kForwardW,
                         cudnn::kForwardY,         cudnn::kForwardConvolution, cudnn::kForwardAlpha,
                         cudnn::kForwardBeta};
  const Names data = {cudnn::kOperationBackwardData,   cudnn::kBackwardDataDx,
                      cudnn::kBackwardDataW,           cudnn::kBackwardDataDy,
                      cudnn::kBackwardDataConvolution, cudnn::kBackwardDataAlpha,
                      cudnn::kBackwardDataBeta};
  const Names filter = {cudnn::kOperationBackwardFilter,   cudnn::kBackwardFilterX,
                        cudnn::kBackwardFilterDw,          cudnn::kBackwardFilterDy,
                        cudnn::kBackwardFilterConvolution, cudnn::kBackwardFilterAlpha,
                        cudnn::kBackwardFilterBeta};
  const Names& names = load.op == Op::kDgrad ? data : load.op == Op::kWgrad ? filter : forward;
  CudnnDescriptor& x = OperandTensor(load, Role::kX);
  CudnnDescriptor& w = OperandTensor(load, Role::kW);
  CudnnDescriptor& operation = owned_.emplace_back(names.type);
  operation.Set(names.x, x)
      .Set(names.w, w)
      .Set(names.y, y)
      .Set(names.convolution, convolution)
      .Set(names.alpha, cudnn::kTypeFloat, 1.0f)
      .Set(names.beta, cudnn::kTypeFloat, 0.0f);
  operation.Finalize();
  operations_.push_back(operation.get());
}

CudnnDescriptor& CudnnGraph::ConstantTensor(int64_t id) {
  CudnnDescriptor& tensor = owned_.emplace_back(cudnn::kTensor);
  const std::vector<int64_t> ones(rank_, 1);
  tensor.Set(cudnn::kTensorUniqueId, cudnn::kTypeInt64, id)
      .Set(cudnn::kTensorDataType, cudnn::kTypeDataType, cudnn::kFloat)
      .Set(cudnn::kTensorDimensions, ones)
      .Set(cudnn::kTensorStrides, ones)
      .Set(cudnn::kTensorByteAlignment, cudnn::kTypeInt64, int64_t{4})
      .Set(cudnn::kTensorIsByValue, cudnn::kTypeBoolean, true);
  tensor.Finalize();
  return tensor;
}

const CudnnDescriptor& CudnnGraph::AddPointwise(const PointwiseStep& step, const CudnnDescriptor& x,
                                                const CudnnDescriptor* b,
                                                const CudnnDescriptor& y) {
  CudnnDescriptor& pointwise = owned_.emplace_back(cudnn::kPointwise);
  pointwise.Set(cudnn::kPointwiseMode, cudnn::kTypePointwiseMode, step.mode)
      .Set(cudnn::kPointwiseMathType, cudnn::kTypeDataType, cudnn::kFloat);
  if (step.clips) {
    pointwise.Set(cudnn::kPointwiseLowerClip, cudnn::kTypeFloat, step.lower)
        .Set(cudnn::kPointwiseUpperClip, cudnn::kTypeFloat, step.upper);
  }
  if (step.slope != 0) {
    pointwise.Set(cudnn::kPointwiseLowerClipSlope, cudnn::kTypeFloat, step.slope);
  }
  if (step.mode == cudnn::kEluForward) {
    pointwise.Set(cudnn::kPointwiseEluAlpha, cudnn::kTypeFloat, step.alpha);
  }
  pointwise.Finalize();
  CudnnDescriptor& operation = owned_.emplace_back(cudnn::kOperationPointwise);
  operation.Set(cudnn::kOperationPointwiseDescriptor, pointwise)
      .Set(cudnn::kOperationPointwiseX, x);
  if (b) operation.Set(cudnn::kOperationPointwiseB, *b);
  operation.Set(cudnn::kOperationPointwiseY, y);
  operation.Finalize();
  operations_.push_back(operation.get());
  return y;
}

void CudnnGraph::AddEpilogue(const Workload& load, const CudnnDescriptor& accumulator,
                             bool zero_bias) {
  std::vector<PointwiseStep> steps = EpilogueSteps(load.epilogue, zero_bias);
  const CudnnDescriptor* value = &accumulator;
  const CudnnDescriptor* before_activation = value;
  int64_t next_constant = kConstantId;
  for (size_t i = 0; i < steps.size(); ++i) {
    const CudnnDescriptor* b = nullptr;
    bool sum = false;
    switch (steps[i].second) {
      case Second::kNone: break;
      case Second::kResidual: b = &OperandTensor(load, Role::kResidual), sum = true; break;
      case Second::kBias: b = &OperandTensor(load, Role::kBias), sum = true; break;
      case Second::kZeroBias:
        b = &Tensor(kZeroBiasId, {load.k}, ToCudnn(load.out_dtype), false), sum = true;
        break;
      case Second::kConstant: b = &ConstantTensor(next_constant++); break;
      case Second::kActivationInput: b = before_activation; break;
    }
    bool last = i + 1 == steps.size();
    const CudnnDescriptor& y =
        last ? OperandTensor(load, Role::kY)
             : Tensor(next_virtual_id_++, load.operands.back().shape, cudnn::kFloat, true);
    value = &AddPointwise(steps[i], *value, b, y);
    if (sum) before_activation = value;
  }
}

CudnnGraph::CudnnGraph(const Workload& load, const CudnnTarget& target, bool zero_bias)
    : target_(target), rank_(load.depth.is_3d ? 5 : 4) {
  if (load.has_slices()) {
    throw CudnnRefusal("cuDNN copies slices of wider tensors through its workspace");
  }
  if (load.epilogue.affine_relu) {
    throw CudnnRefusal("a second output relu(scale * y + shift) is not built as a cuDNN graph");
  }
  if (load.op == Op::kStem) throw CudnnRefusal("cuDNN reads no images as networks are given them");
  if (load.is_back_to_back()) {
    throw CudnnRefusal("cuDNN fuses no convolution or product with another");
  }
  if (load.op == Op::kAttention) {
    AddAttention(load);
  } else if (load.fused()) {
    CudnnDescriptor& accumulator =
        Tensor(next_virtual_id_++, load.operands.back().shape, cudnn::kFloat, true);
    AddConvolution(load, accumulator);
    AddEpilogue(load, accumulator, zero_bias);
  } else {
    AddConvolution(load, OperandTensor(load, Role::kY));
  }
  graph_ = CudnnDescriptor(cudnn::kOperationGraph);
  graph_.Set(cudnn::kGraphOperations, cudnn::kTypeDescriptor,
             static_cast<int64_t>(operations_.size()), operations_.data());
  if (target.handle) graph_.Set(cudnn::kGraphHandle, cudnn::kTypeHandle, target.handle);
  graph_.Finalize();
}

}  // namespace convoy
