// The runtime module of kind "convoy.launches": functions that launch kernels of the modules it
// imports, with addresses of their tensors and constants. It is the host's part of the kernels that
// TVM generates, as data. Functions that do more are those of a library that it imports.
//
// convoy.launches.create(text) makes one from JSON: for each function the number of its parameters,
// and its launches in order. An argument of a launch is a number, or the tensor of a parameter.
//   {"functions": {"add": {"parameters": 2, "launches": [
//     {"kernel": "add_kernel", "arguments": [{"tensor": 0}, {"tensor": 1}, 16, 128]}]}}}
#include <tvm/ffi/cast.h>
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/extra/module.h>
#include <tvm/ffi/function.h>
#include <tvm/ffi/reflection/registry.h>

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "json_fields.h"
#include "library.h"

namespace convoy {
namespace {

namespace ffi = tvm::ffi;

// An argument of a kernel: a constant, or the address of a parameter's tensor.
struct Argument {
  ffi::Any constant;
  int parameter = -1;
};

struct Launch {
  std::string kernel;
  std::vector<Argument> arguments;
};

struct LaunchFunction {
  int parameters = 0;
  std::vector<Launch> launches;
  std::vector<ffi::Function> kernels;  // of the launches, from the first call
  std::once_flag found;

  void Call(ffi::PackedArgs tensors) const;
};

void LaunchFunction::Call(ffi::PackedArgs tensors) const {
  if (tensors.size() != parameters) {
    TVM_FFI_THROW(TypeError) << "got " << tensors.size() << " tensors, expected " << parameters;
  }
  std::vector<void*> addresses;
  std::optional<DeviceGuard> guard;
  for (int i = 0; i < tensors.size(); ++i) {
    auto* tensor = tensors[i].cast<DLTensor*>();
    addresses.push_back(static_cast<char*>(tensor->data) + tensor->byte_offset);
    if (!guard && tensor->device.device_type == kDLCUDA) guard.emplace(tensor->device.device_id);
  }
  std::vector<ffi::AnyView> arguments;
  for (size_t i = 0; i < launches.size(); ++i) {
    arguments.clear();
    for (const Argument& one : launches[i].arguments) {
      if (one.parameter >= 0) {
        arguments.push_back(addresses[one.parameter]);
      } else {
        arguments.push_back(one.constant);
      }
    }
    ffi::Any result;
    kernels[i].CallPacked(arguments.data(), static_cast<int32_t>(arguments.size()), &result);
  }
}

Argument ParseArgument(const json::Value& value, int parameters) {
  if (auto whole = value.as<int64_t>()) return {*whole};
  if (auto real = value.as<double>()) return {*real};
  auto object = value.as<json::Object>();
  if (!object) TVM_FFI_THROW(InvalidOption) << "an argument " << json::Stringify(value);
  int64_t parameter = Require<int64_t>(*object, "tensor");
  if (parameter < 0 || parameter >= parameters) {
    TVM_FFI_THROW(InvalidOption) << "parameter " << parameter << " of " << parameters;
  }
  return {nullptr, static_cast<int>(parameter)};
}

std::unique_ptr<LaunchFunction> ParseFunction(const json::Object& object) {
  auto made = std::make_unique<LaunchFunction>();
  LaunchFunction& function = *made;
  function.parameters = static_cast<int>(Require<int64_t>(object, "parameters"));
  for (const json::Value& value : Require<json::Array>(object, "launches")) {
    auto fields = value.as<json::Object>();
    if (!fields) TVM_FFI_THROW(InvalidOption) << "a launch that is no JSON object";
    Launch launch{GetString(*fields, "kernel"), {}};
    for (const json::Value& argument : Require<json::Array>(*fields, "arguments")) {
      launch.arguments.push_back(ParseArgument(argument, function.parameters));
    }
    function.launches.push_back(std::move(launch));
  }
  return made;
}

class LaunchesObj : public ffi::ModuleObj {
 public:
  explicit LaunchesObj(const ffi::String& text) : text_(text) {
    json::Object object = ParseObject(text, "launches");
    for (const auto& [name, value] : Require<json::Object>(object, "functions")) {
      auto fields = value.as<json::Object>();
      if (!fields) TVM_FFI_THROW(InvalidOption) << "a function that is no JSON object";
      functions_[name.cast<ffi::String>()] = ParseFunction(*fields);
    }
  }

  const char* kind() const final { return "convoy.launches"; }
  int GetPropertyMask() const final {
    return ffi::Module::kBinarySerializable | ffi::Module::kRunnable;
  }

  ffi::Optional<ffi::Function> GetFunction(const ffi::String& name) final {
    auto found = functions_.find(name);
    if (found == functions_.end()) return OfLibrary(name);
    auto self = ffi::GetRef<ffi::Module>(this);
    return ffi::Function::FromPacked(
        [self, this, function = found->second.get()](ffi::PackedArgs tensors, ffi::Any*) {
          std::call_once(function->found, [&] { FindKernels(function); });
          function->Call(tensors);
        });
  }

  ffi::Bytes SaveToBytes() const final { return ffi::Bytes(std::string(text_)); }
  ffi::String InspectSource(const ffi::String&) const final { return text_; }

  static ffi::Module Create(const ffi::String& text) {
    return ffi::Module(ffi::make_object<LaunchesObj>(text));
  }
  static ffi::Module Load(const ffi::Bytes& bytes) { return Create(ffi::String(bytes)); }

 private:
  // A function that does more than to launch, which is compiled for the host.
  ffi::Optional<ffi::Function> OfLibrary(const ffi::String& name) const {
    for (const ffi::Any& imported : imports()) {
      auto module = imported.cast<ffi::Module>();
      if (std::string(module->kind()) == "cuda") continue;
      if (auto function = module->GetFunction(name)) return function;
    }
    return std::nullopt;
  }

  void FindKernels(LaunchFunction* function) const {
    std::vector<ffi::Function> kernels;
    for (const Launch& launch : function->launches) kernels.push_back(Kernel(launch.kernel));
    function->kernels = std::move(kernels);
  }

  ffi::Function Kernel(const std::string& name) const {
    for (const ffi::Any& imported : imports()) {
      if (auto kernel = imported.cast<ffi::Module>()->GetFunction(name, true)) return *kernel;
    }
    TVM_FFI_THROW(CorruptArtefact) << "kernel '" << name << "' is in none of the imported modules";
  }

  const ffi::String text_;
  std::map<std::string, std::unique_ptr<LaunchFunction>> functions_;
};

}  // namespace

TVM_FFI_STATIC_INIT_BLOCK() {
  namespace refl = tvm::ffi::reflection;
  refl::GlobalDef()
      .def("convoy.launches.create", LaunchesObj::Create)
      .def("ffi.Module.load_from_bytes.convoy.launches", LaunchesObj::Load);
}

}  // namespace convoy
