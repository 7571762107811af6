// A CUDA graph, ready to be launched.
#pragma once

#include <functional>

#include "library.h"

namespace convoy {

// cudaDeviceSynchronize, for which captures of other threads are waited for: a device cannot be
// synchronised while one of its streams is captured, and the attempt invalidates that capture.
cuda::Error SynchronizeDevice();

// Lets this thread allocate and free while a stream is captured, which captures in the modes
// "global" and "thread local" forbid.
class RelaxedCapture {
 public:
  RelaxedCapture() { Cuda().cudaThreadExchangeStreamCaptureMode(&mode_); }
  ~RelaxedCapture() { Cuda().cudaThreadExchangeStreamCaptureMode(&mode_); }
  RelaxedCapture(const RelaxedCapture&) = delete;
  RelaxedCapture& operator=(const RelaxedCapture&) = delete;

 private:
  cuda::CaptureMode mode_ = cuda::kCaptureRelaxed;
};

class CapturedGraph {
 public:
  // Takes over a graph that the caller puts together and instantiates.
  explicit CapturedGraph(cuda::Graph graph) : graph_(graph) {}
  // Captures what `enqueue` puts on `stream`, side streams that it forks and joins included. Throws
  // what `enqueue` throws; the stream has left capture mode then.
  CapturedGraph(cuda::Stream stream, cuda::CaptureMode mode, const std::function<void()>& enqueue);
  ~CapturedGraph();
  CapturedGraph(const CapturedGraph&) = delete;
  CapturedGraph& operator=(const CapturedGraph&) = delete;

  void Instantiate() { CONVOY_CUDA(cudaGraphInstantiate, &exec_, graph_, 0); }
  void Launch(cuda::Stream stream) const { CONVOY_CUDA(cudaGraphLaunch, exec_, stream); }
  cuda::Graph graph() const { return graph_; }
  cuda::GraphExec exec() const { return exec_; }

 private:
  cuda::Graph graph_ = nullptr;
  cuda::GraphExec exec_ = nullptr;
};

}  // namespace convoy
