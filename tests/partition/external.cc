// A serialisable module with one function, out[i] = x[i] + w[i] + offset: stands in for the runtime.
#include <tvm/ffi/extra/module.h>
#include <tvm/ffi/reflection/registry.h>
#include <tvm/ffi/tvm_ffi.h>

#include <string>

namespace ffi = tvm::ffi;

class AddModule : public ffi::ModuleObj {
 public:
  AddModule(std::string symbol, int64_t offset) : symbol_(std::move(symbol)), offset_(offset) {}
  const char* kind() const final { return "convoy_test_add"; }
  int GetPropertyMask() const final {
    return ffi::Module::kBinarySerializable | ffi::Module::kRunnable;
  }
  ffi::Optional<ffi::Function> GetFunction(const ffi::String& name) final {
    if (std::string(name) != symbol_) return std::nullopt;
    int64_t offset = offset_;
    return ffi::Function::FromTyped(
        [offset](ffi::TensorView x, ffi::TensorView w, ffi::TensorView out) {
          for (int64_t i = 0; i < out.numel(); ++i) {
            static_cast<float*>(out.data_ptr())[i] = static_cast<const float*>(x.data_ptr())[i] +
                                                     static_cast<const float*>(w.data_ptr())[i] +
                                                     static_cast<float>(offset);
          }
        });
  }
  ffi::Bytes SaveToBytes() const final { return ffi::Bytes(std::to_string(offset_) + symbol_); }
  static ffi::Module Load(const ffi::Bytes& bytes) {
    std::string text(bytes.data(), bytes.size());
    size_t digits = 0;
    int64_t offset = std::stoll(text, &digits);
    return ffi::Module(ffi::make_object<AddModule>(text.substr(digits), offset));
  }

 private:
  std::string symbol_;
  int64_t offset_;
};

TVM_FFI_STATIC_INIT_BLOCK() {
  ffi::reflection::GlobalDef()
      .def("convoy_test.add_module",
           [](ffi::String symbol, int64_t offset) {
             return ffi::Module(ffi::make_object<AddModule>(std::string(symbol), offset));
           })
      .def("ffi.Module.load_from_bytes.convoy_test_add", AddModule::Load);
}
