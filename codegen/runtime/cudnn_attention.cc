// Attention as a cuDNN operation graph: the chain of operations that its fused engines recognise.
//
//   s = scale * q k^T; s = j > i ? lowest : s (causal); e = exp(s - max(s)); o = (e / sum(e)) v
#include <limits>

#include "cudnn_graph.h"

namespace convoy {
namespace {

using Sizes = std::vector<int64_t>;

cudnn::DataType ToCudnn(Dtype dtype) {
  return dtype == Dtype::kBfloat16 ? cudnn::kBfloat16 : cudnn::kHalf;
}

}  // namespace

std::vector<float> AttentionConstants(const Attention& attention) {
  std::vector<float> constants = {attention.scale};
  if (attention.causal) constants.push_back(std::numeric_limits<float>::lowest());
  return constants;
}

std::vector<int64_t> OperandOffsets(const Workload& load) {
  if (load.op != Op::kAttention) return {};
  const Attention& a = load.attention;
  std::vector<int64_t> offsets = {a.q.offset, a.k.offset, a.v.offset, a.o.offset};
  for (int64_t& offset : offsets) offset *= 2;  // operands are of 16 bits
  return offsets;
}

void CudnnGraph::AddAttention(const Workload& load) {
  const Attention& attention = load.attention;
  if (attention.outer != 1 || !attention.bias.shape.empty()) {
    throw CudnnRefusal("attention with a bias, or in groups of batches, is not built as a graph");
  }
  const int64_t b = load.n, h = load.groups, queries = load.h, keys = load.w;
  const int64_t dim = load.c / h, value_dim = load.k / h;
  auto operand = [&](int64_t id, const RowView& view, int64_t rows, int64_t columns,
                     bool transposed) -> CudnnDescriptor& {
    Sizes sizes = {b, h, rows, columns};
    Sizes strides = {view.strides[1], view.strides[2], view.strides[3], 1};
    if (transposed) {
      std::swap(sizes[2], sizes[3]);
      std::swap(strides[2], strides[3]);
    }
    return StridedTensor(id, sizes, strides, ToCudnn(load.dtype), false);
  };
  auto scores = [&](cudnn::DataType type, int64_t columns) -> CudnnDescriptor& {
    return StridedTensor(next_virtual_id_++, {b, h, queries, columns},
                         {h * queries * columns, queries * columns, columns, 1}, type, true);
  };
  auto pointwise = [&](cudnn::PointwiseMode mode, const CudnnDescriptor& x,
                       const CudnnDescriptor* second, cudnn::DataType type,
                       const CudnnDescriptor* choose = nullptr, int64_t axis = -1,
                       int64_t columns = 0) -> CudnnDescriptor& {
    CudnnDescriptor& description = owned_.emplace_back(cudnn::kPointwise);
    description.Set(cudnn::kPointwiseMode, cudnn::kTypePointwiseMode, mode)
        .Set(cudnn::kPointwiseMathType, cudnn::kTypeDataType,
             type == cudnn::kInt32 || type == cudnn::kBoolean ? type : cudnn::kFloat);
    if (axis >= 0) description.Set(cudnn::kPointwiseAxis, cudnn::kTypeInt64, axis);
    description.Finalize();
    CudnnDescriptor& y = scores(type, columns ? columns : keys);
    CudnnDescriptor& operation = owned_.emplace_back(cudnn::kOperationPointwise);
    operation.Set(cudnn::kOperationPointwiseDescriptor, description)
        .Set(cudnn::kOperationPointwiseX, x);
    if (second) operation.Set(cudnn::kOperationPointwiseB, *second);
    if (choose) operation.Set(cudnn::kOperationPointwiseT, *choose);
    operation.Set(cudnn::kOperationPointwiseY, y);
    operation.Finalize();
    operations_.push_back(operation.get());
    return y;
  };
  auto reduce = [&](cudnn::ReductionOperator op, const CudnnDescriptor& x) -> CudnnDescriptor& {
    CudnnDescriptor& description = owned_.emplace_back(cudnn::kReduction);
    description.Set(cudnn::kReductionOperator, cudnn::kTypeReductionOperator, op)
        .Set(cudnn::kReductionComputeType, cudnn::kTypeDataType, cudnn::kFloat);
    description.Finalize();
    CudnnDescriptor& y = StridedTensor(next_virtual_id_++, {b, h, queries, 1},
                                       {h * queries, queries, 1, 1}, cudnn::kFloat, true);
    CudnnDescriptor& operation = owned_.emplace_back(cudnn::kOperationReduction);
    operation.Set(cudnn::kOperationReductionX, x)
        .Set(cudnn::kOperationReductionY, y)
        .Set(cudnn::kOperationReductionDescriptor, description);
    operation.Finalize();
    operations_.push_back(operation.get());
    return y;
  };
  auto multiply = [&](const CudnnDescriptor& x, const CudnnDescriptor& y,
                      const CudnnDescriptor& result) {
    CudnnDescriptor& description = owned_.emplace_back(cudnn::kMatmul);
    description.Set(cudnn::kMatmulComputeType, cudnn::kTypeDataType, cudnn::kFloat);
    description.Finalize();
    CudnnDescriptor& operation = owned_.emplace_back(cudnn::kOperationMatmul);
    operation.Set(cudnn::kOperationMatmulA, x)
        .Set(cudnn::kOperationMatmulB, y)
        .Set(cudnn::kOperationMatmulC, result)
        .Set(cudnn::kOperationMatmulDescriptor, description);
    operation.Finalize();
    operations_.push_back(operation.get());
  };

  CudnnDescriptor& products = scores(cudnn::kFloat, keys);
  multiply(operand(1, attention.q, queries, dim, false), operand(2, attention.k, keys, dim, true),
           products);
  CudnnDescriptor* s =
      &pointwise(cudnn::kMultiply, products, &ConstantTensor(kConstantId), cudnn::kFloat);
  if (attention.causal) {
    CudnnDescriptor& row = pointwise(cudnn::kGenerateIndex, *s, nullptr, cudnn::kInt32, nullptr, 2);
    CudnnDescriptor& column =
        pointwise(cudnn::kGenerateIndex, *s, nullptr, cudnn::kInt32, nullptr, 3);
    CudnnDescriptor& seen = pointwise(cudnn::kGreaterEqual, row, &column, cudnn::kBoolean);
    s = &pointwise(cudnn::kBinarySelect, *s, &ConstantTensor(kConstantId + 1), cudnn::kFloat,
                   &seen);
  }
  CudnnDescriptor& maximum = reduce(cudnn::kMaximum, *s);
  CudnnDescriptor& shifted = pointwise(cudnn::kSubtract, *s, &maximum, cudnn::kFloat);
  CudnnDescriptor& e = pointwise(cudnn::kExp, shifted, nullptr, cudnn::kFloat);
  CudnnDescriptor& sum = reduce(cudnn::kSum, e);
  // Nobody reads log(sum) + max, but the engines want to see it.
  CudnnDescriptor& logarithm = pointwise(cudnn::kLog, sum, nullptr, cudnn::kFloat, nullptr, -1, 1);
  pointwise(cudnn::kAdd, maximum, &logarithm, cudnn::kFloat, nullptr, -1, 1);
  CudnnDescriptor& p = pointwise(cudnn::kDivide, e, &sum, ToCudnn(load.dtype));
  multiply(p, operand(3, attention.v, keys, value_dim, false),
           operand(4, attention.o, queries, value_dim, false));
}

}  // namespace convoy
