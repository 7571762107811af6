#include "function.h"

#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/extra/c_env_api.h>

#include <sstream>

namespace convoy {
namespace {

constexpr uintptr_t kAlignment = 16;  // what plans and kernels are built for

template <typename Range>
std::string ShapeText(const Range* values, size_t size) {
  std::ostringstream out;
  out << '(';
  for (size_t i = 0; i < size; ++i) out << (i ? "," : "") << values[i];
  out << ')';
  return out.str();
}

bool Matches(const DLTensor& tensor, const Operand& operand) {
  if (tensor.ndim != static_cast<int>(operand.shape.size())) return false;
  DLDataType expected = ToDlpack(operand.dtype);
  if (tensor.dtype.code != expected.code || tensor.dtype.bits != expected.bits ||
      tensor.dtype.lanes != 1) {
    return false;
  }
  int64_t step = 1;
  for (int i = tensor.ndim - 1; i >= 0; --i) {
    if (tensor.shape[i] != operand.shape[i]) return false;
    int64_t stride = tensor.strides ? tensor.strides[i] : step;
    if (tensor.shape[i] != 1 && stride != step) return false;
    step *= i == tensor.ndim - 1 ? operand.row_stride : tensor.shape[i];
  }
  return tensor.strides || !operand.is_slice();
}

StreamState CurrentStream(DLDevice device) {
  if (device.device_type != kDLCUDA) return {};
  return QueryStream(TVMFFIEnvGetStream(device.device_type, device.device_id));
}

// The device guard where there is a device to guard.
class CurrentDevice {
 public:
  explicit CurrentDevice(DLDevice device) {
    if (device.device_type == kDLCUDA) guard_ = new (storage_) DeviceGuard(device.device_id);
  }
  ~CurrentDevice() {
    if (guard_) guard_->~DeviceGuard();
  }

 private:
  alignas(DeviceGuard) char storage_[sizeof(DeviceGuard)];
  DeviceGuard* guard_ = nullptr;
};

}  // namespace

void CheckDevice(const ModuleData& module, DLDevice device) {
  if (module.arch == 0) {
    if (device.device_type == kDLCPU) return;
    TVM_FFI_THROW(WrongDevice) << "tensors on a GPU; this module was built for host memory";
  }
  if (device.device_type != kDLCUDA) {
    TVM_FFI_THROW(WrongDevice) << "tensors outside a GPU; this module was built for one of compute "
                                  "capability "
                               << module.arch / 10 << "." << module.arch % 10;
  }
  int major = 0, minor = 0;
  CONVOY_CUDA(cudaDeviceGetAttribute, &major, cuda::kComputeCapabilityMajor, device.device_id);
  CONVOY_CUDA(cudaDeviceGetAttribute, &minor, cuda::kComputeCapabilityMinor, device.device_id);
  if (major * 10 + minor != module.arch) {
    TVM_FFI_THROW(WrongDevice) << "GPU " << device.device_id << " of compute capability " << major
                               << "." << minor << "; this module was built for " << module.arch / 10
                               << "." << module.arch % 10 << ". Build it again for this GPU";
  }
}

DLDevice ConvoyFunction::ReadArguments(tvm::ffi::PackedArgs args, Pointers* pointers) const {
  const std::vector<Operand>& operands = spec_.workload.operands;
  if (static_cast<size_t>(args.size()) != operands.size()) {
    TVM_FFI_THROW(TypeError) << spec_.symbol << " takes " << operands.size() << " tensors; got "
                             << args.size();
  }
  DLDevice device = {kDLCPU, 0};
  for (size_t i = 0; i < operands.size(); ++i) {
    auto tensor = args[i].try_cast<DLTensor*>();
    if (!tensor) {
      TVM_FFI_THROW(TypeError) << spec_.symbol << ": argument " << i << " (" << operands[i].name
                               << ") is no tensor";
    }
    const DLTensor& t = **tensor;
    if (!Matches(t, operands[i])) {
      const Operand& operand = operands[i];
      TVM_FFI_THROW(ValueError)
          << spec_.symbol << ": argument " << i << " (" << operand.name << ") is "
          << tvm::ffi::DLDataTypeToString(t.dtype) << ShapeText(t.shape, t.ndim)
          << (t.strides ? " with strides " + ShapeText(t.strides, t.ndim) : "") << "; expected "
          << (operand.is_slice() ? "rows of stride " + std::to_string(operand.row_stride) + " of "
                                 : "compact ")
          << Name(operand.dtype) << ShapeText(operand.shape.data(), operand.shape.size());
    }
    auto* data = static_cast<char*>(t.data) + t.byte_offset;
    if (reinterpret_cast<uintptr_t>(data) % kAlignment != 0) {
      TVM_FFI_THROW(ValueError) << spec_.symbol << ": argument " << i << " (" << operands[i].name
                                << ") is not aligned to " << kAlignment << " bytes";
    }
    if (i == 0) {
      device = t.device;
    } else if (t.device.device_type != device.device_type ||
               t.device.device_id != device.device_id) {
      TVM_FFI_THROW(ValueError) << spec_.symbol << ": tensors on different devices";
    }
    (*pointers)[i] = data;
  }
  return device;
}

void ConvoyFunction::Call(tvm::ffi::PackedArgs args) {
  CallKey key;
  DLDevice device = ReadArguments(args, &key.pointers);
  // Before anything asks CUDA: a tensor elsewhere must not look for a stream.
  if ((device.device_type == kDLCUDA) == (module_->arch == 0)) CheckDevice(*module_, device);
  CurrentDevice current(device);
  StreamState stream = CurrentStream(device);
  key.stream = stream.stream;
  key.capture_id = stream.capture_id;
  key.device =
      (static_cast<uint64_t>(device.device_type) << 32) | static_cast<uint32_t>(device.device_id);
  ThreadContext& thread = ThreadContext::Current();
  uint64_t hash = key.Hash();
  Prepared* call = thread.Calls(slot_).Find(hash, key);
  if (call == nullptr) call = PrepareCall(thread, device, stream, hash, key);
  call->Launch(stream);
}

Prepared* ConvoyFunction::PrepareCall(ThreadContext& thread, DLDevice device,
                                      const StreamState& stream, uint64_t hash,
                                      const CallKey& key) {
  CheckDevice(*module_, device);
  Executable& executable = thread.GetExecutable(spec_, module_->blobs, device, stream);
  void* workspace =
      thread.Workspace(device, stream, executable.workspace_bytes(), module_->workspace);
  std::unique_ptr<Prepared> call = executable.Prepare(key.pointers, workspace);
  return thread.Calls(slot_).Insert(hash, key, std::move(call));
}

void ConvoyFunction::Prepare(DLDevice device) {
  CheckDevice(*module_, device);
  CurrentDevice current(device);
  StreamState stream = CurrentStream(device);
  ThreadContext& thread = ThreadContext::Current();
  Executable& executable = thread.GetExecutable(spec_, module_->blobs, device, stream);
  thread.Workspace(device, stream, executable.workspace_bytes(), module_->workspace);
}

}  // namespace convoy
