#include "captured_graph.h"

#include <chrono>
#include <mutex>
#include <shared_mutex>

namespace convoy {
namespace {

// Held shared by whoever captures, alone by whoever synchronises a device.
std::shared_timed_mutex& Captures() {
  static auto* mutex = new std::shared_timed_mutex;
  return *mutex;
}

thread_local int captures_of_this_thread = 0;

class Capturing {
 public:
  Capturing() {
    if (captures_of_this_thread++ == 0) Captures().lock_shared();
  }
  ~Capturing() {
    if (--captures_of_this_thread == 0) Captures().unlock_shared();
  }
  Capturing(const Capturing&) = delete;
  Capturing& operator=(const Capturing&) = delete;
};

}  // namespace

cuda::Error SynchronizeDevice() {
  if (captures_of_this_thread > 0) return Cuda().cudaDeviceSynchronize();
  // A capture takes milliseconds. One that waits for something that the caller holds, such as the
  // interpreter's lock, is not waited for for ever.
  std::unique_lock<std::shared_timed_mutex> lock(Captures(), std::chrono::seconds(2));
  return Cuda().cudaDeviceSynchronize();
}

CapturedGraph::CapturedGraph(cuda::Stream stream, cuda::CaptureMode mode,
                             const std::function<void()>& enqueue) {
  const CudaApi& api = Cuda();
  Capturing capturing;
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
