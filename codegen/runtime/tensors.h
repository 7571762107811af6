// Tensors as functions of TVM's virtual machine take and give them.
#pragma once

#include <tvm/ffi/container/array.h>
#include <tvm/ffi/container/tensor.h>

#include <vector>

namespace convoy {

// Where the elements of a tensor begin.
inline char* Address(const tvm::ffi::Tensor& tensor) {
  return static_cast<char*>(tensor.data_ptr()) + tensor.byte_offset();
}

// The tensors of a result, which is one or a nested tuple of them, in order.
inline std::vector<tvm::ffi::Tensor> Flattened(const tvm::ffi::Any& result) {
  auto array = result.as<tvm::ffi::Array<tvm::ffi::Any>>();
  if (!array) return {result.cast<tvm::ffi::Tensor>()};
  std::vector<tvm::ffi::Tensor> tensors;
  for (const tvm::ffi::Any& item : *array) {
    for (tvm::ffi::Tensor& tensor : Flattened(item)) tensors.push_back(std::move(tensor));
  }
  return tensors;
}

}  // namespace convoy
