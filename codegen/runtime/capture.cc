#include "capture.h"

#include <tvm/ffi/error.h>

namespace convoy {

StreamState QueryStream(cuda::Stream stream) {
  const CudaApi& api = Cuda();
  StreamState state;
  state.stream = stream;
  cuda::CaptureStatus status = cuda::kNotCapturing;
  unsigned long long id = 0;
  cuda::Error error =
      api.cudaStreamGetCaptureInfo(stream, &status, &id, &state.graph, nullptr, nullptr, nullptr);
  if (error == cuda::kCaptureImplicit) {
    // The legacy stream while another stream is captured: it takes no part in that capture, and a
    // launch on it will fail with the driver's own words.
    api.cudaGetLastError();
    return state;
  }
  CheckCuda(error, "cudaStreamGetCaptureInfo");
  if (status == cuda::kCaptureInvalidated) {
    TVM_FFI_THROW(RuntimeError) << "the CUDA graph capture of this stream was invalidated by an "
                                   "earlier error; end it and capture again";
  }
  state.capture_id = status == cuda::kCapturing ? id : 0;
  return state;
}

void WaitForPredecessors(const StreamState& stream, void* scratch) {
  if (!stream.capturing()) {
    CONVOY_CUDA(cudaMemsetAsync, scratch, 0, sizeof(int), stream.stream);
    return;
  }
  cuda::CaptureStatus status = cuda::kNotCapturing;
  unsigned long long id = 0;
  cuda::Graph graph = nullptr;
  const cuda::GraphNode* predecessors = nullptr;
  size_t count = 0;
  CONVOY_CUDA(cudaStreamGetCaptureInfo, stream.stream, &status, &id, &graph, &predecessors, nullptr,
              &count);
  if (count == 0) return;
  cuda::GraphNode node = nullptr;
  CONVOY_CUDA(cudaGraphAddEmptyNode, &node, graph, predecessors, count);
  CONVOY_CUDA(cudaStreamUpdateCaptureDependencies, stream.stream, &node, nullptr, 1,
              cuda::kSetCaptureDependencies);
}

void ReleaseWithGraph(cuda::Graph graph, void* object, cuda::HostFn release) {
  cuda::UserObject handle = nullptr;
  CONVOY_CUDA(cudaUserObjectCreate, &handle, object, release, 1, cuda::kUserObjectNoDestructorSync);
  cuda::Error error =
      Cuda().cudaGraphRetainUserObject(graph, handle, 1, cuda::kGraphUserObjectMove);
  if (error != cuda::kSuccess) {
    Cuda().cudaUserObjectRelease(handle, 1);  // calls release
    CheckCuda(error, "cudaGraphRetainUserObject");
  }
}

}  // namespace convoy
