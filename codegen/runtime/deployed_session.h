// An instance of a deployed module on a device: input buffers, TVM's virtual machine, outputs, and
// the CUDA graphs that its runs were captured in.
#pragma once

#include <tvm/ffi/container/array.h>
#include <tvm/ffi/container/tensor.h>

#include <list>
#include <memory>

#include "deployed_module.h"

namespace convoy {

class DeployedSession {
 public:
  // Throws NoGpu, WrongDevice, InvalidOption for an index of a device that is not there.
  DeployedSession(std::shared_ptr<const DeployedModule> module, int device);

  const DeployedModule& module() const { return *module_; }

  // `stream` is a cudaStream_t, null for the default one. Throw InvalidOption for a wrong size.
  void SetInput(int index, const void* data, size_t bytes, void* stream);
  void BindInput(int index, void* data, size_t bytes);
  void Run(void* stream);
  void GetOutput(int index, void* data, size_t bytes, void* stream);
  void* OutputData(int index) const;

 private:
  struct Graph {
    std::vector<void*> inputs;
    tvm::ffi::Function launch;
    std::vector<tvm::ffi::Tensor> outputs;
  };

  bool OnGpu() const { return device_.device_type == kDLCUDA; }
  void CheckStream(void* stream) const;
  void Copy(void* to, const void* from, size_t bytes, void* stream) const;
  void Call();
  bool Replay();
  Graph& CurrentGraph();
  const tvm::ffi::Tensor& Output(int index) const;

  std::shared_ptr<const DeployedModule> module_;
  DLDevice device_;
  tvm::ffi::Module machine_;
  tvm::ffi::Function main_;
  std::vector<tvm::ffi::Tensor> inputs_, outputs_;
  std::list<Graph> graphs_;  // the latest first
  bool warm_ = false;
};

}  // namespace convoy
