// Owning handles for cuDNN backend descriptors, with errors that carry cuDNN's own words.
#pragma once

#include <tvm/ffi/error.h>

#include <deque>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "library.h"

namespace convoy {

// cuDNN refused something. Caught where another configuration can be tried; what reaches a user is
// turned into one of the errors of convoy.errors.
class CudnnRefusal : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

inline void CheckCudnn(cudnn::Status status, const char* what) {
  if (status != cudnn::kSuccess) throw CudnnRefusal(std::string(what) + ": " + CudnnError(status));
}

class CudnnDescriptor {
 public:
  CudnnDescriptor() = default;
  explicit CudnnDescriptor(cudnn::DescriptorType type) {
    CheckCudnn(Cudnn().cudnnBackendCreateDescriptor(type, &raw_), "creating a descriptor");
  }
  ~CudnnDescriptor() {
    if (raw_) Cudnn().cudnnBackendDestroyDescriptor(raw_);
  }
  CudnnDescriptor(CudnnDescriptor&& other) noexcept : raw_(std::exchange(other.raw_, nullptr)) {}
  CudnnDescriptor& operator=(CudnnDescriptor&& other) noexcept {
    std::swap(raw_, other.raw_);
    return *this;
  }

  cudnn::Descriptor get() const { return raw_; }
  // Gives the descriptor up; it is never destroyed.
  cudnn::Descriptor Leak() { return std::exchange(raw_, nullptr); }

  CudnnDescriptor& Set(cudnn::Attribute attribute, cudnn::AttributeType type, int64_t count,
                       const void* values) {
    CheckCudnn(Cudnn().cudnnBackendSetAttribute(raw_, attribute, type, count, values),
               "setting an attribute");
    return *this;
  }
  template <typename T>
  CudnnDescriptor& Set(cudnn::Attribute attribute, cudnn::AttributeType type, const T& value) {
    return Set(attribute, type, 1, &value);
  }
  CudnnDescriptor& Set(cudnn::Attribute attribute, const CudnnDescriptor& value) {
    return Set(attribute, cudnn::kTypeDescriptor, 1, &value.raw_);
  }
  CudnnDescriptor& Set(cudnn::Attribute attribute, const std::vector<int64_t>& values) {
    return Set(attribute, cudnn::kTypeInt64, static_cast<int64_t>(values.size()), values.data());
  }

  void Finalize() { CheckCudnn(Cudnn().cudnnBackendFinalize(raw_), "finalising a descriptor"); }

  // Reads up to `count` values; returns how many there are, 0 when the attribute is not known.
  int64_t Get(cudnn::Attribute attribute, cudnn::AttributeType type, int64_t count,
              void* values) const {
    int64_t size = 0;
    cudnn::Status status =
        Cudnn().cudnnBackendGetAttribute(raw_, attribute, type, count, &size, values);
    return status == cudnn::kSuccess ? size : 0;
  }
  std::string GetText(cudnn::Attribute attribute) const {
    int64_t size = Get(attribute, cudnn::kTypeChar, 0, nullptr);
    std::string text(static_cast<size_t>(size), '\0');
    if (size > 0) size = Get(attribute, cudnn::kTypeChar, size, &text[0]);
    text.resize(static_cast<size_t>(size));
    while (!text.empty() && text.back() == '\0') text.pop_back();
    return text;
  }

 private:
  cudnn::Descriptor raw_ = nullptr;
};

}  // namespace convoy
