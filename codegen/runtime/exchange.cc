// FFI function convoy.graph.exchange(launch, inputs, outputs, device) -> run
//
//   run(stream, source, bytes, ..., target, bytes, ...) -> whether anything was enqueued
//     copies the caller's memory into the inputs of a captured graph, launches it, and copies its
//     outputs to the caller, all on one stream; `launch` is convoy.graph.capture's. Addresses and
//     streams are integers. An input that is the source itself is not copied. Nothing is enqueued
//     while the stream is being captured.
#include <tvm/ffi/container/array.h>
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/extra/c_env_api.h>
#include <tvm/ffi/function.h>
#include <tvm/ffi/reflection/registry.h>

#include "context.h"
#include "library.h"

namespace convoy {
namespace {

namespace ffi = tvm::ffi;

char* Address(const ffi::Tensor& tensor) {
  return static_cast<char*>(tensor.data_ptr()) + tensor.byte_offset();
}

// TVM's current stream of a device for as long as this lives.
class CurrentStream {
 public:
  CurrentStream(int device, cuda::Stream stream) : device_(device) {
    TVMFFIEnvSetStream(kDLCUDA, device, stream, &previous_);
  }
  ~CurrentStream() { TVMFFIEnvSetStream(kDLCUDA, device_, previous_, nullptr); }
  CurrentStream(const CurrentStream&) = delete;
  CurrentStream& operator=(const CurrentStream&) = delete;

 private:
  const int device_;
  void* previous_ = nullptr;
};

class Exchange {
 public:
  Exchange(ffi::Function launch, ffi::Array<ffi::Tensor> inputs, ffi::Array<ffi::Tensor> outputs,
           int device)
      : device_(device),
        launch_(std::move(launch)),
        inputs_(std::move(inputs)),
        outputs_(std::move(outputs)) {}

  bool Run(ffi::PackedArgs arguments) const {
    if (arguments.size() != 1 + 2 * static_cast<int>(inputs_.size() + outputs_.size())) {
      TVM_FFI_THROW(ValueError) << "got " << arguments.size()
                                << " arguments, expected a stream and "
                                << inputs_.size() + outputs_.size() << " addresses with sizes";
    }
    DeviceGuard guard(device_);
    auto* stream = reinterpret_cast<cuda::Stream>(arguments[0].cast<int64_t>());
    if (QueryStream(stream).capturing()) return false;
    int next = 1;
    auto memory = [&] { return reinterpret_cast<char*>(arguments[next++].cast<int64_t>()); };
    auto bytes = [&] { return static_cast<size_t>(arguments[next++].cast<int64_t>()); };
    for (const ffi::Tensor& input : inputs_) {
      char* source = memory();
      Copy(Address(input), source, bytes(), stream);
    }
    {
      CurrentStream current(device_, stream);
      launch_();
    }
    for (const ffi::Tensor& output : outputs_) {
      char* target = memory();
      Copy(target, Address(output), bytes(), stream);
    }
    return true;
  }

 private:
  static void Copy(char* to, const char* from, size_t bytes, cuda::Stream stream) {
    if (to == from || bytes == 0) return;
    CONVOY_CUDA(cudaMemcpyAsync, to, from, bytes, cuda::kDeviceToDevice, stream);
  }

  const int device_;
  const ffi::Function launch_;
  const ffi::Array<ffi::Tensor> inputs_, outputs_;
};

ffi::Function MakeExchange(ffi::Function launch, ffi::Array<ffi::Tensor> inputs,
                           ffi::Array<ffi::Tensor> outputs, int device) {
  auto made =
      std::make_shared<Exchange>(std::move(launch), std::move(inputs), std::move(outputs), device);
  return ffi::Function::FromPacked(
      [made](ffi::PackedArgs arguments, ffi::Any* result) { *result = made->Run(arguments); });
}

}  // namespace

TVM_FFI_STATIC_INIT_BLOCK() {
  tvm::ffi::reflection::GlobalDef().def("convoy.graph.exchange", MakeExchange);
}

}  // namespace convoy
