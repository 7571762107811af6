#include "deployed_module.h"

#include <dlfcn.h>
#include <sys/mman.h>
#include <tvm/ffi/container/array.h>
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/dtype.h>
#include <tvm/ffi/function.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>

#include "library.h"
#include "sha256.h"

namespace convoy {
namespace {

namespace ffi = tvm::ffi;

// Behind the shared object: length (8 bytes, little endian), SHA-256, magic.
constexpr size_t kSealBytes = 8 + 32 + 8;
constexpr int64_t kMetaFormat = 1;

void CheckSeal(const uint8_t* data, size_t size) {
  if (size < kSealBytes || std::memcmp(data + size - 8, "CONVOYSO", 8) != 0) {
    TVM_FFI_THROW(CorruptArtefact) << "a module without a seal at its end (truncated, or not "
                                      "written by export_library)";
  }
  const uint8_t* seal = data + size - kSealBytes;
  uint64_t length = 0;
  for (int i = 7; i >= 0; --i) length = length << 8 | seal[i];
  if (length != size - kSealBytes || std::memcmp(Sha256(data, length).data(), seal + 8, 32) != 0) {
    TVM_FFI_THROW(CorruptArtefact) << "a module whose bytes differ from what was sealed";
  }
}

void OwnSymbol() {}  // an address in this library

// Folders where TVM's libraries may be that the dynamic linker does not know.
std::vector<std::string> TvmFolders() {
  std::vector<std::string> folders;
  if (const char* listed = std::getenv("CONVOY_TVM_LIBRARY_PATH")) {
    std::string text = listed;
    for (size_t start = 0; start <= text.size();) {
      size_t end = std::min(text.find(':', start), text.size());
      if (end > start) folders.push_back(text.substr(start, end - start));
      start = end + 1;
    }
  }
  for (void* known :
       {reinterpret_cast<void*>(&OwnSymbol), reinterpret_cast<void*>(&TVMFFIFunctionGetGlobal)}) {
    Dl_info info{};
    if (dladdr(known, &info) == 0 || info.dli_fname == nullptr) continue;
    std::string path = info.dli_fname;
    size_t slash = path.rfind('/');
    if (slash == std::string::npos) continue;
    folders.push_back(path.substr(0, slash));                     // beside it
    folders.push_back(path.substr(0, slash) + "/../../tvm/lib");  // site-packages
  }
  return folders;
}

// Opens one of TVM's libraries, in which global functions register themselves.
bool OpenTvm(const std::string& name, std::string* tried) {
  std::vector<std::string> paths = {name};
  for (const std::string& folder : TvmFolders()) paths.push_back(folder + "/" + name);
  for (const std::string& path : paths) {
    if (dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL) != nullptr) return true;
    const char* reason = dlerror();
    *tried += std::string("\n  ") + (reason != nullptr ? reason : path.c_str());
  }
  return false;
}

void LoadTvmRuntime() {
  if (ffi::Function::GetGlobal("ffi.Module.load_from_bytes.relax.VMExecutable")) return;
  std::string tried;
  if (!OpenTvm("libtvm_runtime.so", &tried)) {
    TVM_FFI_THROW(LibraryMissing) << "TVM's runtime (libtvm_runtime.so of apache-tvm 0.27) was not "
                                     "found. Put its folder into "
                                     "LD_LIBRARY_PATH or CONVOY_TVM_LIBRARY_PATH. Tried:"
                                  << tried;
  }
  OpenTvm("libtvm_runtime_extra.so", &tried);  // what is not there is missed where it is needed
}

void LoadTvmCuda() {
  if (ffi::Function::GetGlobal("ffi.Module.load_from_bytes.cuda")) return;
  Cuda();  // TVM's part links to libcudart, which is found where it is open already
  std::string tried;
  if (!OpenTvm("libtvm_runtime_cuda.so", &tried)) {
    TVM_FFI_THROW(LibraryMissing) << "TVM's CUDA runtime (libtvm_runtime_cuda.so) was not found. "
                                     "Put its folder into LD_LIBRARY_PATH or "
                                     "CONVOY_TVM_LIBRARY_PATH. Tried:"
                                  << tried;
  }
}

// Maps the bytes under a name of their own: the dynamic linker knows a library by its path, and
// would return what it loaded from there before.
class PrivateCopy {
 public:
  PrivateCopy(const uint8_t* data, size_t size) {
    descriptor_ = memfd_create("convoy-module", MFD_CLOEXEC);
    const char* base = std::getenv("TMPDIR");
    folder_ = std::string(base != nullptr && *base ? base : "/tmp") + "/convoy-load-XXXXXX";
    if (descriptor_ < 0 || mkdtemp(folder_.data()) == nullptr) Fail();
    made_ = true;
    for (size_t done = 0; done < size;) {
      ssize_t written = write(descriptor_, data + done, size - done);
      if (written <= 0) Fail();
      done += static_cast<size_t>(written);
    }
    path_ = folder_ + "/module.so";
    if (symlink(("/proc/self/fd/" + std::to_string(descriptor_)).c_str(), path_.c_str()) != 0) {
      Fail();
    }
  }
  ~PrivateCopy() { Remove(); }
  PrivateCopy(const PrivateCopy&) = delete;
  PrivateCopy& operator=(const PrivateCopy&) = delete;

  const std::string& path() const { return path_; }

 private:
  void Remove() {
    if (!path_.empty()) unlink(path_.c_str());
    if (made_) rmdir(folder_.c_str());
    if (descriptor_ >= 0) close(descriptor_);
  }
  [[noreturn]] void Fail() {
    std::string reason = std::strerror(errno);
    Remove();
    TVM_FFI_THROW(RuntimeError) << "no copy of the module in memory: " << reason;
  }

  int descriptor_ = -1;
  bool made_ = false;
  std::string folder_, path_;
};

std::string FindMeta(const ffi::Module& module) {
  if (std::strcmp(module->kind(), "convoy") == 0) {
    auto meta = module->GetFunction("convoy_meta", false);
    std::string text = meta ? std::string((*meta)().cast<ffi::String>()) : "";
    if (!text.empty()) return text;
  }
  for (const ffi::Any& part : module->imports()) {
    std::string text = FindMeta(part.cast<ffi::Module>());
    if (!text.empty()) return text;
  }
  return "";
}

std::vector<TensorSpec> Tensors(const json::Object& meta, const char* field) {
  std::vector<TensorSpec> found;
  for (const auto& item : Require<json::Array>(meta, field)) {
    auto entry = item.as<json::Object>();
    if (!entry) TVM_FFI_THROW(CorruptArtefact) << "a description whose " << field << " are none";
    TensorSpec spec;
    spec.name = GetString(*entry, "name");
    spec.dtype_name = GetString(*entry, "dtype");
    spec.dtype = ffi::StringToDLDataType(ffi::String(spec.dtype_name));
    size_t elements = 1;
    for (const auto& size : Require<json::Array>(*entry, "shape")) {
      spec.shape.push_back(size.cast<int64_t>());
      elements *= static_cast<size_t>(spec.shape.back());
    }
    spec.bytes = ffi::GetDataSize(elements, spec.dtype);
    found.push_back(std::move(spec));
  }
  return found;
}

json::Object ReadMeta(const ffi::Module& module) {
  json::Object meta = ParseObject(ffi::String(FindMeta(module)), "a module's description");
  int64_t format = Get<int64_t>(meta, "format", 0);
  if (format != kMetaFormat) {
    TVM_FFI_THROW(CorruptArtefact) << "a module of format " << format << "; this convoy reads "
                                   << kMetaFormat << ". Build it again with this version";
  }
  return meta;
}

int Arch(const json::Object& meta) {
  auto plan = Find(meta, "plan").as<json::Object>();
  if (!plan) return 0;
  auto device = Find(*plan, "device").as<json::Object>();
  return device ? static_cast<int>(Get<int64_t>(*device, "arch", 0)) : 0;
}

ffi::Module LoadLibrary(const std::string& path) {
  // Through the C ABI: exceptions of a library with another C++ runtime could not be caught.
  auto load = ffi::Function::GetGlobalRequired("ffi.ModuleLoadFromFile");
  try {
    return load(path).cast<ffi::Module>();
  } catch (const ffi::Error& error) {
    if (error.message().find("load_from_bytes.cuda") == std::string::npos) throw;
  }
  LoadTvmCuda();
  return load(path).cast<ffi::Module>();
}

}  // namespace

DeployedModule LoadDeployedModule(const void* data, size_t size) {
  const auto* bytes = static_cast<const uint8_t*>(data);
  CheckSeal(bytes, size);
  LoadTvmRuntime();
  PrivateCopy copy(bytes, size);
  ffi::Module module = LoadLibrary(copy.path());
  json::Object meta = ReadMeta(module);
  DeployedModule found{module,
                       Tensors(meta, "inputs"),
                       Tensors(meta, "outputs"),
                       GetString(meta, "target"),
                       Get<bool>(meta, "cuda_graph", false),
                       Arch(meta)};
  return found;
}

DeployedModule LoadDeployedModule(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string content((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  if (!file) TVM_FFI_THROW(CorruptArtefact) << path << ", which cannot be read";
  return LoadDeployedModule(content.data(), content.size());
}

}  // namespace convoy
