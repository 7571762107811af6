// CUDA graph capture as the runtime needs to know it.
#pragma once

#include <cstdint>

#include "library.h"

namespace convoy {

// A stream and, while it is being captured, the capture. Ids are unique for the life of the
// process, 0 means that the stream is not being captured.
struct StreamState {
  cuda::Stream stream = nullptr;
  uint64_t capture_id = 0;
  cuda::Graph graph = nullptr;  // under construction; belongs to the capture

  bool capturing() const { return capture_id != 0; }
};

// Asks the driver whether `stream` is being captured. Throws RuntimeError when its capture has been
// invalidated by an earlier error.
StreamState QueryStream(cuda::Stream stream);

// Makes what is enqueued next start when all that is in the stream has ended, for kernels of a
// library that may be launched programmatically without waiting themselves. A graph gets an empty
// node; a stream gets a memory operation on `scratch`, 4 bytes on its device that nobody reads.
void WaitForPredecessors(const StreamState& stream, void* scratch);

// Lets this thread allocate device memory while a capture is under way. Legal because an allocation
// enqueues nothing: the capture neither sees it nor depends on it.
class AllocationDuringCapture {
 public:
  AllocationDuringCapture() { CONVOY_CUDA(cudaThreadExchangeStreamCaptureMode, &mode_); }
  ~AllocationDuringCapture() { Cuda().cudaThreadExchangeStreamCaptureMode(&mode_); }
  AllocationDuringCapture(const AllocationDuringCapture&) = delete;
  AllocationDuringCapture& operator=(const AllocationDuringCapture&) = delete;

 private:
  cuda::CaptureMode mode_ = cuda::kCaptureRelaxed;
};

// Calls release(object) once `graph` and everything instantiated or cloned from it is gone. The
// call comes from a thread of the driver: it must not call CUDA.
void ReleaseWithGraph(cuda::Graph graph, void* object, cuda::HostFn release);

}  // namespace convoy
