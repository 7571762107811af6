#include "executable.h"

#include <vector>

namespace convoy {
namespace {

std::vector<BackendRuntime>& Backends() {
  static auto* backends = new std::vector<BackendRuntime>;
  return *backends;
}

}  // namespace

void RegisterBackend(const BackendRuntime& backend) { Backends().push_back(backend); }

const BackendRuntime& FindBackend(const std::string& name) {
  std::string known;
  for (const BackendRuntime& backend : Backends()) {
    if (name == backend.name) return backend;
    known += (known.empty() ? "" : ", ") + std::string(backend.name);
  }
  TVM_FFI_THROW(InvalidOption) << "backend '" << name << "'; the runtime has " << known;
}

}  // namespace convoy
