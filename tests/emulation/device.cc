// A device that TVM takes workspaces from: memory of the host, and no GPU to ask for its properties.

#include <tvm/runtime/device_api.h>

#include <cstdlib>

namespace {

class EmulatedDevice final : public tvm::runtime::DeviceAPI {
 public:
  void SetDevice(tvm::Device) override {}
  void GetAttr(tvm::Device, tvm::runtime::DeviceAttrKind kind, tvm::ffi::Any* value) override {
    if (kind == tvm::runtime::kExist) *value = 0;
  }
  void* AllocDataSpace(tvm::Device, size_t bytes, size_t alignment, DLDataType) override {
    return std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
  }
  void FreeDataSpace(tvm::Device, void* memory) override { std::free(memory); }
  void StreamSync(tvm::Device, TVMStreamHandle) override {}
};

}  // namespace

extern "C" void* emulated_device() {
  static EmulatedDevice device;
  return &device;
}
