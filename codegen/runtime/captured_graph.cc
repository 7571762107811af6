#include "captured_graph.h"

namespace convoy {

CapturedGraph::CapturedGraph(cuda::Stream stream, cuda::CaptureMode mode,
                             const std::function<void()>& enqueue) {
  const CudaApi& api = Cuda();
  CONVOY_CUDA(cudaStreamBeginCapture, stream, mode);
  try {
    enqueue();
  } catch (...) {
    // The stream must leave capture mode whatever happened.
    if (api.cudaStreamEndCapture(stream, &graph_) == cuda::kSuccess && graph_) {
      api.cudaGraphDestroy(graph_);
    }
    api.cudaGetLastError();
    throw;
  }
  CONVOY_CUDA(cudaStreamEndCapture, stream, &graph_);
  cuda::Error error = api.cudaGraphInstantiate(&exec_, graph_, 0);
  if (error != cuda::kSuccess) api.cudaGraphDestroy(graph_);
  CheckCuda(error, "cudaGraphInstantiate");
}

CapturedGraph::~CapturedGraph() {
  if (exec_) Cuda().cudaGraphExecDestroy(exec_);
  if (graph_) Cuda().cudaGraphDestroy(graph_);
}

}  // namespace convoy
