// Per-thread state of the runtime: cuDNN handles, executables, workspaces and prepared calls.
//
// Nothing here is shared between threads, so the hot path takes no lock:
//
//   - A cuDNN handle belongs to one (thread, device); cudnnSetStream is called when the stream
//     differs from the last one. Execution plans are private to a thread, because cuDNN does not
//     allow two threads to execute one plan at a time.
//   - A workspace belongs to one (thread, device, stream, capture), a "lane". Calls of one thread
//     on one stream are ordered and may share it. Two threads on one stream may not: their launches
//     interleave, and a call may consist of several kernels.
//   - Inside a CUDA graph capture each stream gets a lane of that capture. The captured kernels
//     keep its memory for as long as the graph exists, so a replay on any stream never meets an
//     eager call or another graph in it. The graph owns the memory (ReleaseWithGraph). Allocating
//     it is legal during capture; building a plan or a handle is not, hence a function must have
//     been called or prepared once in the capturing thread before. That is what the Relax VM does:
//     one eager call, then a capture on a stream of its own.
//
// When a thread ends, its context goes to the next thread that starts, with all that it holds, so a
// program with short-lived threads builds each plan a bounded number of times. Handles and plans
// are never destroyed: cuDNN must not be called any more while the process ends.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "call_cache.h"
#include "executable.h"
#include "stream_pool.h"
#include "workspace.h"

namespace convoy {

// A place in every thread's table of call caches. Freed places are used again under a new
// generation, by which a thread sees that what it cached there is stale.
class FunctionSlot {
 public:
  FunctionSlot();
  ~FunctionSlot();
  FunctionSlot(const FunctionSlot&) = delete;
  FunctionSlot& operator=(const FunctionSlot&) = delete;

  const uint32_t index;
  const uint64_t generation;
};

// A cuDNN handle and the stream that it is set to.
class CudnnHandle {
 public:
  // `scratch`: 4 bytes on the handle's device that nobody reads.
  CudnnHandle(cudnn::Handle handle, void* scratch) : handle_(handle), scratch_(scratch) {}
  cudnn::Handle get() const { return handle_; }
  // The handle, set to `stream`, where its kernels start when all that is in the stream has ended.
  // The first kernel of a Hopper convolution (init_device_workspace_kernel of cuDNN 9.19) is
  // launched programmatically and does not wait, and the second one waits for the first alone:
  // behind a kernel that lets its successor start early they would read what is not written yet.
  cudnn::Handle Behind(const StreamState& stream);

 private:
  cudnn::Handle handle_;
  void* scratch_;
  bool set_ = false;
  cuda::Stream stream_ = nullptr;
  uint64_t capture_id_ = 0;
};

class ThreadContext {
 public:
  static ThreadContext& Current();

  // Created on first use; throws CaptureNotReady while `stream` is being captured.
  CudnnHandle& Cudnn(int device);

  // 4 bytes on a device that nobody reads, for WaitForPredecessors.
  void* Scratch(int device);

  // Streams and events for scheduled functions on a device.
  StreamPool& Streams(int device) { return streams_.try_emplace(device, device).first->second; }

  // Built on first use; throws CaptureNotReady when it is not there and `stream` is being captured.
  Executable& GetExecutable(const FunctionSpec& function, const BlobMap& blobs, DLDevice device,
                            const StreamState& stream);

  // Memory of at least `bytes` for calls on `stream`; null for 0. A new lane gets at least
  // `reserve` bytes, so that it need not grow with each larger function of the same module.
  void* Workspace(DLDevice device, const StreamState& stream, size_t bytes, size_t reserve);

  CallCache& Calls(const FunctionSlot& slot) {
    if (slot.index < calls_.size()) {
      CachedCalls& calls = calls_[slot.index];
      if (calls.generation == slot.generation && calls.epoch == epoch_) return *calls.cache;
    }
    return RenewCalls(slot);
  }

 private:
  struct CachedCalls {
    uint64_t generation = 0;
    uint64_t epoch = 0;
    std::unique_ptr<CallCache> cache;
  };
  struct Lane {
    std::vector<WorkspaceBlock> blocks;  // the last one is the largest and in use
    uint64_t order = 0;
  };
  using LaneKey = std::tuple<int, int, cuda::Stream, uint64_t>;

  CallCache& RenewCalls(const FunctionSlot& slot);
  void DropOldLanes();

  std::map<int, CudnnHandle> handles_;
  std::map<int, void*> scratch_;
  std::map<int, StreamPool> streams_;
  std::unordered_map<std::string, std::unique_ptr<Executable>> executables_;
  std::map<LaneKey, Lane> lanes_;
  std::vector<CachedCalls> calls_;
  uint64_t epoch_ = 1;  // raised when workspaces are taken away from prepared calls
  uint64_t lane_order_ = 0;
};

}  // namespace convoy
