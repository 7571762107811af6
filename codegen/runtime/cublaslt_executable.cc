// Backend "cublaslt": a GEMM by an algorithm that is kept with the module, or the heuristic's first
// choice where there is none or it is of another version of cuBLASLt.
#include <tvm/ffi/container/array.h>
#include <tvm/ffi/reflection/registry.h>

#include <cstring>

#include "cublaslt_gemm.h"
#include "executable.h"
#include "json_fields.h"

namespace convoy {
namespace {

namespace ffi = tvm::ffi;

std::string ToHex(const cublaslt::Algo& algo) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (size_t i = 0; i < sizeof(algo); ++i) {
    unsigned char byte = reinterpret_cast<const unsigned char*>(&algo)[i];
    text += {kDigits[byte >> 4], kDigits[byte & 15]};
  }
  return text;
}

// Throws InvalidOption where the text is not the bytes of an algorithm.
cublaslt::Algo FromHex(const std::string& text) {
  cublaslt::Algo algo{};
  bool right = text.size() == 2 * sizeof(algo) &&
               text.find_first_not_of("0123456789abcdef") == std::string::npos;
  if (!right) {
    TVM_FFI_THROW(InvalidOption) << "algo \"" << text.substr(0, 40) << "\"; expected "
                                 << 2 * sizeof(algo) << " hexadecimal digits";
  }
  for (size_t i = 0; i < sizeof(algo); ++i) {
    reinterpret_cast<unsigned char*>(&algo)[i] =
        static_cast<unsigned char>(std::stoi(text.substr(2 * i, 2), nullptr, 16));
  }
  return algo;
}

// The cuBLASLt part of a module specification.
struct Entry {
  std::string algo;     // as ToHex has it; empty for the heuristic's first choice
  int64_t version = 0;  // of the cuBLASLt that proposed it
  int64_t max_workspace = 0;

  static Entry FromJson(const json::Object& object) {
    Entry entry{GetString(object, "algo"), Get<int64_t>(object, "version", 0),
                Get<int64_t>(object, "max_workspace", 0)};
    if (!entry.algo.empty()) FromHex(entry.algo);
    return entry;
  }
};

class LtCall : public Prepared {
 public:
  LtCall(cublaslt::Handle handle, const LtGemm& gemm, const LtAlgo& algo, const Pointers& pointers,
         void* workspace)
      : handle_(handle),
        gemm_(gemm),
        algo_(algo),
        operation_(gemm.Operation(gemm.bias < 0 ? nullptr : pointers[gemm.bias])),
        pointers_(pointers),
        workspace_(workspace) {}

  void Launch(const StreamState& stream) override {
    const float one = 1, beta = gemm_.c < 0 ? 0 : 1;
    void* d = pointers_[gemm_.d];
    const void* c = gemm_.c < 0 ? d : pointers_[gemm_.c];
    CheckCublasLt(
        CublasLt().cublasLtMatmul(handle_, operation_.get(), &one, pointers_[gemm_.a],
                                  gemm_.a_layout.get(), pointers_[gemm_.b], gemm_.b_layout.get(),
                                  &beta, c, gemm_.CLayout(), d, gemm_.d_layout.get(), &algo_.algo,
                                  workspace_, algo_.workspace, stream.stream),
        "a call");
  }

 private:
  cublaslt::Handle handle_;
  const LtGemm& gemm_;
  const LtAlgo& algo_;
  LtDescriptor operation_;
  Pointers pointers_;
  void* workspace_;
};

class LtExecutable : public Executable {
 public:
  LtExecutable(const FunctionSpec& function, int device)
      : handle_(CublasLtHandle(device)), gemm_(function.workload) {
    Entry entry = Entry::FromJson(function.entry);
    if (!entry.algo.empty() && entry.version == CublasLt().version) {
      algo_.algo = FromHex(entry.algo);
      if (gemm_.Check(handle_, &algo_)) return;
    }
    auto most = static_cast<size_t>(std::max(entry.max_workspace, function.workspace));
    std::vector<LtAlgo> found = gemm_.Heuristic(handle_, 1, most);
    if (found.empty()) {
      TVM_FFI_THROW(RuntimeError) << "cuBLASLt " << CublasLt().version << " at " << CublasLt().path
                                  << " has no algorithm for function '" << function.symbol
                                  << "'. Build the module again with the installed version";
    }
    algo_ = found.front();
  }

  int64_t workspace_bytes() const override { return static_cast<int64_t>(algo_.workspace); }

  std::unique_ptr<Prepared> Prepare(const Pointers& pointers, void* workspace) override {
    return std::make_unique<LtCall>(handle_, gemm_, algo_, pointers, workspace);
  }

 private:
  cublaslt::Handle handle_;
  LtGemm gemm_;
  LtAlgo algo_;
};

void Validate(const FunctionSpec& function, const BlobMap&) {
  Entry::FromJson(function.entry);
  CheckGemm(function.workload);
}

std::unique_ptr<Executable> Build(const BuildRequest& request) {
  return std::make_unique<LtExecutable>(request.function, request.device.device_id);
}

const bool registered = (RegisterBackend({"cublaslt", false, Validate, Build}), true);

// The algorithms that the heuristic proposes for a workload on the current device, best first:
// [{name, algo, workspace}] as JSON. Options: count, max_workspace (bytes).
ffi::String Enumerate(const ffi::String& workload_json, const ffi::String& options_json) {
  LtGemm gemm(Workload::FromJson(ParseObject(workload_json, "workload")));
  json::Object options = ParseObject(options_json, "options");
  int device = 0;
  CONVOY_CUDA(cudaGetDevice, &device);
  json::Array found;
  for (const LtAlgo& algo :
       gemm.Heuristic(CublasLtHandle(device), static_cast<int>(Require<int64_t>(options, "count")),
                      static_cast<size_t>(Require<int64_t>(options, "max_workspace")))) {
    json::Object object;
    object.Set(ffi::String("name"), ffi::String(Name(algo.algo)));
    object.Set(ffi::String("algo"), ffi::String(ToHex(algo.algo)));
    object.Set(ffi::String("workspace"), static_cast<int64_t>(algo.workspace));
    found.push_back(object);
  }
  return json::Stringify(found);
}

}  // namespace

TVM_FFI_STATIC_INIT_BLOCK() {
  namespace refl = tvm::ffi::reflection;
  refl::GlobalDef()
      .def("convoy.cublaslt.version", []() { return CublasLt().version; })
      .def("convoy.cublaslt.enumerate", Enumerate);
}

}  // namespace convoy
