#include "captured_graph.h"

#include <chrono>
#include <map>
#include <mutex>
#include <shared_mutex>
#include <utility>
#include <vector>

#include "implied_edges.h"

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

// Graphs of more nodes keep edges that others imply: what is before a node is a bit for each other.
constexpr size_t kMostNodes = 20'000;  // 50 MB

// Removes the edges that others imply: a kernel on a side stream follows the last one there and the
// event that it waits for, which often is behind that one. Each such edge takes 0 to 1 us (H200,
// CUDA 13.0; docs/lab/streams.md). Kernels with programmatic edges wait for their predecessors
// before they end, so that a path of such edges is as good as a full one.
void RemoveImpliedEdges(cuda::Graph graph) {
  size_t count = 0;
  CONVOY_CUDA(cudaGraphGetEdges, graph, nullptr, nullptr, nullptr, &count);
  std::vector<cuda::GraphNode> from(count), to(count);
  std::vector<cuda::EdgeData> data(count);
  CONVOY_CUDA(cudaGraphGetEdges, graph, from.data(), to.data(), data.data(), &count);
  std::map<cuda::GraphNode, size_t> numbers;
  auto number = [&](cuda::GraphNode node) {
    return numbers.emplace(node, numbers.size()).first->second;
  };
  std::vector<std::pair<size_t, size_t>> edges;
  for (size_t i = 0; i < count; ++i) {
    size_t source = number(from[i]);
    edges.emplace_back(source, number(to[i]));
  }
  if (numbers.size() > kMostNodes) return;
  for (size_t i : ImpliedEdges(numbers.size(), edges)) {
    CONVOY_CUDA(cudaGraphRemoveDependencies, graph, &from[i], &to[i], &data[i], 1);
  }
}

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
  try {
    RemoveImpliedEdges(graph_);
    Instantiate();
  } catch (...) {
    api.cudaGraphDestroy(graph_);
    throw;
  }
}

CapturedGraph::~CapturedGraph() {
  if (exec_) Cuda().cudaGraphExecDestroy(exec_);
  if (graph_) Cuda().cudaGraphDestroy(graph_);
}

}  // namespace convoy
