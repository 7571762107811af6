// Backend "cudnn": execution plans rebuilt from engine id and knobs, run through variant packs that
// are made once per set of pointers.
#include <map>
#include <mutex>

#include "captured_graph.h"
#include "context.h"
#include "cudnn_entry.h"
#include "cudnn_graph.h"

namespace convoy {

CudnnEntry CudnnEntry::FromJson(const json::Object& entry) {
  CudnnEntry result;
  result.config.engine = Require<int64_t>(entry, "engine");
  result.config.workspace = Get<int64_t>(entry, "workspace", 0);
  if (Find(entry, "knobs") != nullptr) {
    for (const auto& knob : Require<json::Array>(entry, "knobs")) {
      auto pair = knob.as<json::Array>();
      if (!pair || pair->size() != 2) {
        TVM_FFI_THROW(InvalidOption)
            << "a knob " << json::Stringify(knob) << "; expected [type, value]";
      }
      result.config.knobs.emplace_back((*pair)[0].cast<int64_t>(), (*pair)[1].cast<int64_t>());
    }
  }
  result.zero_bias = Get<bool>(entry, "zero_bias", false);
  result.plan_json = GetString(entry, "plan_json");
  result.cudnn_version = static_cast<int>(Get<int64_t>(entry, "cudnn_version", 0));
  return result;
}

std::string VersionText(int version) {
  return std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) + "." +
         std::to_string(version % 100);
}

namespace {

// Zeros on a device, shared by all plans that add a bias of their own; read only, never freed.
void* ZeroBias(DLDevice device, size_t bytes) {
  static auto* mutex = new std::mutex;
  static auto* zeros = new std::map<int, WorkspaceBlock>;
  std::lock_guard<std::mutex> lock(*mutex);
  WorkspaceBlock& block = (*zeros)[device.device_id];
  if (block.bytes < bytes) {
    block = AcquireWorkspace(device, bytes);
    CONVOY_CUDA(cudaMemset, block.data, 0, block.bytes);
    // Streams need not wait for the legacy stream.
    CheckCuda(SynchronizeDevice(), "cudaDeviceSynchronize");
  }
  return block.data;
}

class CudnnCall : public Prepared {
 public:
  CudnnCall(CudnnHandle* handle, cudnn::Descriptor plan, CudnnDescriptor pack)
      : handle_(handle), plan_(plan), pack_(std::move(pack)) {}

  void Launch(const StreamState& stream) override {
    cudnn::Status status =
        ::convoy::Cudnn().cudnnBackendExecute(handle_->Behind(stream), plan_, pack_.get());
    if (status != cudnn::kSuccess) {
      TVM_FFI_THROW(RuntimeError) << "cuDNN could not run a plan: " << CudnnError(status);
    }
  }

 private:
  CudnnHandle* handle_;
  cudnn::Descriptor plan_;
  CudnnDescriptor pack_;
};

class CudnnExecutable : public Executable {
 public:
  CudnnExecutable(const FunctionSpec& function, CudnnHandle* handle, DLDevice device)
      : handle_(handle) {
    CudnnEntry entry = CudnnEntry::FromJson(function.entry);
    for (size_t i = 0; i < function.workload.operands.size(); ++i) {
      ids_.push_back(static_cast<int64_t>(i) + 1);
    }
    if (entry.zero_bias) {
      size_t bytes = static_cast<size_t>(function.workload.k) * sizeof(float);
      zero_bias_ = ZeroBias(device, bytes);
      ids_.push_back(kZeroBiasId);
    }
    constants_ = GraphConstants(function.workload);
    offsets_ = OperandOffsets(function.workload);
    for (size_t i = 0; i < constants_.size(); ++i) {
      ids_.push_back(kConstantId + static_cast<int64_t>(i));
    }
    CudnnTarget target{handle->get(), nullptr};
    CudnnDescriptor plan;
    if (!entry.plan_json.empty()) {
      try {
        plan = RestorePlan(target, entry.plan_json);
      } catch (const CudnnRefusal&) {
        // Written by another cuDNN, driver or device: built from engine and knobs below.
      }
    }
    if (plan.get() == nullptr) plan = Rebuild(function, entry, target);
    workspace_bytes_ = PlanWorkspace(plan);
    plan_ = plan.Leak();  // captured graphs may run its code until the process ends
  }

  int64_t workspace_bytes() const override { return workspace_bytes_; }

  std::unique_ptr<Prepared> Prepare(const Pointers& pointers, void* workspace) override {
    auto count = static_cast<int64_t>(ids_.size());
    Pointers all = pointers;
    for (size_t i = 0; i < offsets_.size(); ++i) {
      all[i] = static_cast<char*>(pointers[i]) + offsets_[i];
    }
    size_t next = ids_.size() - constants_.size();
    if (zero_bias_) all[next - 1] = zero_bias_;
    for (float& constant : constants_) all[next++] = &constant;
    try {
      CudnnDescriptor pack(cudnn::kVariantPack);
      pack.Set(cudnn::kPackUniqueIds, ids_)
          .Set(cudnn::kPackDataPointers, cudnn::kTypeVoidPtr, count, all.data())
          .Set(cudnn::kPackWorkspace, cudnn::kTypeVoidPtr, workspace);
      pack.Finalize();
      return std::make_unique<CudnnCall>(handle_, plan_, std::move(pack));
    } catch (const CudnnRefusal& refusal) {
      TVM_FFI_THROW(RuntimeError) << "cuDNN refused the pointers of a call: " << refusal.what();
    }
    return nullptr;
  }

 private:
  CudnnDescriptor Rebuild(const FunctionSpec& function, const CudnnEntry& entry,
                          const CudnnTarget& target) {
    try {
      graph_ = std::make_unique<CudnnGraph>(function.workload, target, entry.zero_bias);
      return BuildPlan(*graph_, entry.config, &parts_);
    } catch (const CudnnRefusal& refusal) {
      const CudnnApi& api = ::convoy::Cudnn();
      if (entry.cudnn_version != 0 && entry.cudnn_version != api.version) {
        TVM_FFI_THROW(LibraryVersionMismatch)
            << "function '" << function.symbol << "' uses engine " << entry.config.engine
            << " of cuDNN " << VersionText(entry.cudnn_version) << ", which cuDNN "
            << VersionText(api.version) << " at " << api.path << " refuses (" << refusal.what()
            << "). Install cuDNN " << VersionText(entry.cudnn_version)
            << " or build the module again with the installed one";
      }
      TVM_FFI_THROW(RuntimeError) << "cuDNN " << VersionText(api.version) << " refuses engine "
                                  << entry.config.engine << " for function '" << function.symbol
                                  << "': " << refusal.what();
    }
    return CudnnDescriptor();
  }

  CudnnHandle* handle_;
  std::vector<int64_t> ids_;
  void* zero_bias_ = nullptr;
  std::vector<float> constants_;
  std::vector<int64_t> offsets_;
  std::unique_ptr<CudnnGraph> graph_;
  std::vector<CudnnDescriptor> parts_;
  cudnn::Descriptor plan_ = nullptr;
  int64_t workspace_bytes_ = 0;
};

void Validate(const FunctionSpec& function, const BlobMap&) {
  CudnnEntry::FromJson(function.entry);
}

std::unique_ptr<Executable> Build(const BuildRequest& request) {
  return std::make_unique<CudnnExecutable>(
      request.function, &request.thread.Cudnn(request.device.device_id), request.device);
}

const bool registered = (RegisterBackend({"cudnn", false, Validate, Build}), true);

}  // namespace
}  // namespace convoy
