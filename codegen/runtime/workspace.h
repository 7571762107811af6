// Device memory for workspaces, kept for reuse and never given back to the driver: freeing would
// synchronise the device, and at process exit the driver may be gone already.
#pragma once

#include <dlpack/dlpack.h>

#include <cstddef>

namespace convoy {

struct WorkspaceBlock {
  DLDevice device = {kDLCPU, 0};
  void* data = nullptr;
  size_t bytes = 0;
};

// A block of at least `bytes`, from the free list or newly allocated on `device`, 256-byte aligned.
// Throws RuntimeError when the device has no memory left. The caller makes sure that it may
// allocate (see AllocationDuringCapture).
WorkspaceBlock AcquireWorkspace(DLDevice device, size_t bytes);

// Puts a block on the free list. No work that uses it may be pending. Calls no CUDA function.
void ReleaseWorkspace(const WorkspaceBlock& block);

// Bytes allocated so far and bytes on the free list, over all devices.
void WorkspaceStatistics(size_t* allocated, size_t* idle);

}  // namespace convoy
