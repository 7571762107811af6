// One function of a module as the Relax VM calls it: tensors in, outputs last, on the current
// stream.
#pragma once

#include <tvm/ffi/function.h>

#include <memory>
#include <vector>

#include "context.h"
#include "executable.h"

namespace convoy {

// What all functions of a module share.
struct ModuleData {
  std::string spec, meta;
  BlobMap blobs;
  int arch = 0;           // compute capability times ten; 0: host memory
  int64_t workspace = 0;  // largest of its functions
  std::vector<FunctionSpec> functions;
};

// Throws WrongDevice when `device` is not of the architecture that the module was built for.
void CheckDevice(const ModuleData& module, DLDevice device);

class ConvoyFunction {
 public:
  ConvoyFunction(std::shared_ptr<const ModuleData> module, const FunctionSpec& spec)
      : module_(std::move(module)), spec_(spec) {}

  // Enqueues the function on the current stream of the tensors' device. Tensors are of the workload's
  // operand shapes, row strides and types, 16-byte aligned. Throws TypeError or ValueError where
  // they are not.
  void Call(tvm::ffi::PackedArgs args);

  // Builds what a call on `device` in this thread needs, workspace for the current stream included.
  void Prepare(DLDevice device);

  const FunctionSpec& spec() const { return spec_; }

 private:
  DLDevice ReadArguments(tvm::ffi::PackedArgs args, Pointers* pointers) const;
  Prepared* PrepareCall(ThreadContext& thread, DLDevice device, const StreamState& stream,
                        uint64_t hash, const CallKey& key);

  std::shared_ptr<const ModuleData> module_;
  const FunctionSpec& spec_;  // element of module_
  FunctionSlot slot_;
};

}  // namespace convoy
