// A captured call between copies from and to a caller's memory, all of it one graph. Setting the
// addresses that changed and launching it costs the host less than copies on a stream do, and the
// device goes from a copy to the call without a gap.
#pragma once

#include <memory>
#include <vector>

#include "captured_graph.h"
#include "tensors.h"

namespace convoy {

class Exchange {
 public:
  // Of the graph of a call and of the tensors on the current device that it reads and writes. The
  // graph is copied; the tensors must outlive this.
  Exchange(cuda::Graph call, const std::vector<tvm::ffi::Tensor>& inputs,
           const std::vector<tvm::ffi::Tensor>& outputs);

  // How many copies there are: one for each input, then one for each output.
  size_t size() const { return copies_.size(); }

  // Sets where the caller's memory of a copy is. What is the tensor itself, or has no bytes, is not
  // copied.
  void SetMemory(size_t copy, char* memory, size_t bytes);

  void Launch(cuda::Stream stream) const;

 private:
  struct Copy {
    char* tensor;
    size_t size;  // bytes of the tensor
    bool is_input;
    cuda::GraphNode node = nullptr;  // none for a tensor without elements
    char* memory = nullptr;          // null while nothing is copied
    size_t bytes = 0;
    // The driver does not let a node change from memory of cudaMalloc to memory of a pool or of
    // mapped segments: such a copy is put on the stream.
    bool on_stream = false;
    bool enabled = false;  // the node

    char* to() const { return is_input ? tensor : memory; }
    const char* from() const { return is_input ? memory : tensor; }
  };

  void AddNode(cuda::Graph graph, const std::vector<cuda::GraphNode>& predecessors, Copy* copy);
  void CopyOnStream(bool inputs, cuda::Stream stream) const;

  std::vector<Copy> copies_;
  std::unique_ptr<CapturedGraph> graph_;
};

}  // namespace convoy
