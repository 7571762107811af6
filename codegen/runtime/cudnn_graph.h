// A workload as a cuDNN operation graph.
#pragma once

#include <deque>
#include <vector>

#include "cudnn_descriptor.h"
#include "cudnn_epilogue.h"
#include "workload.h"

namespace convoy {

// Where a graph is built for: a handle on a real device, or a description of a device that need not
// be present (cuDNN 9.8 and later).
struct CudnnTarget {
  cudnn::Handle handle = nullptr;
  const CudnnDescriptor* device_properties = nullptr;
};

// Unique id of the bias that a graph adds of its own.
constexpr int64_t kZeroBiasId = 50;
// And of the first of GraphConstants, which are passed by value: pointers to the host's memory.
constexpr int64_t kConstantId = 60;

// The constants of a workload's graph, in order.
std::vector<float> GraphConstants(const Workload& load);
// Of attention: the scale, and what a score becomes that a query does not see.
std::vector<float> AttentionConstants(const Attention& attention);
// Where in their tensors the graph's operands begin, in bytes; empty where all begin at 0.
std::vector<int64_t> OperandOffsets(const Workload& load);

// Tensor i of the workload's operands has the unique id i + 1.
class CudnnGraph {
 public:
  // With `zero_bias` a bias is added that the workload does not have: the ready-made engines for
  // residual and relu all want one, and without it only those compiled at run time are left.
  // Throws CudnnRefusal when cuDNN does not take the graph.
  CudnnGraph(const Workload& load, const CudnnTarget& target, bool zero_bias = false);

  const CudnnDescriptor& descriptor() const { return graph_; }
  const CudnnTarget& target() const { return target_; }

 private:
  class AttentionBuilder;
  // Of the workload's layout; a shape of one axis is that of a value per channel.
  CudnnDescriptor& Tensor(int64_t id, const std::vector<int64_t>& shape, cudnn::DataType type,
                          bool is_virtual);
  CudnnDescriptor& StridedTensor(int64_t id, const std::vector<int64_t>& sizes,
                                 const std::vector<int64_t>& strides, cudnn::DataType type,
                                 bool is_virtual);
  CudnnDescriptor& OperandTensor(const Workload& load, Role role);
  void AddConvolution(const Workload& load, const CudnnDescriptor& y);
  CudnnDescriptor& ConstantTensor(int64_t id);
  const CudnnDescriptor& AddPointwise(const PointwiseStep& step, const CudnnDescriptor& x,
                                      const CudnnDescriptor* b, const CudnnDescriptor& y);
  void AddEpilogue(const Workload& load, const CudnnDescriptor& accumulator, bool zero_bias);

  void AddAttention(const Workload& load);

  CudnnTarget target_;
  size_t rank_ = 4;                    // of cuDNN's tensors
  std::deque<CudnnDescriptor> owned_;  // a graph refers to its parts
  std::vector<cudnn::Descriptor> operations_;
  CudnnDescriptor graph_;
  int64_t next_virtual_id_ = 100;
};

}  // namespace convoy
