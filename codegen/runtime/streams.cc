// FFI functions convoy.streams.*: what a scheduled function calls between its kernels. The Relax
// program of such a function is one call of
//
//   convoy.streams.run(vm, body, arguments...)   body(arguments...) between fork and join
//
// and the body calls, in launch order,
//
//   convoy.streams.on(stream, event...)   what follows goes to this stream, behind these events
//   convoy.streams.record(event)          behind what the current stream has so far
//
// On host memory all of them do nothing, since the order of the calls is itself a legal one.
#include <tvm/ffi/container/array.h>
#include <tvm/ffi/container/shape.h>
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/extra/c_env_api.h>
#include <tvm/ffi/function.h>
#include <tvm/ffi/reflection/registry.h>

#include <optional>
#include <vector>

#include "context.h"
#include "stream_pool.h"

namespace convoy {
namespace {

namespace ffi = tvm::ffi;

// The run of one scheduled function in this thread. Whatever happens inside, the thread's stream is
// afterwards the one that it was before.
class ScheduledRun {
 public:
  explicit ScheduledRun(DLDevice device) : device_(device), outer_(current_) {
    if (on_gpu()) {
      guard_.emplace(device.device_id);
      origin_ = TVMFFIEnvGetStream(kDLCUDA, device.device_id);
      pool_ = &ThreadContext::Current().Streams(device.device_id);
    }
    current_ = this;
  }

  ~ScheduledRun() {
    current_ = outer_;
    if (!on_gpu()) return;
    if (!joined_) JoinAll();
    TVMFFIEnvSetStream(kDLCUDA, device_.device_id, origin_, nullptr);
  }

  ScheduledRun(const ScheduledRun&) = delete;
  ScheduledRun& operator=(const ScheduledRun&) = delete;

  static ScheduledRun& Current() {
    if (current_ == nullptr) {
      TVM_FFI_THROW(RuntimeError) << "a stream call outside of convoy.streams.run";
    }
    return *current_;
  }

  void Use(int64_t stream) {
    if (!on_gpu()) return;
    stream_ = stream == 0 ? origin_ : pool_->Side(static_cast<size_t>(stream));
    if (stream >= static_cast<int64_t>(used_.size())) used_.resize(stream + 1, false);
    used_[stream] = true;
    TVMFFIEnvSetStream(kDLCUDA, device_.device_id, stream_, nullptr);
  }

  void Wait(int64_t event) {
    if (!on_gpu()) return;
    CONVOY_CUDA(cudaStreamWaitEvent, stream_, pool_->Event(static_cast<size_t>(event)), 0);
  }

  void Record(int64_t event) {
    if (!on_gpu()) return;
    CONVOY_CUDA(cudaEventRecord, pool_->Event(static_cast<size_t>(event)), stream_);
  }

  // The body came to its end, so all its streams are joined.
  void Finish() { joined_ = true; }

 private:
  bool on_gpu() const { return device_.device_type == kDLCUDA; }

  // After a failure half way: what the caller does next waits for what is under way on the side
  // streams, and a capture finds them joined. Errors cannot be told beside the one under way.
  void JoinAll() noexcept {
    const CudaApi& api = Cuda();
    for (size_t i = 1; i < used_.size(); ++i) {
      if (!used_[i]) continue;
      cuda::Event event = nullptr;
      if (api.cudaEventCreateWithFlags(&event, cuda::kEventDisableTiming) != cuda::kSuccess)
        continue;
      if (api.cudaEventRecord(event, pool_->Side(i)) == cuda::kSuccess) {
        api.cudaStreamWaitEvent(origin_, event, 0);
      }
      api.cudaEventDestroy(event);
    }
    api.cudaGetLastError();
  }

  static thread_local ScheduledRun* current_;

  const DLDevice device_;
  ScheduledRun* const outer_;
  std::optional<DeviceGuard> guard_;
  cuda::Stream origin_ = nullptr, stream_ = nullptr;
  StreamPool* pool_ = nullptr;
  std::vector<bool> used_;
  bool joined_ = false;
};

thread_local ScheduledRun* ScheduledRun::current_ = nullptr;

// Device of the first tensor among the arguments, tuples included.
std::optional<DLDevice> DeviceOf(const ffi::AnyView& value) {
  if (auto tensor = value.try_cast<DLTensor*>()) return (*tensor)->device;
  if (auto tuple = value.try_cast<ffi::Array<ffi::Any>>()) {
    for (const ffi::Any& item : *tuple) {
      if (auto device = DeviceOf(item)) return device;
    }
  }
  return std::nullopt;
}

void Run(ffi::PackedArgs args, ffi::Any* result) {
  static const ffi::Function invoke = ffi::Function::GetGlobalRequired("vm.builtin.invoke_closure");
  std::optional<DLDevice> device;
  for (int i = 2; i < args.size() && !device; ++i) device = DeviceOf(args[i]);
  ScheduledRun run(device.value_or(DLDevice{kDLCPU, 0}));
  run.Use(0);
  invoke.CallPacked(args, result);
  run.Finish();
}

void On(ffi::PackedArgs args, ffi::Any*) {
  ScheduledRun& run = ScheduledRun::Current();
  run.Use(args[0].cast<int64_t>());
  for (int i = 1; i < args.size(); ++i) run.Wait(args[i].cast<int64_t>());
}

void Record(int64_t event) { ScheduledRun::Current().Record(event); }

// A tensor inside an arena, which stays alive with it. Unlike TVM's own tensors inside a storage
// its pointer carries the offset, as TVM's kernels require.
struct InsideArena {
  ffi::Tensor arena;
  void AllocData(DLTensor* tensor, int64_t offset) {
    tensor->data = static_cast<char*>(arena.data_ptr()) + offset;
    tensor->byte_offset = 0;
  }
  void FreeData(DLTensor*) {}
};

int64_t Bytes(int64_t elements, DLDataType dtype) {
  return static_cast<int64_t>(ffi::GetDataSize(static_cast<size_t>(elements), dtype));
}

// Throws ValueError where so many elements at a byte offset lead out of an arena.
void CheckInside(const ffi::Tensor& arena, int64_t offset, int64_t elements, DLDataType dtype) {
  int64_t bytes = Bytes(elements, dtype), size = Bytes(arena.numel(), arena.dtype());
  if (offset < 0 || offset + bytes > size) {
    TVM_FFI_THROW(ValueError) << bytes << " bytes at " << offset << " of an arena of " << size;
  }
}

ffi::Tensor View(ffi::Tensor arena, int64_t offset, ffi::Shape shape, DLDataType dtype) {
  CheckInside(arena, offset, shape.Product(), dtype);
  return ffi::Tensor::FromNDAlloc(InsideArena{arena}, shape, dtype, arena.device(), offset);
}

// Some channels, the last axis, of a wider tensor at a byte offset of the arena: `row` elements lie
// between the first ones of neighbouring pixels.
ffi::Tensor Slice(ffi::Tensor arena, int64_t offset, ffi::Shape shape, DLDataType dtype,
                  int64_t row) {
  if (shape.empty() || row < shape.back()) {
    TVM_FFI_THROW(ValueError) << "a slice whose rows overlap: " << row << " elements apart";
  }
  std::vector<int64_t> strides(shape.size(), 1);
  int64_t step = row;
  for (size_t i = shape.size() - 1; i-- > 0; step *= shape[i]) strides[i] = step;
  CheckInside(arena, offset, step - row + shape.back(), dtype);
  return ffi::Tensor::FromNDAllocStrided(InsideArena{arena}, shape, ffi::Shape(strides), dtype,
                                         arena.device(), offset);
}

}  // namespace

TVM_FFI_STATIC_INIT_BLOCK() {
  namespace refl = tvm::ffi::reflection;
  refl::GlobalDef()
      .def_packed("convoy.streams.run", Run)
      .def_packed("convoy.streams.on", On)
      .def("convoy.streams.record", Record)
      .def("convoy.streams.view", View)
      .def("convoy.streams.slice", Slice);
}

}  // namespace convoy
