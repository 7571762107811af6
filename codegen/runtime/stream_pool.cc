#include "stream_pool.h"

namespace convoy {

cuda::Stream StreamPool::Side(size_t number) {
  if (number > streams_.size()) {
    DeviceGuard guard(device_);
    while (number > streams_.size()) {
      cuda::Stream stream = nullptr;
      CONVOY_CUDA(cudaStreamCreateWithFlags, &stream, cuda::kStreamNonBlocking);
      streams_.push_back(stream);
    }
  }
  return streams_[number - 1];
}

cuda::Stream StreamPool::Capture() {
  if (capture_ == nullptr) {
    DeviceGuard guard(device_);
    CONVOY_CUDA(cudaStreamCreateWithFlags, &capture_, cuda::kStreamNonBlocking);
  }
  return capture_;
}

cuda::Event StreamPool::Event(size_t number) {
  if (number >= events_.size()) {
    DeviceGuard guard(device_);
    while (number >= events_.size()) {
      cuda::Event event = nullptr;
      CONVOY_CUDA(cudaEventCreateWithFlags, &event, cuda::kEventDisableTiming);
      events_.push_back(event);
    }
  }
  return events_[number];
}

}  // namespace convoy
