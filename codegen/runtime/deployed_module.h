// A compiled network as export_library wrote it: loaded, with its description.
#pragma once

#include <tvm/ffi/extra/module.h>

#include <string>
#include <vector>

#include "json_fields.h"

namespace convoy {

struct TensorSpec {
  std::string name, dtype_name;
  std::vector<int64_t> shape;
  DLDataType dtype;
  size_t bytes = 0;
};

struct DeployedModule {
  tvm::ffi::Module module;
  std::vector<TensorSpec> inputs, outputs;
  std::string target;       // "cuda" or "llvm"
  bool cuda_graph = false;  // sessions capture the whole function and replay it
  int arch = 0;             // compute capability times ten; 0 for any
};

// Throws CorruptArtefact for anything but a whole module, LibraryMissing where TVM's runtime (or
// for a GPU its CUDA part) is not found.
DeployedModule LoadDeployedModule(const void* data, size_t size);
// Also CorruptArtefact where the file cannot be read.
DeployedModule LoadDeployedModule(const std::string& path);

}  // namespace convoy
