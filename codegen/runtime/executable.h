// What a backend gives the runtime: an Executable per function, thread and device, and from it a
// Prepared call per set of pointers. Launching a Prepared call is the hot path.
//
// A new backend is one file that defines these two classes and registers a BackendRuntime.
#pragma once

#include <dlpack/dlpack.h>
#include <tvm/ffi/container/map.h>
#include <tvm/ffi/string.h>

#include <array>
#include <memory>
#include <string>

#include "capture.h"
#include "workload.h"

namespace convoy {

class ThreadContext;

using BlobMap = tvm::ffi::Map<tvm::ffi::String, tvm::ffi::Bytes>;
using Pointers = std::array<void*, kMaxOperands>;  // in call order, the rest null

// One function of a module: what is to be computed and how.
struct FunctionSpec {
  std::string symbol;
  std::string backend;
  Workload workload;
  json::Object entry;      // as the backend's build wrote it
  int64_t workspace = 0;   // bytes that the candidate was recorded with; 0 where unknown
  std::string content_id;  // equal for functions that compute the same thing the same way
};

// One call with fixed pointers. Launch enqueues it and returns.
class Prepared {
 public:
  virtual ~Prepared() = default;
  virtual void Launch(const StreamState& stream) = 0;
};

// A function made runnable for one thread on one device. Never used by two threads at once.
class Executable {
 public:
  virtual ~Executable() = default;
  virtual int64_t workspace_bytes() const = 0;
  // Host work only: it may be called while a capture is under way.
  virtual std::unique_ptr<Prepared> Prepare(const Pointers& pointers, void* workspace) = 0;
};

struct BuildRequest {
  const FunctionSpec& function;
  const BlobMap& blobs;
  ThreadContext& thread;
  DLDevice device;
};

struct BackendRuntime {
  const char* name;
  bool runs_on_host;  // kDLCPU tensors make sense (the kernel library decides)
  // Checks the entry without touching a device; throws CorruptArtefact or InvalidOption.
  void (*validate)(const FunctionSpec& function, const BlobMap& blobs);
  std::unique_ptr<Executable> (*build)(const BuildRequest& request);
};

void RegisterBackend(const BackendRuntime& backend);
// Throws InvalidOption listing the registered names.
const BackendRuntime& FindBackend(const std::string& name);

}  // namespace convoy
