#include "workspace.h"

#include <tvm/ffi/error.h>

#include <cstdlib>
#include <mutex>
#include <vector>

#include "library.h"

namespace convoy {
namespace {

// What cudaMalloc hands out in any case for larger requests.
constexpr size_t kGranularity = size_t{2} << 20;

struct Pool {
  std::mutex mutex;
  std::vector<WorkspaceBlock> idle;
  size_t allocated = 0;
};

Pool& ThePool() {
  static Pool* pool = new Pool;  // outlives every thread that may release a block
  return *pool;
}

bool Same(DLDevice a, DLDevice b) {
  return a.device_type == b.device_type && a.device_id == b.device_id;
}

}  // namespace

WorkspaceBlock AcquireWorkspace(DLDevice device, size_t bytes) {
  bytes = (bytes + kGranularity - 1) / kGranularity * kGranularity;
  Pool& pool = ThePool();
  {
    std::lock_guard<std::mutex> lock(pool.mutex);
    auto best = pool.idle.end();
    for (auto it = pool.idle.begin(); it != pool.idle.end(); ++it) {
      bool fits = Same(it->device, device) && it->bytes >= bytes && it->bytes <= 4 * bytes;
      if (fits && (best == pool.idle.end() || it->bytes < best->bytes)) best = it;
    }
    if (best != pool.idle.end()) {
      WorkspaceBlock block = *best;
      pool.idle.erase(best);
      return block;
    }
  }
  // Allocated without the lock: a release may come from a thread of the driver that cudaMalloc
  // waits for.
  WorkspaceBlock block{device, nullptr, bytes};
  if (device.device_type == kDLCPU) {
    block.data = std::aligned_alloc(256, bytes);
    if (block.data == nullptr) TVM_FFI_THROW(RuntimeError) << "no memory for " << bytes << " bytes";
  } else {
    cuda::Error error = Cuda().cudaMalloc(&block.data, bytes);
    if (error == cuda::kOutOfMemory) {
      Cuda().cudaGetLastError();
      TVM_FFI_THROW(RuntimeError) << "GPU " << device.device_id << " has no memory left for "
                                  << bytes
                                  << " bytes of workspace. Build with a smaller workspace "
                                     "limit or free memory on the device";
    }
    CheckCuda(error, "cudaMalloc");
  }
  std::lock_guard<std::mutex> lock(pool.mutex);
  pool.allocated += bytes;
  return block;
}

void ReleaseWorkspace(const WorkspaceBlock& block) {
  Pool& pool = ThePool();
  std::lock_guard<std::mutex> lock(pool.mutex);
  pool.idle.push_back(block);
}

void WorkspaceStatistics(size_t* allocated, size_t* idle) {
  Pool& pool = ThePool();
  std::lock_guard<std::mutex> lock(pool.mutex);
  *allocated = pool.allocated;
  *idle = 0;
  for (const WorkspaceBlock& block : pool.idle) *idle += block.bytes;
}

}  // namespace convoy
