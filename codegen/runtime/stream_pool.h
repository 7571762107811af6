// Streams and events of a thread, from which scheduled functions take theirs.
//
// A scheduled function runs between fork and join on the caller's stream (number 0) and on side
// streams (1, 2, ...). Side streams and events belong to one (thread, device) and are kept, so that
// nothing is created on the hot path. Functions of one thread may share them: an event orders what
// was enqueued before its latest record, and every wait comes behind its record in the same run.
#pragma once

#include <cstddef>
#include <vector>

#include "library.h"

namespace convoy {

class StreamPool {
 public:
  explicit StreamPool(int device) : device_(device) {}

  // Side stream `number` (from 1). It does not synchronise with the legacy stream.
  cuda::Stream Side(size_t number);
  cuda::Event Event(size_t number);
  // The stream that captures are made on; never a side stream.
  cuda::Stream Capture();

 private:
  const int device_;
  cuda::Stream capture_ = nullptr;
  std::vector<cuda::Stream> streams_;
  std::vector<cuda::Event> events_;
};

}  // namespace convoy
