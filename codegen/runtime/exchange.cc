#include "exchange.h"

namespace convoy {

Exchange::Exchange(cuda::Graph call, const std::vector<tvm::ffi::Tensor>& inputs,
                   const std::vector<tvm::ffi::Tensor>& outputs) {
  cuda::Graph graph = nullptr;
  CONVOY_CUDA(cudaGraphCreate, &graph, 0);
  graph_ = std::make_unique<CapturedGraph>(graph);
  std::vector<cuda::GraphNode> given;
  for (const tvm::ffi::Tensor& tensor : inputs) {
    copies_.push_back({Address(tensor), tvm::ffi::GetDataSize(tensor), true});
    AddNode(graph, {}, &copies_.back());
    if (copies_.back().node != nullptr) given.push_back(copies_.back().node);
  }
  cuda::GraphNode called = nullptr;
  CONVOY_CUDA(cudaGraphAddChildGraphNode, &called, graph, given.data(), given.size(), call);
  for (const tvm::ffi::Tensor& tensor : outputs) {
    copies_.push_back({Address(tensor), tvm::ffi::GetDataSize(tensor), false});
    AddNode(graph, {called}, &copies_.back());
  }
  graph_->Instantiate();
  for (const Copy& copy : copies_) {
    if (copy.node != nullptr) CONVOY_CUDA(cudaGraphNodeSetEnabled, graph_->exec(), copy.node, 0);
  }
}

// A node of a tensor onto itself, which stands for the copy until its memory is known.
void Exchange::AddNode(cuda::Graph graph, const std::vector<cuda::GraphNode>& predecessors,
                       Copy* copy) {
  if (copy->size == 0) return;
  CONVOY_CUDA(cudaGraphAddMemcpyNode1D, &copy->node, graph, predecessors.data(),
              predecessors.size(), copy->tensor, copy->tensor, copy->size, cuda::kDeviceToDevice);
}

void Exchange::SetMemory(size_t index, char* memory, size_t bytes) {
  Copy& copy = copies_.at(index);
  if (copy.node == nullptr) return;
  if (memory == copy.tensor || bytes == 0) memory = nullptr;
  if (memory == copy.memory && (memory == nullptr || bytes == copy.bytes)) return;
  copy.memory = memory;
  copy.bytes = bytes;
  if (memory != nullptr && !copy.on_stream) {
    const CudaApi& api = Cuda();
    cuda::Error error = api.cudaGraphExecMemcpyNodeSetParams1D(
        graph_->exec(), copy.node, copy.to(), copy.from(), bytes, cuda::kDeviceToDevice);
    copy.on_stream = error != cuda::kSuccess;
    if (copy.on_stream) api.cudaGetLastError();
  }
  bool enabled = memory != nullptr && !copy.on_stream;
  if (enabled != copy.enabled) {
    CONVOY_CUDA(cudaGraphNodeSetEnabled, graph_->exec(), copy.node, enabled);
  }
  copy.enabled = enabled;
}

void Exchange::Launch(cuda::Stream stream) const {
  CopyOnStream(true, stream);
  graph_->Launch(stream);
  CopyOnStream(false, stream);
}

void Exchange::CopyOnStream(bool inputs, cuda::Stream stream) const {
  for (const Copy& copy : copies_) {
    if (!copy.on_stream || copy.memory == nullptr || copy.is_input != inputs) continue;
    CONVOY_CUDA(cudaMemcpyAsync, copy.to(), copy.from(), copy.bytes, cuda::kDeviceToDevice, stream);
  }
}

}  // namespace convoy
