// CUDA's runtime, cuDNN and cuBLASLt, opened when first needed: neither is a link dependency, and a
// module can be loaded and inspected on a machine that has none of them.
//
// Each is looked for at the path that Configure was given, then in the environment variable
// (CONVOY_CUDART, CONVOY_CUDNN), then by its soname the way the dynamic linker does, which finds
// what the process has loaded already and LD_LIBRARY_PATH; cuBLASLt also beside CUDA's runtime.
#pragma once

#include <string>

#include "cublaslt_abi.h"
#include "cuda_abi.h"
#include "cudnn_abi.h"

namespace convoy {

struct CudaApi {
#define CONVOY_DECLARE(name, arguments) cuda::Error(*name) arguments = nullptr;
  CONVOY_CUDART_FUNCTIONS(CONVOY_DECLARE)
#undef CONVOY_DECLARE
  const char* (*cudaGetErrorString)(cuda::Error) = nullptr;
  std::string path;
};

struct CudnnApi {
#define CONVOY_DECLARE(result, name, arguments) result(*name) arguments = nullptr;
  CONVOY_CUDNN_FUNCTIONS(CONVOY_DECLARE)
#undef CONVOY_DECLARE
  std::string path;
  int version = 0;  // 91900 for 9.19.0
};

struct CublasLtApi {
#define CONVOY_DECLARE(result, name, arguments) result(*name) arguments = nullptr;
  CONVOY_CUBLASLT_FUNCTIONS(CONVOY_DECLARE)
#undef CONVOY_DECLARE
  std::string path;
  int64_t version = 0;  // 131000 for 13.10.0
};

// Paths to use from now on for libraries that are not open yet; empty leaves the search as it is.
void ConfigureLibraries(const std::string& cudart, const std::string& cudnn,
                        const std::string& cublaslt);

// The open library. Throws LibraryMissing, saying what was tried. Safe from every thread.
const CudaApi& Cuda();
const CudnnApi& Cudnn();
const CublasLtApi& CublasLt();

// Whether the CUDA driver's library can be opened: what cuDNN needs to compile at run time.
bool HasCudaDriver();

// Throws NoGpu or RuntimeError naming `what` when `error` is not success.
void CheckCuda(cuda::Error error, const char* what);
// cuDNN's last error message for `status`.
std::string CudnnError(cudnn::Status status);

#define CONVOY_CUDA(function, ...) \
  ::convoy::CheckCuda(::convoy::Cuda().function(__VA_ARGS__), #function)

// Makes `device` the thread's current device for the life of the guard.
class DeviceGuard {
 public:
  explicit DeviceGuard(int device) {
    CONVOY_CUDA(cudaGetDevice, &previous_);
    changed_ = previous_ != device;
    if (changed_) CONVOY_CUDA(cudaSetDevice, device);
  }
  ~DeviceGuard() {
    if (changed_) Cuda().cudaSetDevice(previous_);
  }
  DeviceGuard(const DeviceGuard&) = delete;
  DeviceGuard& operator=(const DeviceGuard&) = delete;

 private:
  int previous_ = 0;
  bool changed_ = false;
};

}  // namespace convoy
