// A recording stand-in for libcuda.so.1, as far as TVM's CUDA runtime calls it. Kernels do nothing
// when they are due; their launches go through the stand-in for CUDA's runtime, so that streams and
// captures are known.
#include <dlfcn.h>

#include <cstdio>
#include <cstring>
#include <string>

#define API extern "C" __attribute__((visibility("default")))

namespace {

struct Function {
  std::string name;
};

struct LaunchConfig {  // CUlaunchConfig
  unsigned grid[3], block[3];
  unsigned shared_bytes;
  void* stream;
  void* attributes;
  unsigned num_attributes;
};

using Launch = int (*)(void*, const char*, void (*)(void*), const void*, size_t);

}  // namespace

API int cuInit(unsigned) { return 0; }
API int cuDeviceGetCount(int* count) { return *count = 2, 0; }
API int cuDeviceGet(int* device, int ordinal) { return *device = ordinal, 0; }
API int cuDeviceGetName(char* name, int length, int) {
  return std::snprintf(name, length, "Fake H200"), 0;
}
API int cuFuncSetAttribute(void*, int, int) { return 0; }
API int cuGetErrorName(int, const char** text) { return *text = "FAKE_ERROR", 0; }
API int cuGetErrorString(int, const char** text) { return *text = "fake error", 0; }
API int cuModuleLoadData(void** module, const void*) { return *module = new int(1), 0; }
API int cuModuleUnload(void*) { return 0; }
API int cuModuleGetFunction(void** function, void*, const char* name) {
  return *function = new Function{name}, 0;
}
API int cuTensorMapEncodeTiled(...) { return 0; }
API int cuLaunchKernelEx(const LaunchConfig* config, void* function, void**, void**) {
  static auto launch = reinterpret_cast<Launch>(dlsym(RTLD_DEFAULT, "fake_cuda_launch"));
  return launch(
      config->stream, static_cast<Function*>(function)->name.c_str(), [](void*) {}, "", 1);
}
