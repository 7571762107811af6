#include "deployed_session.h"

#include <tvm/ffi/container/shape.h>
#include <tvm/ffi/extra/c_env_api.h>
#include <tvm/ffi/function.h>

#include <cstdlib>
#include <cstring>
#include <optional>

#include "captured_graph.h"
#include "library.h"
#include "tensors.h"

namespace convoy {
namespace {

namespace ffi = tvm::ffi;

constexpr size_t kMostGraphs = 8;
constexpr size_t kAlignment = 256;
constexpr int kPooledAllocator = 2;  // of TVM's virtual machine

// Zeroed memory of an input; a scalar or an empty tensor has some as well.
struct OwnMemory {
  void AllocData(DLTensor* tensor) {
    size_t bytes = (ffi::GetDataSize(*tensor) + kAlignment) / kAlignment * kAlignment;
    if (tensor->device.device_type == kDLCUDA) {
      DeviceGuard guard(tensor->device.device_id);
      CONVOY_CUDA(cudaMalloc, &tensor->data, bytes);
      CONVOY_CUDA(cudaMemset, tensor->data, 0, bytes);
      return;
    }
    tensor->data = std::aligned_alloc(kAlignment, bytes);
    if (tensor->data == nullptr) TVM_FFI_THROW(RuntimeError) << "no memory for " << bytes;
    std::memset(tensor->data, 0, bytes);
  }
  void FreeData(DLTensor* tensor) {
    if (tensor->device.device_type != kDLCUDA) return std::free(tensor->data);
    Cuda().cudaFree(tensor->data);  // at process exit the driver may be gone: no check
    Cuda().cudaGetLastError();
  }
};

struct BorrowedMemory {
  void* data;
  void AllocData(DLTensor* tensor) { tensor->data = data; }
  void FreeData(DLTensor*) {}
};

template <typename Memory>
ffi::Tensor MakeTensor(Memory memory, const TensorSpec& spec, DLDevice device) {
  return ffi::Tensor::FromNDAlloc(memory, ffi::Shape(spec.shape.begin(), spec.shape.end()),
                                  spec.dtype, device);
}

ffi::Function Global(const char* name) { return ffi::Function::GetGlobalRequired(name); }

void CheckDevice(const DeployedModule& module, int device) {
  if (module.target != "cuda") {
    if (device != 0) TVM_FFI_THROW(InvalidOption) << "device " << device << " for the CPU, not 0";
    return;
  }
  int count = 0;
  CONVOY_CUDA(cudaGetDeviceCount, &count);
  if (device < 0 || device >= count) {
    TVM_FFI_THROW(InvalidOption) << "device " << device << " of " << count;
  }
  ffi::String text = Global("convoy.cuda.device_info")(device).cast<ffi::String>();
  auto arch = Require<int64_t>(ParseObject(text, "device"), "arch");
  if (module.arch != 0 && arch != module.arch) {
    TVM_FFI_THROW(WrongDevice) << "a GPU of compute capability " << arch / 10. << ", not "
                               << module.arch / 10. << ", which the module was built for";
  }
}

// Makes `stream` the one that TVM's kernels and Convoy's are launched on in this thread.
class StreamScope {
 public:
  StreamScope(DLDevice device, void* stream) : device_(device) {
    if (device.device_type == kDLCUDA) {
      guard_ = std::make_unique<DeviceGuard>(device.device_id);
      TVMFFIEnvSetStream(kDLCUDA, device.device_id, stream, &previous_);
    }
  }
  ~StreamScope() {
    if (guard_) TVMFFIEnvSetStream(kDLCUDA, device_.device_id, previous_, nullptr);
  }
  StreamScope(const StreamScope&) = delete;
  StreamScope& operator=(const StreamScope&) = delete;

 private:
  DLDevice device_;
  void* previous_ = nullptr;
  std::unique_ptr<DeviceGuard> guard_;
};

ffi::Module MakeMachine(const DeployedModule& module, DLDevice device) {
  auto load = module.module->GetFunction("vm_load_executable", true);
  if (!load) TVM_FFI_THROW(CorruptArtefact) << "a module without TVM's executable";
  auto machine = (*load)().cast<ffi::Module>();
  auto initialize = machine->GetFunction("vm_initialization", false);
  int type = device.device_type;
  if (type == kDLCPU) {
    (*initialize)(type, 0, kPooledAllocator);
  } else {  // shape functions run on the CPU
    (*initialize)(type, device.device_id, kPooledAllocator, static_cast<int>(kDLCPU), 0,
                  kPooledAllocator);
  }
  return machine;
}

ffi::Function EntryPoint(const ffi::Module& machine) {
  auto found = machine->GetFunction("main", false);
  if (!found) TVM_FFI_THROW(CorruptArtefact) << "a module without a function 'main'";
  return *found;
}

DLDevice DeviceOf(const DeployedModule& module, int device) {
  CheckDevice(module, device);
  return DLDevice{module.target == "cuda" ? kDLCUDA : kDLCPU, device};
}

void CheckBytes(const TensorSpec& spec, const char* what, size_t bytes) {
  if (bytes != spec.bytes) {
    TVM_FFI_THROW(InvalidOption) << bytes << " bytes for " << what << " '" << spec.name
                                 << "', which has " << spec.bytes;
  }
}

}  // namespace

DeployedSession::DeployedSession(std::shared_ptr<const DeployedModule> module, int device)
    : module_(std::move(module)),
      device_(DeviceOf(*module_, device)),
      machine_(MakeMachine(*module_, device_)),
      main_(EntryPoint(machine_)) {
  for (const TensorSpec& spec : module_->inputs) {
    inputs_.push_back(MakeTensor(OwnMemory(), spec, device_));
  }
}

void DeployedSession::CheckStream(void* stream) const {
  if (stream != nullptr && !OnGpu()) {
    TVM_FFI_THROW(InvalidOption) << "a stream for a module that runs on the CPU, which has none";
  }
}

void DeployedSession::Copy(void* to, const void* from, size_t bytes, void* stream) const {
  if (!OnGpu()) {
    std::memcpy(to, from, bytes);
    return;
  }
  DeviceGuard guard(device_.device_id);
  CONVOY_CUDA(cudaMemcpyAsync, to, from, bytes, cuda::kAnyToAny, stream);
}

void DeployedSession::SetInput(int index, const void* data, size_t bytes, void* stream) {
  CheckStream(stream);
  CheckBytes(module_->inputs.at(index), "input", bytes);
  if (bytes > 0) Copy(inputs_[index].data_ptr(), data, bytes, stream);
}

void DeployedSession::BindInput(int index, void* data, size_t bytes) {
  const TensorSpec& spec = module_->inputs.at(index);
  CheckBytes(spec, "input", bytes);
  if (reinterpret_cast<uintptr_t>(data) % kAlignment != 0) {
    TVM_FFI_THROW(InvalidOption) << "memory for input '" << spec.name << "' that is not aligned to "
                                 << kAlignment << " bytes";
  }
  inputs_[index] = MakeTensor(BorrowedMemory{data}, spec, device_);
}

void DeployedSession::Run(void* stream) {
  CheckStream(stream);
  StreamScope scope(device_, stream);
  if (!Replay()) Call();
}

void DeployedSession::Call() {
  std::vector<ffi::AnyView> arguments(inputs_.begin(), inputs_.end());
  ffi::Any result;
  std::optional<RelaxedCapture>
      relaxed;  // the caller may capture: outputs are allocated all the same
  if (OnGpu()) relaxed.emplace();
  main_.CallPacked(arguments.data(), static_cast<int32_t>(arguments.size()), &result);
  if (OnGpu()) {
    static const ffi::Function settle = Global("convoy.graph.settle");
    settle(device_.device_id);
  }
  outputs_ = Flattened(result);
  if (outputs_.size() != module_->outputs.size()) {
    TVM_FFI_THROW(CorruptArtefact)
        << outputs_.size() << " outputs of a module that describes " << module_->outputs.size();
  }
  warm_ = true;
}

// False where the run is to be a call: the first one, one that the caller captures, one for the
// CPU.
bool DeployedSession::Replay() {
  if (!OnGpu() || !module_->cuda_graph || !warm_) return false;
  static const ffi::Function capturing = Global("convoy.graph.capturing");
  if (capturing(device_.device_id).cast<bool>()) return false;
  Graph& graph = CurrentGraph();
  if (!graph.launch().cast<bool>()) return false;
  outputs_ = graph.outputs;
  return true;
}

DeployedSession::Graph& DeployedSession::CurrentGraph() {
  std::vector<void*> key;
  for (const ffi::Tensor& input : inputs_) key.push_back(input.data_ptr());
  for (auto it = graphs_.begin(); it != graphs_.end(); ++it) {
    if (it->inputs == key) {
      graphs_.splice(graphs_.begin(), graphs_, it);
      return graphs_.front();
    }
  }
  static const ffi::Function capture = Global("convoy.graph.capture");
  ffi::Array<ffi::Any> arguments(inputs_.begin(), inputs_.end());
  auto made = capture(main_, arguments, device_.device_id).cast<ffi::Array<ffi::Any>>();
  graphs_.push_front(Graph{key, made[0].cast<ffi::Function>(), Flattened(made[1])});
  if (graphs_.size() > kMostGraphs) graphs_.pop_back();
  return graphs_.front();
}

const ffi::Tensor& DeployedSession::Output(int index) const {
  if (outputs_.empty()) TVM_FFI_THROW(InvalidOption) << "an output before any run";
  return outputs_.at(index);
}

void* DeployedSession::OutputData(int index) const { return Address(Output(index)); }

void DeployedSession::GetOutput(int index, void* data, size_t bytes, void* stream) {
  CheckStream(stream);
  CheckBytes(module_->outputs.at(index), "output", bytes);
  if (bytes > 0) Copy(data, OutputData(index), bytes, stream);
  if (OnGpu()) {
    DeviceGuard guard(device_.device_id);
    CONVOY_CUDA(cudaStreamSynchronize, stream);
  }
}

}  // namespace convoy
