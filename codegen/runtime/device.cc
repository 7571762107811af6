// FFI functions convoy.cuda.* and convoy.library.*: the device, and the few memory operations that
// measuring needs.
#include <tvm/ffi/container/array.h>
#include <tvm/ffi/container/shape.h>
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/extra/c_env_api.h>
#include <tvm/ffi/extra/dtype.h>
#include <tvm/ffi/reflection/registry.h>

#include "json_fields.h"
#include "library.h"
#include "workspace.h"

namespace convoy {
namespace {

namespace ffi = tvm::ffi;

int64_t Attribute(cuda::DeviceAttribute attribute, int device) {
  int value = 0;
  CONVOY_CUDA(cudaDeviceGetAttribute, &value, attribute, device);
  return value;
}

int64_t DeviceCount() {
  int count = 0;
  CONVOY_CUDA(cudaGetDeviceCount, &count);
  return count;
}

std::string Hexadecimal(const unsigned char* bytes, size_t count) {
  std::string text;
  for (size_t i = 0; i < count; ++i) {
    text += "0123456789abcdef"[bytes[i] >> 4];
    text += "0123456789abcdef"[bytes[i] & 15];
  }
  return text;
}

// {"name", "uuid", "arch", "sm_count", "shared_memory_per_block", "l2_bytes", "memory_bytes",
// "peak_bandwidth", "driver", "runtime"} as JSON; uuid in hexadecimal; peak_bandwidth is in bytes
// per second, 0 where the driver does not tell; versions are as CUDA numbers them (13000 for 13.0).
ffi::String DeviceInfo(int device) {
  auto properties = std::make_unique<cuda::DeviceProperties>();
  CONVOY_CUDA(cudaGetDeviceProperties, properties.get(), device);
  int driver = 0, runtime = 0;
  CONVOY_CUDA(cudaDriverGetVersion, &driver);
  CONVOY_CUDA(cudaRuntimeGetVersion, &runtime);
  json::Object info;
  auto set = [&](const char* name, json::Value value) { info.Set(ffi::String(name), value); };
  set("name", ffi::String(properties->name));
  set("uuid", ffi::String(Hexadecimal(properties->uuid, sizeof(properties->uuid))));
  set("arch", Attribute(cuda::kComputeCapabilityMajor, device) * 10 +
                  Attribute(cuda::kComputeCapabilityMinor, device));
  set("sm_count", Attribute(cuda::kMultiProcessorCount, device));
  set("shared_memory_per_block", Attribute(cuda::kMaxSharedMemoryPerBlockOptin, device));
  set("l2_bytes", Attribute(cuda::kL2CacheSize, device));
  set("memory_bytes", static_cast<int64_t>(properties->total_memory));
  // Two transfers a clock; the clock is in kHz, the bus width in bits.
  set("peak_bandwidth", 2 * 1000 * Attribute(cuda::kMemoryClockRate, device) *
                            (Attribute(cuda::kGlobalMemoryBusWidth, device) / 8));
  set("driver", int64_t{driver});
  set("runtime", int64_t{runtime});
  return json::Stringify(info);
}

struct DeviceMemory {
  void AllocData(DLTensor* tensor) {
    DeviceGuard guard(tensor->device.device_id);
    CONVOY_CUDA(cudaMalloc, &tensor->data, std::max<size_t>(1, ffi::GetDataSize(*tensor)));
  }
  void FreeData(DLTensor* tensor) {
    // Errors are of no use here; at process exit the driver may be gone.
    Cuda().cudaFree(tensor->data);
  }
};

// An uninitialised tensor on a GPU. Freeing it waits for the device.
ffi::Tensor Empty(ffi::Shape shape, DLDataType dtype, int device) {
  return ffi::Tensor::FromNDAlloc(DeviceMemory(), shape, dtype, DLDevice{kDLCUDA, device});
}

char* Data(const ffi::TensorView& tensor) {
  return static_cast<char*>(tensor.data_ptr()) + tensor.byte_offset();
}

size_t Bytes(const ffi::TensorView& tensor) {
  return ffi::GetDataSize(static_cast<size_t>(tensor.numel()), tensor.dtype());
}

bool OnDevice(const ffi::TensorView& tensor) { return tensor.device().device_type == kDLCUDA; }

// Copies between compact tensors of equal byte size, one of them on a GPU; synchronous.
void Copy(ffi::TensorView from, ffi::TensorView to) {
  if (Bytes(from) != Bytes(to)) {
    TVM_FFI_THROW(ValueError) << "a copy of " << Bytes(from) << " bytes into " << Bytes(to);
  }
  auto kind = !OnDevice(from) ? cuda::kHostToDevice
              : !OnDevice(to) ? cuda::kDeviceToHost
                              : cuda::kDeviceToDevice;
  DeviceGuard guard((OnDevice(to) ? to : from).device().device_id);
  CONVOY_CUDA(cudaMemcpy, Data(to), Data(from), Bytes(to), kind);
}

// Sets all bytes of a tensor; 0xFF makes every float type NaN. Waits until it is done.
void Fill(ffi::TensorView tensor, int byte) {
  DeviceGuard guard(tensor.device().device_id);
  CONVOY_CUDA(cudaMemset, Data(tensor), byte, Bytes(tensor));
  CONVOY_CUDA(cudaDeviceSynchronize);
}

// Repeats a host block over a device tensor: byte i becomes block[i % size]. The copied part
// doubles each step, in whole blocks.
void Tile(ffi::TensorView block, ffi::TensorView tensor) {
  size_t size = Bytes(block), total = Bytes(tensor);
  DeviceGuard guard(tensor.device().device_id);
  char* data = Data(tensor);
  size_t done = std::min(size, total);
  CONVOY_CUDA(cudaMemcpy, data, Data(block), done, cuda::kHostToDevice);
  while (done < total) {
    size_t step = std::min(done, total - done);
    CONVOY_CUDA(cudaMemcpy, data + done, data, step, cuda::kDeviceToDevice);
    done += step;
  }
  CONVOY_CUDA(cudaDeviceSynchronize);
}

// Copies runs of `length` elements at element offsets `starts` into consecutive rows of `out`, a
// host tensor.
void Gather(ffi::TensorView tensor, ffi::TensorView starts, int64_t length, ffi::TensorView out) {
  size_t element = (static_cast<size_t>(tensor.dtype().bits) * tensor.dtype().lanes + 7) / 8;
  size_t run = static_cast<size_t>(length) * element;
  const auto* offsets = reinterpret_cast<const int64_t*>(Data(starts));
  if (Bytes(out) != run * static_cast<size_t>(starts.numel())) {
    TVM_FFI_THROW(ValueError) << "an output of " << Bytes(out) << " bytes for " << starts.numel()
                              << " runs of " << run;
  }
  DeviceGuard guard(tensor.device().device_id);
  for (int64_t i = 0; i < starts.numel(); ++i) {
    if (offsets[i] < 0 || offsets[i] + length > tensor.numel()) {
      TVM_FFI_THROW(ValueError) << "a run at " << offsets[i] << " outside of " << tensor.numel();
    }
    CONVOY_CUDA(cudaMemcpyAsync, Data(out) + static_cast<size_t>(i) * run,
                Data(tensor) + static_cast<size_t>(offsets[i]) * element, run, cuda::kDeviceToHost,
                nullptr);
  }
  CONVOY_CUDA(cudaDeviceSynchronize);
}

// {"free", "total"} in bytes, of all processes on the device.
ffi::String MemoryInfo(int device) {
  DeviceGuard guard(device);
  size_t free = 0, total = 0;
  CONVOY_CUDA(cudaMemGetInfo, &free, &total);
  json::Object info;
  info.Set(ffi::String("free"), static_cast<int64_t>(free));
  info.Set(ffi::String("total"), static_cast<int64_t>(total));
  return json::Stringify(info);
}

void Synchronize(int device) {
  DeviceGuard guard(device);
  CONVOY_CUDA(cudaDeviceSynchronize);
}

void SetStream(int device, int64_t stream) {
  TVMFFIEnvSetStream(kDLCUDA, device, reinterpret_cast<void*>(stream), nullptr);
}

ffi::String WorkspaceInfo() {
  size_t allocated = 0, idle = 0;
  WorkspaceStatistics(&allocated, &idle);
  json::Object info;
  info.Set(ffi::String("allocated"), static_cast<int64_t>(allocated));
  info.Set(ffi::String("idle"), static_cast<int64_t>(idle));
  return json::Stringify(info);
}

void Configure(const ffi::String& paths_json) {
  json::Object paths = ParseObject(paths_json, "library paths");
  ConfigureLibraries(GetString(paths, "cudart"), GetString(paths, "cudnn"),
                     GetString(paths, "cublaslt"));
}

}  // namespace

TVM_FFI_STATIC_INIT_BLOCK() {
  namespace refl = tvm::ffi::reflection;
  refl::GlobalDef()
      .def("convoy.library.configure", Configure)
      .def("convoy.cuda.path", []() { return ffi::String(Cuda().path); })
      .def("convoy.cuda.device_count", DeviceCount)
      .def("convoy.cuda.device_info", DeviceInfo)
      .def("convoy.cuda.empty", Empty)
      .def("convoy.cuda.copy", Copy)
      .def("convoy.cuda.fill", Fill)
      .def("convoy.cuda.tile", Tile)
      .def("convoy.cuda.gather", Gather)
      .def("convoy.cuda.memory_info", MemoryInfo)
      .def("convoy.cuda.synchronize", Synchronize)
      .def("convoy.cuda.set_stream", SetStream)
      .def("convoy.cuda.workspace_info", WorkspaceInfo);
}

}  // namespace convoy
