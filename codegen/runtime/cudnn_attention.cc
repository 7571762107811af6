// Attention as a cuDNN operation graph: the chain of operations that its fused engines recognise.
//
//   s = scale * q k^T;  s = s where row >= column, otherwise the lowest number (causal)
//   e = exp(s - max(s));  o = (e / sum(e)) v
#include <limits>

#include "cudnn_graph.h"

namespace convoy {
namespace {

using Sizes = std::vector<int64_t>;

cudnn::DataType ToCudnn(Dtype dtype) {
  return dtype == Dtype::kBfloat16 ? cudnn::kBfloat16 : cudnn::kHalf;
}

}  // namespace

// The operations by name; each adds itself and its result, a virtual tensor, to the graph.
class CudnnGraph::AttentionBuilder {
 public:
  AttentionBuilder(CudnnGraph* graph, const Workload& load)
      : graph_(graph), n_(load.n), heads_(load.groups), queries_(load.h) {}

  // Rows of an operand of the call, or its transpose.
  CudnnDescriptor& Operand(int64_t id, const RowView& view, int64_t rows, int64_t columns,
                           Dtype dtype, bool transposed = false) {
    Sizes sizes = {n_, heads_, rows, columns};
    Sizes strides = {view.strides[1], view.strides[2], view.strides[3], 1};
    for (int axis = 2; axis >= 0; --axis) {  // along one element any stride is right, but 0
      if (sizes[axis] == 1) strides[axis] = sizes[axis + 1] * strides[axis + 1];
    }
    if (transposed) {
      std::swap(sizes[2], sizes[3]);
      std::swap(strides[2], strides[3]);
    }
    return graph_->StridedTensor(id, sizes, strides, ToCudnn(dtype), false);
  }

  // A value of so many columns for each query.
  CudnnDescriptor& Value(int64_t columns, cudnn::DataType type = cudnn::kFloat) {
    Sizes strides = {heads_ * queries_ * columns, queries_ * columns, columns, 1};
    return graph_->StridedTensor(graph_->next_virtual_id_++, {n_, heads_, queries_, columns},
                                 strides, type, true);
  }

  void Multiply(const CudnnDescriptor& a, const CudnnDescriptor& b, const CudnnDescriptor& c) {
    CudnnDescriptor& matmul = Make(cudnn::kMatmul);
    matmul.Set(cudnn::kMatmulComputeType, cudnn::kTypeDataType, cudnn::kFloat);
    matmul.Finalize();
    Add(Make(cudnn::kOperationMatmul)
            .Set(cudnn::kOperationMatmulDescriptor, matmul)
            .Set(cudnn::kOperationMatmulA, a)
            .Set(cudnn::kOperationMatmulB, b)
            .Set(cudnn::kOperationMatmulC, c));
  }

  CudnnDescriptor& Reduce(cudnn::ReductionOperator reduction_operator, const CudnnDescriptor& x) {
    CudnnDescriptor& reduction = Make(cudnn::kReduction);
    reduction.Set(cudnn::kReductionOperator, cudnn::kTypeReductionOperator, reduction_operator)
        .Set(cudnn::kReductionComputeType, cudnn::kTypeDataType, cudnn::kFloat);
    reduction.Finalize();
    CudnnDescriptor& y = Value(1);
    Add(Make(cudnn::kOperationReduction)
            .Set(cudnn::kOperationReductionDescriptor, reduction)
            .Set(cudnn::kOperationReductionX, x)
            .Set(cudnn::kOperationReductionY, y));
    return y;
  }

  // y = mode(x, b), or b where `chosen` is false; `axis` is that of an index.
  CudnnDescriptor& Pointwise(cudnn::PointwiseMode mode, const CudnnDescriptor& x,
                             const CudnnDescriptor* b, CudnnDescriptor& y,
                             cudnn::DataType math = cudnn::kFloat, int64_t axis = -1,
                             const CudnnDescriptor* chosen = nullptr) {
    CudnnDescriptor& pointwise = Make(cudnn::kPointwise);
    pointwise.Set(cudnn::kPointwiseMode, cudnn::kTypePointwiseMode, mode)
        .Set(cudnn::kPointwiseMathType, cudnn::kTypeDataType, math);
    if (axis >= 0) pointwise.Set(cudnn::kPointwiseAxis, cudnn::kTypeInt64, axis);
    pointwise.Finalize();
    CudnnDescriptor& operation = Make(cudnn::kOperationPointwise);
    operation.Set(cudnn::kOperationPointwiseDescriptor, pointwise)
        .Set(cudnn::kOperationPointwiseX, x)
        .Set(cudnn::kOperationPointwiseY, y);
    if (b) operation.Set(cudnn::kOperationPointwiseB, *b);
    if (chosen) operation.Set(cudnn::kOperationPointwiseT, *chosen);
    Add(operation);
    return y;
  }

 private:
  CudnnDescriptor& Make(cudnn::DescriptorType type) { return graph_->owned_.emplace_back(type); }

  void Add(CudnnDescriptor& operation) {
    operation.Finalize();
    graph_->operations_.push_back(operation.get());
  }

  CudnnGraph* graph_;
  int64_t n_, heads_, queries_;
};

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
  if (attention.outer != 1 || !attention.bias.shape.empty() || load.dtype == Dtype::kFloat32) {
    throw CudnnRefusal("attention with a bias, in groups of batches or in float32 is not built");
  }
  AttentionBuilder build(this, load);
  const int64_t keys = load.w, dim = load.c / load.groups, value_dim = load.k / load.groups;
  CudnnDescriptor& q = build.Operand(1, attention.q, load.h, dim, load.dtype);
  CudnnDescriptor& k = build.Operand(2, attention.k, keys, dim, load.dtype, true);
  CudnnDescriptor& v = build.Operand(3, attention.v, keys, value_dim, load.dtype);
  CudnnDescriptor& o = build.Operand(4, attention.o, load.h, value_dim, load.dtype);

  CudnnDescriptor& products = build.Value(keys);
  build.Multiply(q, k, products);
  CudnnDescriptor* s =
      &build.Pointwise(cudnn::kMultiply, products, &ConstantTensor(kConstantId), build.Value(keys));
  if (attention.causal) {
    auto index = [&](int64_t axis) -> CudnnDescriptor& {
      return build.Pointwise(cudnn::kGenerateIndex, *s, nullptr, build.Value(keys, cudnn::kInt32),
                             cudnn::kInt32, axis);
    };
    CudnnDescriptor& row = index(2);
    CudnnDescriptor& column = index(3);
    CudnnDescriptor& seen = build.Pointwise(cudnn::kGreaterEqual, row, &column,
                                            build.Value(keys, cudnn::kBoolean), cudnn::kBoolean);
    s = &build.Pointwise(cudnn::kBinarySelect, *s, &ConstantTensor(kConstantId + 1),
                         build.Value(keys), cudnn::kFloat, -1, &seen);
  }
  CudnnDescriptor& maximum = build.Reduce(cudnn::kMaximum, *s);
  CudnnDescriptor& shifted = build.Pointwise(cudnn::kSubtract, *s, &maximum, build.Value(keys));
  CudnnDescriptor& e = build.Pointwise(cudnn::kExp, shifted, nullptr, build.Value(keys));
  CudnnDescriptor& sum = build.Reduce(cudnn::kSum, e);
  // Nobody reads max(s) + log(sum(e)), but without it the engines do not recognise the graph.
  CudnnDescriptor& logarithm = build.Pointwise(cudnn::kLog, sum, nullptr, build.Value(1));
  build.Pointwise(cudnn::kAdd, maximum, &logarithm, build.Value(1));
  CudnnDescriptor& p =
      build.Pointwise(cudnn::kDivide, e, &sum, build.Value(keys, ToCudnn(load.dtype)));
  build.Multiply(p, v, o);
}

}  // namespace convoy
