// FFI functions convoy.graph.*: a function captured into a CUDA graph, to be replayed or looked at.
//
//   convoy.graph.capture(function, arguments, device) -> [launch, result, exchange]
//     launch() enqueues the graph on the current stream and returns true. While that stream is
//     being captured it does nothing and returns false: calls are to be captured one by one. The
//     result is that of the captured call: every replay writes the same memory, which lives as long
//     as launch.
//     exchange(stream, source, bytes, ..., target, bytes, ...) does as launch() on a stream, after
//     copies of the caller's memory into the arguments, which are tensors, and before copies of the
//     result's tensors to the caller. Addresses and streams are integers; what is a tensor's own
//     address is not copied.
//   convoy.graph.capturing(device) -> whether the current stream is being captured
//   convoy.graph.settle(device) makes what the caller enqueues next on the current stream, or
//     captures, start when all that is there has ended: the last kernel of a function may let its
//     successor start early, which may be one of cuDNN's that does not wait
//   convoy.graph.kernels(function, arguments, device) -> JSON text: for each kernel that one call
//     launches its blocks, threads, shared_bytes, registers and how many blocks fit on an
//     SM ("resident")
//
// A function must have been called once in the same thread before it is captured.
#include <dlfcn.h>
#include <tvm/ffi/container/array.h>
#include <tvm/ffi/extra/c_env_api.h>
#include <tvm/ffi/function.h>
#include <tvm/ffi/reflection/registry.h>

#include "captured_graph.h"
#include "context.h"
#include "driver_abi.h"
#include "exchange.h"
#include "json_fields.h"

namespace convoy {
namespace {

namespace ffi = tvm::ffi;

// Captures one call on this thread's capture stream. Relaxed: an output that the function allocates
// is legal, and other threads may go on meanwhile.
class CapturedCall {
 public:
  CapturedCall(const ffi::Function& function, ffi::Array<ffi::Any> arguments, int device)
      : device_(device), arguments_(std::move(arguments)) {
    DeviceGuard guard(device);
    cuda::Stream stream = ThreadContext::Current().Streams(device).Capture();
    std::vector<ffi::AnyView> views(arguments_.begin(), arguments_.end());
    void* previous = nullptr;
    TVMFFIEnvSetStream(kDLCUDA, device, stream, &previous);
    try {
      graph_ = std::make_unique<CapturedGraph>(stream, cuda::kCaptureRelaxed, [&] {
        function.CallPacked(views.data(), static_cast<int32_t>(views.size()), &result_);
      });
    } catch (...) {
      TVMFFIEnvSetStream(kDLCUDA, device, previous, nullptr);
      throw;
    }
    TVMFFIEnvSetStream(kDLCUDA, device, previous, nullptr);
  }

  // What the graph uses may be allocated anew from now on, so the device is waited for. Errors are
  // of no use here; at process exit the driver may be gone.
  ~CapturedCall() {
    const CudaApi& api = Cuda();
    int previous = 0;
    api.cudaGetDevice(&previous);
    if (previous != device_) api.cudaSetDevice(device_);
    {
      RelaxedCapture relaxed;
      SynchronizeDevice();
      exchange_.reset();
      graph_.reset();
    }
    if (previous != device_) api.cudaSetDevice(previous);
    api.cudaGetLastError();
  }
  CapturedCall(const CapturedCall&) = delete;
  CapturedCall& operator=(const CapturedCall&) = delete;

  bool Launch() const {
    DeviceGuard guard(device_);
    cuda::Stream stream = TVMFFIEnvGetStream(kDLCUDA, device_);
    if (QueryStream(stream).capturing()) return false;
    graph_->Launch(stream);
    return true;
  }

  bool LaunchExchange(ffi::PackedArgs arguments) {
    DeviceGuard guard(device_);
    if (!exchange_) {
      std::vector<ffi::Tensor> inputs;
      for (const ffi::Any& one : arguments_) inputs.push_back(one.cast<ffi::Tensor>());
      exchange_ = std::make_unique<Exchange>(graph_->graph(), inputs, Flattened(result_));
    }
    if (arguments.size() != 1 + 2 * static_cast<int>(exchange_->size())) {
      TVM_FFI_THROW(ValueError) << "got " << arguments.size()
                                << " arguments, expected a stream and " << exchange_->size()
                                << " addresses with sizes";
    }
    auto* stream = reinterpret_cast<cuda::Stream>(arguments[0].cast<int64_t>());
    if (QueryStream(stream).capturing()) return false;
    for (size_t i = 0; i < exchange_->size(); ++i) {
      auto* memory = reinterpret_cast<char*>(arguments[1 + 2 * i].cast<int64_t>());
      exchange_->SetMemory(i, memory, arguments[2 + 2 * i].cast<int64_t>());
    }
    exchange_->Launch(stream);
    return true;
  }

  const ffi::Any& result() const { return result_; }
  cuda::Graph graph() const { return graph_->graph(); }

 private:
  const int device_;
  ffi::Array<ffi::Any> arguments_;
  ffi::Any result_;
  std::unique_ptr<CapturedGraph> graph_;
  std::unique_ptr<Exchange> exchange_;  // from its first launch
};

ffi::Array<ffi::Any> Capture(ffi::Function function, ffi::Array<ffi::Any> arguments, int device) {
  auto call = std::make_shared<CapturedCall>(function, std::move(arguments), device);
  auto exchange = [call](ffi::PackedArgs arguments, ffi::Any* launched) {
    *launched = call->LaunchExchange(arguments);
  };
  return {ffi::Function::FromTyped([call]() { return call->Launch(); }), call->result(),
          ffi::Function::FromPacked(exchange)};
}

bool Capturing(int device) {
  DeviceGuard guard(device);
  return QueryStream(TVMFFIEnvGetStream(kDLCUDA, device)).capturing();
}

void Settle(int device) {
  DeviceGuard guard(device);
  const StreamState stream = QueryStream(TVMFFIEnvGetStream(kDLCUDA, device));
  WaitForPredecessors(stream,
                      stream.capturing() ? nullptr : ThreadContext::Current().Scratch(device));
}

struct DriverApi {
#define CONVOY_DECLARE(name, arguments) driver::Result(*name) arguments = nullptr;
  CONVOY_DRIVER_FUNCTIONS(CONVOY_DECLARE)
#undef CONVOY_DECLARE
};

const DriverApi& Driver() {
  static const DriverApi* api = [] {
    void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
      TVM_FFI_THROW(LibraryMissing)
          << "the CUDA driver (libcuda.so.1) was not found: " << dlerror();
    }
    auto* found = new DriverApi;
#define CONVOY_RESOLVE(name, arguments)                                                 \
  found->name = reinterpret_cast<decltype(found->name)>(dlsym(library, #name));         \
  if (found->name == nullptr) {                                                         \
    TVM_FFI_THROW(LibraryMissing) << "the CUDA driver has no " #name ": it is too old"; \
  }
    CONVOY_DRIVER_FUNCTIONS(CONVOY_RESOLVE)
#undef CONVOY_RESOLVE
    return found;
  }();
  return *api;
}

#define CONVOY_DRIVER(function, ...)                                                        \
  if (driver::Result error = Driver().function(__VA_ARGS__)) {                              \
    TVM_FFI_THROW(RuntimeError) << #function " failed (CUDA driver error " << error << ")"; \
  }

json::Object Describe(driver::Handle node) {
  driver::KernelNodeParams params{};
  CONVOY_DRIVER(cuGraphKernelNodeGetParams_v2, node, &params);
  driver::Handle function = params.function;
  if (function == nullptr) CONVOY_DRIVER(cuKernelGetFunction, &function, params.kernel);
  int fixed = 0, registers = 0, resident = 0;
  CONVOY_DRIVER(cuFuncGetAttribute, &fixed, driver::kSharedSizeBytes, function);
  CONVOY_DRIVER(cuFuncGetAttribute, &registers, driver::kNumRegs, function);
  int64_t threads = int64_t{1} * params.block[0] * params.block[1] * params.block[2];
  CONVOY_DRIVER(cuOccupancyMaxActiveBlocksPerMultiprocessor, &resident, function,
                static_cast<int>(threads), params.shared_bytes);
  json::Object kernel;
  kernel.Set(ffi::String("blocks"), int64_t{1} * params.grid[0] * params.grid[1] * params.grid[2]);
  kernel.Set(ffi::String("threads"), threads);
  kernel.Set(ffi::String("shared_bytes"), int64_t{fixed} + params.shared_bytes);
  kernel.Set(ffi::String("registers"), int64_t{registers});
  kernel.Set(ffi::String("resident"), int64_t{resident});
  return kernel;
}

ffi::String Kernels(ffi::Function function, ffi::Array<ffi::Any> arguments, int device) {
  DeviceGuard guard(device);
  CapturedCall call(function, std::move(arguments), device);
  size_t count = 0;
  CONVOY_DRIVER(cuGraphGetNodes, call.graph(), nullptr, &count);
  std::vector<driver::Handle> nodes(count);
  CONVOY_DRIVER(cuGraphGetNodes, call.graph(), nodes.data(), &count);
  json::Array kernels;
  for (driver::Handle node : nodes) {
    int type = -1;
    CONVOY_DRIVER(cuGraphNodeGetType, node, &type);
    if (type == driver::kKernelNode) kernels.push_back(Describe(node));
  }
  return json::Stringify(kernels);
}

}  // namespace

TVM_FFI_STATIC_INIT_BLOCK() {
  namespace refl = tvm::ffi::reflection;
  refl::GlobalDef()
      .def("convoy.graph.capture", Capture)
      .def("convoy.graph.capturing", Capturing)
      .def("convoy.graph.settle", Settle)
      .def("convoy.graph.kernels", Kernels);
}

}  // namespace convoy
