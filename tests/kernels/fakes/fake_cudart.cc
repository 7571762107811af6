// A stand-in for libcudart.so.13 that kernel libraries can be loaded and prepared with: nothing is
// launched, and tensor maps that the driver would encode are noted.
#include <cstdint>
#include <cstring>
#include <sstream>
#include <string>

#define API extern "C" __attribute__((visibility("default")))

namespace {

std::string* maps = new std::string;

// {"kind": .., "address": .., "sizes": [..], "strides": [..]}: strides in bytes, of all axes but the
// innermost one.
int Note(const char* kind, uint32_t rank, void* address, const uint64_t* sizes,
         const uint64_t* strides) {
  std::ostringstream text;
  text << (maps->empty() ? "" : ",") << "{\"kind\": \"" << kind
       << "\", \"address\": " << reinterpret_cast<uintptr_t>(address) << ", \"sizes\": [";
  for (uint32_t i = 0; i < rank; ++i) text << (i ? "," : "") << sizes[i];
  text << "], \"strides\": [";
  for (uint32_t i = 0; i + 1 < rank; ++i) text << (i ? "," : "") << strides[i];
  text << "]}";
  *maps += text.str();
  return 0;
}

int EncodeTiled(void*, int, uint32_t rank, void* address, const uint64_t* sizes,
                const uint64_t* strides, ...) {
  return Note("tiled", rank, address, sizes, strides);
}

int EncodeIm2col(void*, int, uint32_t rank, void* address, const uint64_t* sizes,
                 const uint64_t* strides, ...) {
  return Note("im2col", rank, address, sizes, strides);
}

}  // namespace

// The tensor maps since the last call, as JSON.
API const char* fake_tensor_maps() {
  static std::string taken;
  taken = "[" + *maps + "]";
  maps->clear();
  return taken.c_str();
}

API int cudaGetDriverEntryPointByVersion(const char* name, void** function, unsigned, unsigned long,
                                         int* status) {
  bool im2col = std::strstr(name, "Im2col") != nullptr;
  *function = im2col ? reinterpret_cast<void*>(EncodeIm2col) : reinterpret_cast<void*>(EncodeTiled);
  if (status) *status = 0;
  return 0;
}
API int cudaGetDevice(int* device) { return *device = 0, 0; }
API int cudaDeviceGetAttribute(int* value, int, int) { return *value = 132, 0; }
API int cudaFuncSetAttribute(const void*, int, int) { return 0; }
API int cudaFuncGetAttributes(void*, const void*) { return 1; }
API int cudaLaunchKernelExC(const void*, const void*, void**) { return 1; }
API const char* cudaGetErrorString(int) { return "not implemented"; }
API void* __cudaRegisterFatBinary(void*) { return maps; }
API void __cudaRegisterFatBinaryEnd(void*) {}
API void __cudaUnregisterFatBinary(void*) {}
API void __cudaRegisterFunction(...) {}
API void __cudaRegisterVar(...) {}
API int __cudaGetKernel(void*, const void*) { return 1; }
API int __cudaLaunchKernel(...) { return 1; }
API int __cudaPopCallConfiguration(...) { return 1; }
