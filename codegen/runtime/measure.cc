// FFI functions convoy.measure.*: what a call costs on the device and on the host. Any function
// that enqueues work on the current stream can be timed. All times are microseconds.
#include <tvm/ffi/container/array.h>
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/extra/c_env_api.h>
#include <tvm/ffi/function.h>
#include <tvm/ffi/reflection/registry.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <map>
#include <vector>

#include "captured_graph.h"
#include "library.h"

namespace convoy {
namespace {

namespace ffi = tvm::ffi;
using Clock = std::chrono::steady_clock;

double MicrosecondsSince(Clock::time_point start) {
  return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

// A stream of this thread to measure on, made the current one for the life of the object. It is
// kept for the next time, because the runtime keeps workspace for each stream.
class MeasuringStream {
 public:
  explicit MeasuringStream(int device) : guard_(device), device_(device) {
    static thread_local std::map<int, cuda::Stream> streams;
    auto it = streams.find(device);
    if (it == streams.end()) {
      cuda::Stream stream = nullptr;
      CONVOY_CUDA(cudaStreamCreateWithFlags, &stream, cuda::kStreamNonBlocking);
      it = streams.emplace(device, stream).first;
    }
    stream_ = it->second;
    TVMFFIEnvSetStream(kDLCUDA, device_, stream_, &previous_);
  }
  ~MeasuringStream() { TVMFFIEnvSetStream(kDLCUDA, device_, previous_, nullptr); }
  MeasuringStream(const MeasuringStream&) = delete;
  MeasuringStream& operator=(const MeasuringStream&) = delete;

  cuda::Stream get() const { return stream_; }
  void Synchronize() const { CONVOY_CUDA(cudaStreamSynchronize, stream_); }

 private:
  DeviceGuard guard_;
  int device_;
  cuda::Stream stream_ = nullptr;
  void* previous_ = nullptr;
};

class TimingEvent {
 public:
  TimingEvent() { CONVOY_CUDA(cudaEventCreateWithFlags, &event_, 0); }
  ~TimingEvent() { Cuda().cudaEventDestroy(event_); }
  TimingEvent(const TimingEvent&) = delete;
  TimingEvent& operator=(const TimingEvent&) = delete;
  cuda::Event get() const { return event_; }

 private:
  cuda::Event event_ = nullptr;
};

// A graph with the device time of its replays. What is captured may allocate its result.
class TimedGraph {
 public:
  TimedGraph(cuda::Stream stream, const std::function<void()>& enqueue)
      : graph_(stream, cuda::kCaptureRelaxed, enqueue) {}

  // Device time of one replay, by events around it.
  double Replay(cuda::Stream stream) const {
    CONVOY_CUDA(cudaEventRecord, start_.get(), stream);
    graph_.Launch(stream);
    CONVOY_CUDA(cudaEventRecord, stop_.get(), stream);
    CONVOY_CUDA(cudaEventSynchronize, stop_.get());
    float ms = 0;
    CONVOY_CUDA(cudaEventElapsedTime, &ms, start_.get(), stop_.get());
    return ms * 1e3;
  }

 private:
  CapturedGraph graph_;
  TimingEvent start_, stop_;
};

// Repeats `once` until `samples` values are there or `budget_us` of host time are spent, but at
// least three times.
std::vector<double> Sample(int64_t samples, double budget_us, const std::function<double()>& once) {
  std::vector<double> values;
  Clock::time_point start = Clock::now();
  while (static_cast<int64_t>(values.size()) < samples &&
         (values.size() < 3 || MicrosecondsSince(start) < budget_us)) {
    values.push_back(once());
  }
  return values;
}

ffi::Array<double> ToArray(const std::vector<double>& values) {
  return ffi::Array<double>(values.begin(), values.end());
}

// A function and its arguments as one thing to call.
class Call {
 public:
  Call(ffi::Function function, const ffi::Array<ffi::Any>& arguments)
      : function_(std::move(function)), owned_(arguments) {
    for (const ffi::Any& argument : owned_) views_.push_back(argument);
  }
  void operator()() {
    function_.CallPacked(views_.data(), static_cast<int32_t>(views_.size()), &result_);
  }

 private:
  ffi::Any result_;  // memory that a captured call writes stays allocated
  ffi::Function function_;
  ffi::Array<ffi::Any> owned_;
  std::vector<ffi::AnyView> views_;
};

// A call on the measuring stream, made once: a first call may allocate and compile.
struct WarmCall {
  WarmCall(const ffi::Function& function, const ffi::Array<ffi::Any>& arguments, int device)
      : stream(device), call(function, arguments) {
    call();
    stream.Synchronize();
  }
  MeasuringStream stream;
  Call call;
};

// Device time of one call with a warm cache: `launches` calls in one CUDA graph, replayed; each
// sample is a replay divided by `launches`.
ffi::Array<double> KernelTime(ffi::Function function, ffi::Array<ffi::Any> arguments, int device,
                              int64_t launches, int64_t samples, double budget_us) {
  WarmCall warm(function, arguments, device);
  TimedGraph graph(warm.stream.get(), [&] {
    for (int64_t i = 0; i < launches; ++i) warm.call();
  });
  graph.Replay(warm.stream.get());
  return ToArray(Sample(samples, budget_us, [&] {
    return graph.Replay(warm.stream.get()) / static_cast<double>(launches);
  }));
}

// The same with `flush`, a device tensor larger than the L2 cache, overwritten before each call.
// The time of a graph of the overwrites alone, taken right before, is subtracted.
ffi::Array<double> ColdTime(ffi::Function function, ffi::Array<ffi::Any> arguments, int device,
                            ffi::TensorView flush, int64_t launches, int64_t samples,
                            double budget_us) {
  WarmCall warm(function, arguments, device);
  size_t bytes = ffi::GetDataSize(static_cast<size_t>(flush.numel()), flush.dtype());
  auto overwrite = [&] {
    CONVOY_CUDA(cudaMemsetAsync, flush.data_ptr(), 0, bytes, warm.stream.get());
  };
  TimedGraph alone(warm.stream.get(), [&] {
    for (int64_t i = 0; i < launches; ++i) overwrite();
  });
  TimedGraph both(warm.stream.get(), [&] {
    for (int64_t i = 0; i < launches; ++i) {
      overwrite();
      warm.call();
    }
  });
  alone.Replay(warm.stream.get());
  both.Replay(warm.stream.get());
  return ToArray(Sample(samples, budget_us, [&] {
    double without = alone.Replay(warm.stream.get());
    return (both.Replay(warm.stream.get()) - without) / static_cast<double>(launches);
  }));
}

// Host time of one call that does not wait for the device: `calls` in a row for each sample.
ffi::Array<double> EnqueueTime(ffi::Function function, ffi::Array<ffi::Any> arguments, int device,
                               int64_t calls, int64_t samples, double budget_us) {
  WarmCall warm(function, arguments, device);
  return ToArray(Sample(samples, budget_us, [&] {
    Clock::time_point start = Clock::now();
    for (int64_t i = 0; i < calls; ++i) warm.call();
    double elapsed = MicrosecondsSince(start);
    warm.stream.Synchronize();
    return elapsed / static_cast<double>(calls);
  }));
}

// Host time of one call and the wait for its end.
ffi::Array<double> EndToEndTime(ffi::Function function, ffi::Array<ffi::Any> arguments, int device,
                                int64_t samples, double budget_us) {
  WarmCall warm(function, arguments, device);
  return ToArray(Sample(samples, budget_us, [&] {
    Clock::time_point start = Clock::now();
    warm.call();
    warm.stream.Synchronize();
    return MicrosecondsSince(start);
  }));
}

// One call on the measuring stream, waited for.
void CallOnce(ffi::Function function, ffi::Array<ffi::Any> arguments, int device) {
  WarmCall(function, arguments, device);
}

}  // namespace

TVM_FFI_STATIC_INIT_BLOCK() {
  namespace refl = tvm::ffi::reflection;
  refl::GlobalDef()
      .def("convoy.measure.kernel_us", KernelTime)
      .def("convoy.measure.cold_us", ColdTime)
      .def("convoy.measure.enqueue_us", EnqueueTime)
      .def("convoy.measure.e2e_us", EndToEndTime)
      .def("convoy.measure.call", CallOnce);
}

}  // namespace convoy
