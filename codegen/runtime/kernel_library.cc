// Backend "kernel": compiled kernel libraries that follow convoy/kernel_abi.h or the header of a
// problem of another kind, carried in the module as bytes and opened from memory.
#include "kernel_library.h"

#include <dlfcn.h>
#include <sys/mman.h>
#include <tvm/ffi/error.h>
#include <unistd.h>

#include <iterator>
#include <map>
#include <mutex>
#include <utility>

#include "context.h"

namespace convoy {
namespace {

template <typename F>
void Resolve(void* library, const std::string& name, F* function) {
  *function = reinterpret_cast<F>(dlsym(library, name.c_str()));
  if (*function == nullptr) {
    TVM_FFI_THROW(CorruptArtefact) << "a kernel library without the function " << name;
  }
}

// A path to an open file that was never given to dlopen before. The linker takes a library that was
// opened under the same path to be the same library, and file numbers are used again; so a counter
// is spelt in the path, one "./" or ".//" a bit.
std::string UniquePath(int file) {
  static unsigned count = 0;  // under GetLibrary's lock
  std::string path = "/proc/self/fd/";
  for (unsigned bits = ++count; bits != 0; bits >>= 1) path += bits & 1 ? ".//" : "./";
  return path + std::to_string(file);
}

// Opens bytes as a shared object without a file on any disk. The symbols stay local: every kernel
// library defines the same names.
void* OpenBytes(const std::string& name, const tvm::ffi::Bytes& bytes) {
  int file = memfd_create(("convoy-" + name.substr(0, 16)).c_str(), MFD_CLOEXEC);
  if (file < 0) TVM_FFI_THROW(RuntimeError) << "memfd_create failed for kernel library " << name;
  size_t done = 0;
  while (done < bytes.size()) {
    ssize_t written = write(file, bytes.data() + done, bytes.size() - done);
    if (written <= 0) {
      close(file);
      TVM_FFI_THROW(RuntimeError) << "no memory to open kernel library " << name;
    }
    done += static_cast<size_t>(written);
  }
  void* library = dlopen(UniquePath(file).c_str(), RTLD_NOW | RTLD_LOCAL);
  std::string reason = library ? "" : dlerror();
  close(file);
  if (library == nullptr) {
    TVM_FFI_THROW(CorruptArtefact) << "kernel library " << name << " cannot be opened: " << reason;
  }
  return library;
}

// A kind of problem: the prefix of its functions' names, the version of its ABI, and how its
// functions are looked up in a library.
struct Kind {
  const char* prefix;
  int32_t version;
  void (*resolve)(void* handle, const std::string& prefix, KernelLibrary* library);
};

template <auto functions>
void ResolveProblem(void* handle, const std::string& prefix, KernelLibrary* library) {
  Resolve(handle, prefix + "check", &(library->*functions).check);
  Resolve(handle, prefix + "prepare", &(library->*functions).prepare);
}

void ResolveConvolution(void* handle, const std::string& prefix, KernelLibrary* library) {
  Resolve(handle, prefix + "check", &library->check);
  Resolve(handle, prefix + "workspace", &library->workspace);
  Resolve(handle, prefix + "prepare", &library->prepare);
}

const Kind kKinds[] = {
    {"convoy_kernel_attention_", CONVOY_ATTENTION_ABI_VERSION,
     ResolveProblem<&KernelLibrary::attention>},
    {"convoy_kernel_stem_", CONVOY_STEM_ABI_VERSION, ResolveProblem<&KernelLibrary::stem>},
    {"convoy_kernel_expansion_", CONVOY_EXPANSION_ABI_VERSION,
     ResolveProblem<&KernelLibrary::expansion>},
    {"convoy_kernel_bottleneck_", CONVOY_BOTTLENECK_ABI_VERSION,
     ResolveProblem<&KernelLibrary::bottleneck>},
    {"convoy_kernel_squeeze_excite_", CONVOY_SQUEEZE_EXCITE_ABI_VERSION,
     ResolveProblem<&KernelLibrary::squeeze_excite>},
    {"convoy_kernel_", CONVOY_KERNEL_ABI_VERSION, ResolveConvolution},
};

// The function that gives the version of a kind's ABI; only libraries of the kind have it.
std::string AbiName(const Kind& kind) { return std::string(kind.prefix) + "abi"; }

// The kind of a library; the last, of convolutions and GEMMs, where it has no other's function.
const Kind& KindOf(void* handle) {
  const Kind* last = std::end(kKinds) - 1;
  return *std::find_if(std::begin(kKinds), last, [&](const Kind& kind) {
    return dlsym(handle, AbiName(kind).c_str()) != nullptr;
  });
}

// One library for the process and each content hash; never closed, since kernels may be running.
const KernelLibrary& GetLibrary(const std::string& name, const tvm::ffi::Bytes& bytes) {
  static auto* mutex = new std::mutex;
  static auto* libraries = new std::map<std::string, KernelLibrary>;
  std::lock_guard<std::mutex> lock(*mutex);
  auto it = libraries->find(name);
  if (it != libraries->end()) return it->second;
  void* handle = OpenBytes(name, bytes);
  KernelLibrary library;
  const Kind& kind = KindOf(handle);
  decltype(&convoy_kernel_abi) abi;
  Resolve(handle, AbiName(kind), &abi);
  if (abi() != kind.version) {
    TVM_FFI_THROW(LibraryVersionMismatch)
        << "kernel library " << name << " follows ABI " << abi() << "; this convoy's is "
        << kind.version << ". Build the module again";
  }
  kind.resolve(handle, kind.prefix, &library);
  Resolve(handle, "convoy_kernel_state_bytes", &library.state_bytes);
  Resolve(handle, "convoy_kernel_launch", &library.launch);
  Resolve(handle, "convoy_kernel_error", &library.error);
  library.launch_programmatic = reinterpret_cast<decltype(library.launch_programmatic)>(
      dlsym(handle, "convoy_kernel_launch_programmatic"));
  library.prepare_strided = reinterpret_cast<decltype(library.prepare_strided)>(
      dlsym(handle, "convoy_kernel_prepare_strided"));
  return libraries->emplace(name, library).first->second;
}

ConvoyOperands MakeOperands(const Workload& load, const Pointers& pointers, void* workspace) {
  ConvoyOperands operands{};
  operands.workspace = workspace;
  bool gradient = load.op == Op::kDgrad || load.op == Op::kWgrad;
  for (size_t i = 0; i < load.operands.size(); ++i) {
    void* pointer = pointers[i];
    if (i == 0) {
      operands.a = pointer;
    } else if (i == 1) {
      operands.b = pointer;
    } else if (gradient) {
      operands.d = pointer;
    } else {
      switch (load.operands[i].role) {
        case Role::kResidual: operands.residual = pointer; break;
        case Role::kBias: operands.bias = pointer; break;
        case Role::kScale: operands.scale = pointer; break;
        case Role::kShift: operands.shift = pointer; break;
        case Role::kY2: operands.d2 = pointer; break;
        default: operands.d = pointer;
      }
    }
  }
  return operands;
}

ConvoyRowStrides MakeRowStrides(const Workload& load) {
  ConvoyRowStrides strides{};
  for (size_t i = 0; i < load.operands.size(); ++i) {
    const Operand& operand = load.operands[i];
    if (i == 0) strides.a = operand.row_stride;
    if (operand.role == Role::kResidual) strides.residual = operand.row_stride;
    if (i + 1 == load.operands.size()) strides.d = operand.row_stride;
  }
  return strides;
}

class KernelExecutable : public Executable {
 public:
  KernelExecutable(const KernelLibrary& library, const FunctionSpec& function, int sm_count)
      : library_(library),
        workload_(function.workload),
        shape_(MakeShape(function, sm_count)),
        programmatic_(Get<bool>(function.entry, "programmatic", true)),
        constant_weights_(Get<bool>(function.entry, "constant_weights", false)),
        symbol_(function.symbol) {
    if (library.check == nullptr) {
      TVM_FFI_THROW(CorruptArtefact)
          << "function '" << symbol_ << "' names a kernel for another kind of problem";
    }
    if (workload_.has_slices() && library.prepare_strided == nullptr) {
      TVM_FFI_THROW(CorruptArtefact)
          << "function '" << symbol_ << "' names a kernel that takes no slices of wider tensors";
    }
    RequireSupported(library_, library_.check(&shape_), symbol_);
    workspace_bytes_ = library_.workspace(&shape_);
    state_bytes_ = library_.state_bytes();
  }

  int64_t workspace_bytes() const override { return workspace_bytes_; }

  std::unique_ptr<Prepared> Prepare(const Pointers& pointers, void* workspace) override {
    auto call = std::make_unique<KernelCall>(library_, static_cast<size_t>(state_bytes_),
                                             programmatic_, constant_weights_);
    ConvoyOperands operands = MakeOperands(workload_, pointers, workspace);
    int32_t code;
    if (workload_.has_slices()) {
      ConvoyRowStrides strides = MakeRowStrides(workload_);
      code = library_.prepare_strided(&shape_, &operands, &strides, call->state());
    } else {
      code = library_.prepare(&shape_, &operands, call->state());
    }
    RequirePrepared(library_, code, symbol_);
    return call;
  }

 private:
  const KernelLibrary& library_;
  const Workload workload_;  // a copy: executables outlive modules
  const ConvoyShape shape_;
  const bool programmatic_, constant_weights_;
  const std::string symbol_;
  int64_t workspace_bytes_ = 0, state_bytes_ = 0;
};

void Validate(const FunctionSpec& function, const BlobMap& blobs) {
  std::string name = GetString(function.entry, "library");
  if (blobs.find(tvm::ffi::String(name)) == blobs.end()) {
    TVM_FFI_THROW(CorruptArtefact) << "function '" << function.symbol << "' needs kernel library '"
                                   << name << "', which the module does not carry";
  }
}

std::unique_ptr<Executable> Build(const BuildRequest& request) {
  int sm_count = 1;
  if (request.device.device_type == kDLCUDA) {
    // Opens CUDA first: kernel libraries need its soname to be loaded.
    CONVOY_CUDA(cudaDeviceGetAttribute, &sm_count, cuda::kMultiProcessorCount,
                request.device.device_id);
  }
  if (request.function.workload.depth.is_3d) {
    TVM_FFI_THROW(InvalidWorkload) << "a kernel library for a convolution over volumes; expected "
                                      "one over images, which is all that kernels are given";
  }
  std::string name = GetString(request.function.entry, "library");
  const KernelLibrary& library = GetLibrary(name, request.blobs.at(tvm::ffi::String(name)));
  if (request.function.workload.op == Op::kAttention) {
    return BuildAttention(library, request.function);
  }
  if (request.function.workload.op == Op::kStem) {
    return BuildStem(library, request.function, sm_count);
  }
  if (request.function.workload.op == Op::kExpandDepthwise) {
    return BuildExpansion(library, request.function, sm_count);
  }
  if (request.function.workload.op == Op::kBottleneck) {
    return BuildBottleneck(library, request.function, sm_count);
  }
  if (request.function.workload.op == Op::kSqueezeExcite) {
    return BuildSqueezeExcite(library, request.function, sm_count);
  }
  return std::make_unique<KernelExecutable>(library, request.function, sm_count);
}

const bool registered = (RegisterBackend({"kernel", true, Validate, Build}), true);

}  // namespace

ConvoyShape MakeShape(const FunctionSpec& function, int sm_count) {
  const Workload& load = function.workload;
  ConvoyShape shape{};
  shape.op = load.op == Op::kDgrad   ? CONVOY_DGRAD
             : load.op == Op::kWgrad ? CONVOY_WGRAD
                                     : CONVOY_FPROP;
  auto narrow = [](int64_t value) { return static_cast<int32_t>(value); };
  shape.n = narrow(load.n);
  shape.h = narrow(load.h);
  shape.w = narrow(load.w);
  shape.c = narrow(load.c);
  shape.k = narrow(load.k);
  shape.r = narrow(load.r);
  shape.s = narrow(load.s);
  shape.p = narrow(load.p);
  shape.q = narrow(load.q);
  shape.stride_h = narrow(load.stride[0]);
  shape.stride_w = narrow(load.stride[1]);
  shape.pad_top = narrow(load.padding[0]);
  shape.pad_left = narrow(load.padding[1]);
  shape.pad_bottom = narrow(load.padding[2]);
  shape.pad_right = narrow(load.padding[3]);
  shape.dilation_h = narrow(load.dilation[0]);
  shape.dilation_w = narrow(load.dilation[1]);
  shape.groups = narrow(load.groups);
  shape.split_k = narrow(Get<int64_t>(function.entry, "split_k", 1));
  shape.swizzle = narrow(Get<int64_t>(function.entry, "swizzle", 0));
  shape.sm_count = sm_count;
  shape.clip_min = ClipMin(load.epilogue);
  shape.clip_max = load.epilogue.clip_max;
  return shape;
}

float ClipMin(const Epilogue& epilogue) {
  return epilogue.alpha != 0 ? epilogue.alpha : epilogue.clip_min;
}

void RequireSupported(const KernelLibrary& library, int32_t code, const std::string& symbol) {
  if (code != 0) {
    TVM_FFI_THROW(CorruptArtefact)
        << "function '" << symbol
        << "' names a kernel that cannot run its problem: " << library.error(code);
  }
}

void RequirePrepared(const KernelLibrary& library, int32_t code, const std::string& symbol) {
  if (code != 0) {
    TVM_FFI_THROW(RuntimeError) << "function '" << symbol
                                << "' cannot be prepared: " << library.error(code);
  }
}

void KernelCall::Launch(const StreamState& stream) {
  int32_t code = programmatic_
                     ? library_.launch_programmatic(state_, stream.stream, constant_weights_)
                     : library_.launch(state_, stream.stream);
  if (code != 0) {
    TVM_FFI_THROW(RuntimeError) << "kernel launch failed: " << library_.error(code);
  }
}

}  // namespace convoy
