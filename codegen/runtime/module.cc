// The runtime module, kind "convoy": functions by symbol, saved with the library that it is
// exported in, and loaded without touching a device.
//
// Besides the functions of its specification it has
//   convoy_prepare(device_id = 0)  builds plans and workspaces for the calling thread and stream
//   convoy_spec()                  the specification as JSON text
//   convoy_symbols()               names of its functions
//   convoy_meta()                  the text that the builder of the module left in it
#include <tvm/ffi/cast.h>
#include <tvm/ffi/container/array.h>
#include <tvm/ffi/extra/module.h>
#include <tvm/ffi/reflection/registry.h>

#include <map>
#include <mutex>

#include "artifact.h"
#include "function.h"

namespace convoy {
namespace {

namespace ffi = tvm::ffi;

constexpr int64_t kSpecFormat = 1;

// 128 bits of two FNV-1a hashes with different bases: content, not secrecy.
std::string ContentId(const std::string& text) {
  uint64_t a = 0xcbf29ce484222325u, b = 0x9ae16a3b2f90404fu;
  for (unsigned char c : text) {
    a = (a ^ c) * 0x100000001b3u;
    b = (b ^ c) * 0x100000001b3u;
    b ^= b >> 31;
  }
  return std::to_string(a) + "-" + std::to_string(b);
}

FunctionSpec ParseFunction(const json::Object& entry) {
  FunctionSpec function{GetString(entry, "symbol"),
                        GetString(entry, "backend"),
                        Workload::FromJson(Require<json::Object>(entry, "workload")),
                        entry,
                        0,
                        ""};
  if (function.symbol.empty()) TVM_FFI_THROW(InvalidOption) << "a function without a symbol";
  function.workspace = Get<int64_t>(entry, "workspace", 0);
  json::Object content;
  for (const auto& [name, value] : entry) {
    if (name.cast<ffi::String>() != "symbol") content.Set(name, value);
  }
  function.content_id = ContentId(json::Stringify(content));
  return function;
}

std::shared_ptr<const ModuleData> ParseModule(const std::string& spec, const BlobMap& blobs) {
  auto data = std::make_shared<ModuleData>();
  data->spec = spec;
  data->blobs = blobs;
  json::Object object = ParseObject(spec, "module specification");
  int64_t format = Get<int64_t>(object, "format", kSpecFormat);
  if (format > kSpecFormat) {
    TVM_FFI_THROW(LibraryVersionMismatch)
        << "a module specification of format " << format << "; this convoy reads up to "
        << kSpecFormat << ". Install a newer tvm-convoy";
  }
  data->meta = GetString(object, "meta");
  data->arch = static_cast<int>(Require<int64_t>(Require<json::Object>(object, "device"), "arch"));
  for (const auto& value : Require<json::Array>(object, "functions")) {
    auto entry = value.as<json::Object>();
    if (!entry) TVM_FFI_THROW(InvalidOption) << "a function that is no JSON object";
    data->functions.push_back(ParseFunction(*entry));
    const FunctionSpec& function = data->functions.back();
    const BackendRuntime& backend = FindBackend(function.backend);
    if (data->arch == 0 && !backend.runs_on_host) {
      TVM_FFI_THROW(InvalidOption) << "backend '" << function.backend << "' of function '"
                                   << function.symbol << "' in a module for host memory";
    }
    backend.validate(function, blobs);
    data->workspace = std::max(data->workspace, function.workspace);
  }
  return data;
}

class ConvoyModuleObj : public ffi::ModuleObj {
 public:
  explicit ConvoyModuleObj(std::shared_ptr<const ModuleData> data) : data_(std::move(data)) {
    for (const FunctionSpec& spec : data_->functions) {
      if (!functions_.emplace(spec.symbol, std::make_shared<ConvoyFunction>(data_, spec)).second) {
        TVM_FFI_THROW(InvalidOption) << "two functions of the symbol '" << spec.symbol << "'";
      }
    }
  }

  const char* kind() const final { return "convoy"; }
  int GetPropertyMask() const final {
    return ffi::Module::kBinarySerializable | ffi::Module::kRunnable;
  }

  ffi::Optional<ffi::Function> GetFunction(const ffi::String& name) final {
    auto it = functions_.find(std::string(name));
    if (it != functions_.end()) {
      return ffi::Function::FromPacked(
          [function = it->second](ffi::PackedArgs args, ffi::Any*) { function->Call(args); });
    }
    auto self = ffi::GetRef<ffi::Module>(this);
    if (name == "convoy_prepare") {
      return ffi::Function::FromPacked([self, this](ffi::PackedArgs args, ffi::Any*) {
        Prepare(args.size() > 0 ? args[0].cast<int>() : 0);
      });
    }
    if (name == "convoy_spec") {
      return ffi::Function::FromTyped([self, this]() { return ffi::String(data_->spec); });
    }
    if (name == "convoy_symbols") {
      return ffi::Function::FromTyped([self, this]() {
        ffi::Array<ffi::String> symbols;
        for (const FunctionSpec& spec : data_->functions) symbols.push_back(spec.symbol);
        return symbols;
      });
    }
    if (name == "convoy_meta") {
      return ffi::Function::FromTyped([self, this]() { return ffi::String(data_->meta); });
    }
    return std::nullopt;
  }

  ffi::Bytes SaveToBytes() const final { return WriteArtifact({data_->spec, data_->blobs}); }

  ffi::String InspectSource(const ffi::String& format) const final { return data_->spec; }

  static ffi::Module Create(ffi::String spec, BlobMap blobs) {
    return ffi::Module(ffi::make_object<ConvoyModuleObj>(ParseModule(spec, blobs)));
  }

  static ffi::Module Load(const ffi::Bytes& bytes) {
    Artifact artifact = ReadArtifact(bytes);
    return Create(artifact.spec, artifact.blobs);
  }

 private:
  void Prepare(int device_id) {
    DLDevice device = {data_->arch == 0 ? kDLCPU : kDLCUDA, device_id};
    for (auto& [symbol, function] : functions_) function->Prepare(device);
  }

  std::shared_ptr<const ModuleData> data_;
  std::map<std::string, std::shared_ptr<ConvoyFunction>> functions_;
};

}  // namespace

TVM_FFI_STATIC_INIT_BLOCK() {
  namespace refl = tvm::ffi::reflection;
  refl::GlobalDef()
      .def("convoy.module.create", ConvoyModuleObj::Create)
      .def("convoy.module.save", [](const ffi::Module& module) { return module->SaveToBytes(); })
      .def("ffi.Module.load_from_bytes.convoy", ConvoyModuleObj::Load);
}

}  // namespace convoy
