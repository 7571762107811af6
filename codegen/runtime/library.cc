#include "library.h"

#include <dlfcn.h>
#include <tvm/ffi/error.h>

#include <atomic>
#include <cstdlib>
#include <mutex>
#include <vector>

namespace convoy {
namespace {

struct Paths {
  std::string cudart, cudnn, cublaslt;
};

std::mutex& Mutex() {
  static std::mutex* mutex = new std::mutex;
  return *mutex;
}

Paths& ConfiguredPaths() {
  static Paths* paths = new Paths;
  return *paths;
}

std::string Environment(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

std::string DirectoryOf(const std::string& path) {
  size_t slash = path.rfind('/');
  return slash == std::string::npos ? "" : path.substr(0, slash);
}

// Opens the first of `candidates` that can be opened. Throws LibraryMissing if there is none, with
// `missing`, which names the library and the way to install it, and the linker's errors.
void* OpenFirst(const std::vector<std::string>& candidates, std::string* path,
                const std::string& missing) {
  std::string tried;
  for (const std::string& candidate : candidates) {
    if (candidate.empty()) continue;
    if (void* library = dlopen(candidate.c_str(), RTLD_NOW | RTLD_LOCAL)) {
      *path = candidate;
      return library;
    }
    const char* reason = dlerror();
    tried += std::string("\n  ") + (reason ? reason : candidate.c_str());
  }
  TVM_FFI_THROW(LibraryMissing) << missing << " Tried:" << tried;
}

void* Symbol(void* library, const char* name, const std::string& path) {
  void* symbol = dlsym(library, name);
  if (symbol == nullptr) {
    TVM_FFI_THROW(LibraryMissing) << path << " has no function " << name
                                  << ": it is too old or not the library that it is named after";
  }
  return symbol;
}

CudaApi* OpenCuda() {
  auto api = std::make_unique<CudaApi>();
  void* library =
      OpenFirst({ConfiguredPaths().cudart, Environment("CONVOY_CUDART"), "libcudart.so.13",
                 "/usr/local/cuda/lib64/libcudart.so.13"},
                &api->path,
                "the CUDA 13 runtime (libcudart.so.13) was not found. Install it with "
                "`pip install \"nvidia-cuda-runtime>=13,<14\"` or set CONVOY_CUDART to its path.");
#define CONVOY_RESOLVE(name, arguments) \
  api->name = reinterpret_cast<decltype(api->name)>(Symbol(library, #name, api->path));
  CONVOY_CUDART_FUNCTIONS(CONVOY_RESOLVE)
#undef CONVOY_RESOLVE
  api->cudaGetErrorString = reinterpret_cast<decltype(api->cudaGetErrorString)>(
      Symbol(library, "cudaGetErrorString", api->path));
  return api.release();
}

// cuDNN ends the process when it cannot load cuBLASLt, so that is opened before cuDNN is asked
// anything. cuDNN's own search then finds the copy that is loaded already.
void OpenCublasLtFor(const CudnnApi& cudnn) {
  std::string name =
      "libcublasLt.so." + std::to_string(static_cast<int>(cudnn.cudnnGetCudartVersion() / 1000));
  std::string near = DirectoryOf(cudnn.path);
  std::vector<std::string> candidates = {ConfiguredPaths().cublaslt, name};
  if (!near.empty()) {
    for (const char* sibling : {"/../../cu13/lib/", "/../../cublas/lib/", "/"}) {
      candidates.push_back(near + sibling + name);
    }
  }
  std::string path;
  std::string package = name.back() == '2' ? "nvidia-cublas-cu12" : "nvidia-cublas";
  OpenFirst(candidates, &path,
            "cuDNN at " + cudnn.path + " needs " + name +
                ", which was not found. Install it with `pip install " + package + "`.");
}

CudnnApi* OpenCudnn() {
  auto api = std::make_unique<CudnnApi>();
  void* library =
      OpenFirst({ConfiguredPaths().cudnn, Environment("CONVOY_CUDNN"), "libcudnn.so.9"}, &api->path,
                "cuDNN 9 (libcudnn.so.9) was not found. Install it with "
                "`pip install nvidia-cudnn-cu13` or set CONVOY_CUDNN to its path.");
#define CONVOY_RESOLVE(result, name, arguments) \
  api->name = reinterpret_cast<decltype(api->name)>(Symbol(library, #name, api->path));
  CONVOY_CUDNN_FUNCTIONS(CONVOY_RESOLVE)
#undef CONVOY_RESOLVE
  OpenCublasLtFor(*api);
  api->version = static_cast<int>(api->cudnnGetVersion());
  return api.release();
}

CublasLtApi* OpenCublasLt() {
  auto api = std::make_unique<CublasLtApi>();
  std::string name = "libcublasLt.so.13";
  std::string near = DirectoryOf(Cuda().path);
  void* library = OpenFirst(
      {ConfiguredPaths().cublaslt, name, near.empty() ? "" : near + "/" + name}, &api->path,
      "cuBLASLt (libcublasLt.so.13) was not found. Install it with "
      "`pip install \"nvidia-cublas>=13,<14\"` or set CONVOY_CUBLASLT to its path.");
#define CONVOY_RESOLVE(result, name, arguments) \
  api->name = reinterpret_cast<decltype(api->name)>(Symbol(library, #name, api->path));
  CONVOY_CUBLASLT_FUNCTIONS(CONVOY_RESOLVE)
#undef CONVOY_RESOLVE
  api->version = static_cast<int64_t>(api->cublasLtGetVersion());
  return api.release();
}

// Opens once and keeps the result for good; after a failure the next call tries again.
template <typename Api>
const Api& OpenOnce(std::atomic<Api*>* slot, Api* (*open)()) {
  Api* api = slot->load(std::memory_order_acquire);
  if (api == nullptr) {
    std::lock_guard<std::mutex> lock(Mutex());
    api = slot->load(std::memory_order_relaxed);
    if (api == nullptr) {
      api = open();
      slot->store(api, std::memory_order_release);
    }
  }
  return *api;
}

}  // namespace

void ConfigureLibraries(const std::string& cudart, const std::string& cudnn,
                        const std::string& cublaslt) {
  std::lock_guard<std::mutex> lock(Mutex());
  Paths& paths = ConfiguredPaths();
  if (!cudart.empty()) paths.cudart = cudart;
  if (!cudnn.empty()) paths.cudnn = cudnn;
  if (!cublaslt.empty()) paths.cublaslt = cublaslt;
}

const CudaApi& Cuda() {
  static std::atomic<CudaApi*> api{nullptr};
  return OpenOnce(&api, OpenCuda);
}

const CudnnApi& Cudnn() {
  static std::atomic<CudnnApi*> api{nullptr};
  return OpenOnce(&api, OpenCudnn);
}

const CublasLtApi& CublasLt() {
  static std::atomic<CublasLtApi*> api{nullptr};
  Cuda();  // looked for beside it, and opened under the same lock
  return OpenOnce(&api, OpenCublasLt);
}

bool HasCudaDriver() {
  static const bool found = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL) != nullptr;
  return found;
}

void CheckCuda(cuda::Error error, const char* what) {
  if (error == cuda::kSuccess) return;
  const CudaApi& api = Cuda();
  api.cudaGetLastError();  // so that the next caller does not see this error as its own
  std::string text = api.cudaGetErrorString(error);
  switch (error) {
    case cuda::kNoDevice:
    case cuda::kInvalidDevice:
    case cuda::kInsufficientDriver:
    case cuda::kStubLibrary:
      TVM_FFI_THROW(NoGpu) << what << ": " << text
                           << ". A CUDA 13 driver (580 or later) and an NVIDIA GPU are needed";
    default:
      TVM_FFI_THROW(RuntimeError) << what << " failed: " << text << " (CUDA error " << error << ")";
  }
}

std::string CudnnError(cudnn::Status status) {
  const CudnnApi& api = Cudnn();
  char message[512] = {0};
  api.cudnnGetLastErrorString(message, sizeof(message));
  std::string text = api.cudnnGetErrorString(status);
  if (message[0] != '\0') text += std::string(": ") + message;
  return text;
}

}  // namespace convoy
