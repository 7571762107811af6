// FFI function convoy.marks.create: when the device gets where, for timelines of a run.
//
//   convoy.marks.create(count, device) -> [mark, times]
//     mark(i)   enqueues mark i (0 to count - 1) on the current stream; inside a capture it becomes
//               a node of the graph, and every replay passes it anew
//     times()   waits for the device, then for each mark microseconds since mark 0, NaN for marks
//               that were never enqueued
//
// A mark is a timing event. In a graph it delays what follows on its stream by about a microsecond.
#include <tvm/ffi/container/array.h>
#include <tvm/ffi/extra/c_env_api.h>
#include <tvm/ffi/function.h>
#include <tvm/ffi/reflection/registry.h>

#include <limits>
#include <memory>
#include <vector>

#include "capture.h"
#include "library.h"

namespace convoy {
namespace {

namespace ffi = tvm::ffi;

class Marks {
 public:
  Marks(int64_t count, int device) : device_(device), marked_(count, false) {
    DeviceGuard guard(device);
    for (int64_t i = 0; i < count; ++i) {
      cuda::Event event = nullptr;
      CONVOY_CUDA(cudaEventCreateWithFlags, &event, 0);
      events_.push_back(event);
    }
  }
  ~Marks() {
    for (cuda::Event event : events_) Cuda().cudaEventDestroy(event);
  }
  Marks(const Marks&) = delete;
  Marks& operator=(const Marks&) = delete;

  void Mark(int64_t index) {
    if (index < 0 || index >= static_cast<int64_t>(events_.size())) {
      TVM_FFI_THROW(ValueError) << "mark " << index << " of " << events_.size();
    }
    DeviceGuard guard(device_);
    cuda::Stream stream = TVMFFIEnvGetStream(kDLCUDA, device_);
    // External: the node records the event itself, instead of only ordering the capture.
    unsigned flags = QueryStream(stream).capturing() ? cuda::kEventRecordExternal : 0;
    CONVOY_CUDA(cudaEventRecordWithFlags, events_[index], stream, flags);
    marked_[index] = true;
  }

  ffi::Array<double> Times() const {
    DeviceGuard guard(device_);
    CONVOY_CUDA(cudaDeviceSynchronize);
    std::vector<double> times(events_.size(), std::numeric_limits<double>::quiet_NaN());
    for (size_t i = 0; i < events_.size(); ++i) {
      if (!marked_[i] || !marked_[0]) continue;
      float ms = 0;
      CONVOY_CUDA(cudaEventElapsedTime, &ms, events_[0], events_[i]);
      times[i] = 1e3 * ms;
    }
    return ffi::Array<double>(times.begin(), times.end());
  }

 private:
  const int device_;
  std::vector<cuda::Event> events_;
  std::vector<bool> marked_;
};

ffi::Array<ffi::Function> Create(int64_t count, int device) {
  auto marks = std::make_shared<Marks>(count, device);
  return {ffi::Function::FromTyped([marks](int64_t index) { marks->Mark(index); }),
          ffi::Function::FromTyped([marks]() { return marks->Times(); })};
}

}  // namespace

TVM_FFI_STATIC_INIT_BLOCK() {
  namespace refl = tvm::ffi::reflection;
  refl::GlobalDef().def("convoy.marks.create", Create);
}

}  // namespace convoy
