#include "context.h"

#include <algorithm>
#include <mutex>

#include "captured_graph.h"

namespace convoy {
namespace {

// Lanes that a thread keeps: more streams than this in use at a time cost a synchronisation
// whenever another one comes along.
constexpr size_t kMaxLanes = 64;

struct Registry {
  std::mutex mutex;
  std::vector<ThreadContext*> idle_contexts;
  std::vector<uint32_t> free_slots;
  uint32_t slots = 0;
  uint64_t generations = 0;
};

Registry& TheRegistry() {
  static Registry* registry = new Registry;
  return *registry;
}

// Hands the context on at thread exit without calling CUDA.
struct ContextHolder {
  ThreadContext* context = nullptr;
  ~ContextHolder() {
    if (context == nullptr) return;
    Registry& registry = TheRegistry();
    std::lock_guard<std::mutex> lock(registry.mutex);
    registry.idle_contexts.push_back(context);
  }
};

uint32_t TakeSlot() {
  Registry& registry = TheRegistry();
  std::lock_guard<std::mutex> lock(registry.mutex);
  if (registry.free_slots.empty()) return registry.slots++;
  uint32_t slot = registry.free_slots.back();
  registry.free_slots.pop_back();
  return slot;
}

uint64_t NextGeneration() {
  Registry& registry = TheRegistry();
  std::lock_guard<std::mutex> lock(registry.mutex);
  return ++registry.generations;
}

}  // namespace

FunctionSlot::FunctionSlot() : index(TakeSlot()), generation(NextGeneration()) {}

FunctionSlot::~FunctionSlot() {
  Registry& registry = TheRegistry();
  std::lock_guard<std::mutex> lock(registry.mutex);
  registry.free_slots.push_back(index);
}

cudnn::Handle CudnnHandle::Behind(const StreamState& stream) {
  WaitForPredecessors(stream, scratch_);
  if (!set_ || stream_ != stream.stream || capture_id_ != stream.capture_id) {
    cudnn::Status status = ::convoy::Cudnn().cudnnSetStream(handle_, stream.stream);
    if (status != cudnn::kSuccess) {
      TVM_FFI_THROW(RuntimeError) << "cudnnSetStream failed: " << CudnnError(status);
    }
    set_ = true;
    stream_ = stream.stream;
    capture_id_ = stream.capture_id;
  }
  return handle_;
}

ThreadContext& ThreadContext::Current() {
  static thread_local ContextHolder holder;
  if (holder.context == nullptr) {
    Registry& registry = TheRegistry();
    std::lock_guard<std::mutex> lock(registry.mutex);
    if (registry.idle_contexts.empty()) {
      holder.context = new ThreadContext;
    } else {
      holder.context = registry.idle_contexts.back();
      registry.idle_contexts.pop_back();
    }
  }
  return *holder.context;
}

CudnnHandle& ThreadContext::Cudnn(int device) {
  auto it = handles_.find(device);
  if (it == handles_.end()) {
    const CudnnApi& api = ::convoy::Cudnn();
    DeviceGuard guard(device);
    cudnn::Handle handle = nullptr;
    cudnn::Status status = api.cudnnCreate(&handle);
    if (status != cudnn::kSuccess) {
      TVM_FFI_THROW(RuntimeError) << "cudnnCreate on GPU " << device
                                  << " failed: " << CudnnError(status);
    }
    it = handles_.emplace(device, CudnnHandle(handle, Scratch(device))).first;
  }
  return it->second;
}

void* ThreadContext::Scratch(int device) {
  void*& scratch = scratch_[device];
  if (scratch == nullptr) {
    DeviceGuard guard(device);
    CONVOY_CUDA(cudaMalloc, &scratch, sizeof(int));
  }
  return scratch;
}

Executable& ThreadContext::GetExecutable(const FunctionSpec& function, const BlobMap& blobs,
                                         DLDevice device, const StreamState& stream) {
  std::string key = function.content_id + "@" + std::to_string(device.device_type) + ":" +
                    std::to_string(device.device_id);
  auto it = executables_.find(key);
  if (it == executables_.end()) {
    if (stream.capturing()) {
      TVM_FFI_THROW(CaptureNotReady)
          << "function '" << function.symbol
          << "' is captured into a CUDA graph before it was made ready in this thread. "
             "Call it once outside of the capture, or call the module's function convoy_prepare";
    }
    std::unique_ptr<Executable> built =
        FindBackend(function.backend).build({function, blobs, *this, device});
    it = executables_.emplace(std::move(key), std::move(built)).first;
  }
  return *it->second;
}

void* ThreadContext::Workspace(DLDevice device, const StreamState& stream, size_t bytes,
                               size_t reserve) {
  if (bytes == 0) return nullptr;
  LaneKey key(device.device_type, device.device_id, stream.stream, stream.capture_id);
  auto it = lanes_.find(key);
  if (it != lanes_.end() && it->second.blocks.back().bytes >= bytes) {
    return it->second.blocks.back().data;
  }
  size_t wanted = std::max(bytes, reserve);
  if (stream.capturing()) {
    AllocationDuringCapture allowed;
    auto* block = new WorkspaceBlock(AcquireWorkspace(device, wanted));
    ReleaseWithGraph(stream.graph, block, [](void* object) {
      auto* block = static_cast<WorkspaceBlock*>(object);
      ReleaseWorkspace(*block);
      delete block;
    });
    // Entries of captures that have ended are never looked up again.
    for (auto lane = lanes_.begin(); lane != lanes_.end();) {
      uint64_t capture = std::get<3>(lane->first);
      lane = capture != 0 && capture != stream.capture_id ? lanes_.erase(lane) : std::next(lane);
    }
    Lane& lane = lanes_[key];
    lane.blocks.push_back(*block);
    return block->data;
  }
  if (it == lanes_.end() && lanes_.size() >= kMaxLanes) DropOldLanes();
  // The smaller block of a lane that grows stays: prepared calls point to it.
  WorkspaceBlock block = AcquireWorkspace(device, wanted);
  Lane& lane = lanes_[key];
  lane.blocks.push_back(block);
  lane.order = ++lane_order_;
  return block.data;
}

void ThreadContext::DropOldLanes() {
  std::vector<uint64_t> orders;
  for (const auto& [key, lane] : lanes_) {
    if (std::get<3>(key) == 0) orders.push_back(lane.order);
  }
  if (orders.empty()) return;
  std::nth_element(orders.begin(), orders.begin() + orders.size() / 2, orders.end());
  uint64_t limit = orders[orders.size() / 2];
  for (auto it = lanes_.begin(); it != lanes_.end();) {
    if (std::get<3>(it->first) != 0 || it->second.order > limit) {
      ++it;
      continue;
    }
    if (std::get<0>(it->first) == kDLCUDA) {
      // The stream may be gone, so the device is waited for.
      DeviceGuard guard(std::get<1>(it->first));
      CheckCuda(SynchronizeDevice(), "cudaDeviceSynchronize");
    }
    for (const WorkspaceBlock& block : it->second.blocks) ReleaseWorkspace(block);
    it = lanes_.erase(it);
  }
  ++epoch_;
}

CallCache& ThreadContext::RenewCalls(const FunctionSlot& slot) {
  if (slot.index >= calls_.size()) calls_.resize(slot.index + 1);
  CachedCalls& calls = calls_[slot.index];
  if (calls.cache) {
    calls.cache->Clear();
  } else {
    calls.cache = std::make_unique<CallCache>();
  }
  calls.generation = slot.generation;
  calls.epoch = epoch_;
  return *calls.cache;
}

}  // namespace convoy
