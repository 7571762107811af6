// FFI functions convoy.cudnn.*: what engines there are for a workload, and plans as JSON. With
// "deviceprop" in the options they need no GPU.
#include <tvm/ffi/reflection/registry.h>

#include <chrono>

#include "context.h"
#include "cudnn_entry.h"

namespace convoy {
namespace {

namespace ffi = tvm::ffi;

// A handle on the current device, or the device that the options describe.
struct Target {
  CudnnDescriptor properties;
  CudnnTarget target;

  explicit Target(const json::Object& options) {
    std::string text = GetString(options, "deviceprop");
    if (!text.empty()) {
      try {
        properties = DevicePropertiesFromJson(text);
      } catch (const CudnnRefusal& refusal) {
        TVM_FFI_THROW(LibraryVersionMismatch)
            << "cuDNN " << VersionText(Cudnn().version)
            << " does not take the device description: " << refusal.what()
            << ". Use a GPU, or a cuDNN 9 from 9.8 to 9.19";
      }
      target.device_properties = &properties;
      return;
    }
    int device = 0;
    CONVOY_CUDA(cudaGetDevice, &device);
    target.handle = ThreadContext::Current().Cudnn(device).get();
  }
};

json::Object ToJson(const EngineConfig& config, int64_t rank) {
  json::Array knobs, notes;
  for (const auto& [type, value] : config.knobs) knobs.push_back(json::Array{type, value});
  for (const std::string& note : config.notes) notes.push_back(ffi::String(note));
  json::Object object;
  object.Set(ffi::String("engine"), config.engine);
  object.Set(ffi::String("knobs"), knobs);
  object.Set(ffi::String("workspace"), config.workspace);
  object.Set(ffi::String("notes"), notes);
  object.Set(ffi::String("mode"), ffi::String(config.mode));
  object.Set(ffi::String("rank"), rank);
  return object;
}

std::string WhyDropped(const EngineConfig& config, int64_t max_workspace, bool can_compile) {
  if (max_workspace >= 0 && config.workspace > max_workspace) {
    return "workspace of " + std::to_string(config.workspace) + " bytes above the limit of " +
           std::to_string(max_workspace);
  }
  for (const std::string& note : config.notes) {
    if (note == "runtime_compilation" && !can_compile) {
      return "compiled at run time, for which libcuda.so.1 is missing";
    }
    if (note == "needs_filter_reorder" || note == "needs_bias_reorder") {
      return "wants operands in an order of its own";
    }
  }
  return "";
}

// The epilogue of a workload as cuDNN's pointwise operations, one a line. Needs no cuDNN.
ffi::String DescribeEpilogue(const ffi::String& workload_json) {
  Workload load = Workload::FromJson(ParseObject(workload_json, "workload"));
  return Describe(EpilogueSteps(load.epilogue, false));
}

// Returns {"cudnn_version", "configs": [{engine, knobs, workspace, notes, mode, rank}], "dropped":
// [the same with "reason"], "refusals": [text]} as JSON. Options: deviceprop (JSON text),
// max_workspace (bytes, absent: no limit), sm_count_target, modes (list of "A", "B", "fallback"),
// zero_bias (add one to the graph).
ffi::String Enumerate(const ffi::String& workload_json, const ffi::String& options_json) {
  Workload load = Workload::FromJson(ParseObject(workload_json, "workload"));
  json::Object options = ParseObject(options_json, "options");
  int64_t max_workspace = Get<int64_t>(options, "max_workspace", -1);
  EnumerateOptions wanted;
  wanted.sm_count_target = static_cast<int32_t>(Get<int64_t>(options, "sm_count_target", 0));
  if (Find(options, "modes") != nullptr) {
    wanted.mode_a = wanted.mode_b = wanted.fallback = false;
    for (const auto& mode : Require<json::Array>(options, "modes")) {
      std::string name(mode.cast<ffi::String>());
      (name == "A" ? wanted.mode_a : name == "B" ? wanted.mode_b : wanted.fallback) = true;
    }
  }
  json::Array configs, dropped, refusals;
  std::vector<std::string> refused;
  try {
    Target target(options);
    CudnnGraph graph(load, target.target, Get<bool>(options, "zero_bias", false));
    bool can_compile = HasCudaDriver();
    int64_t rank = 0;
    for (const EngineConfig& config : EnumerateEngines(graph, wanted, &refused)) {
      json::Object object = ToJson(config, rank++);
      std::string reason = WhyDropped(config, max_workspace, can_compile);
      if (!reason.empty()) object.Set(ffi::String("reason"), ffi::String(reason));
      (reason.empty() ? configs : dropped).push_back(object);
    }
  } catch (const CudnnRefusal& refusal) {
    refused.push_back(refusal.what());
  }
  for (const std::string& text : refused) refusals.push_back(ffi::String(text));
  json::Object result;
  result.Set(ffi::String("cudnn_version"), int64_t{Cudnn().version});
  result.Set(ffi::String("can_compile"), HasCudaDriver());
  result.Set(ffi::String("configs"), configs);
  result.Set(ffi::String("dropped"), dropped);
  result.Set(ffi::String("refusals"), refusals);
  return json::Stringify(result);
}

// The values that the knobs of an engine may take: {"knobs": [[type, minimum, maximum, stride]]} as
// JSON, or {"refusal"}. Options: engine, and those of Enumerate's graph and target.
ffi::String Knobs(const ffi::String& workload_json, const ffi::String& options_json) {
  Workload load = Workload::FromJson(ParseObject(workload_json, "workload"));
  json::Object options = ParseObject(options_json, "options");
  json::Object result;
  try {
    Target target(options);
    CudnnGraph graph(load, target.target, Get<bool>(options, "zero_bias", false));
    json::Array knobs;
    for (const KnobRange& range : EngineKnobs(graph, Require<int64_t>(options, "engine"))) {
      knobs.push_back(json::Array{range.type, range.minimum, range.maximum, range.stride});
    }
    result.Set(ffi::String("knobs"), knobs);
  } catch (const CudnnRefusal& refusal) {
    result.Set(ffi::String("refusal"), ffi::String(refusal.what()));
  }
  return json::Stringify(result);
}

// Which of the configurations in options ("configs": [{engine, knobs}]) are valid: the same answer
// as Enumerate's, the others among "dropped" with cuDNN's reason.
ffi::String Check(const ffi::String& workload_json, const ffi::String& options_json) {
  Workload load = Workload::FromJson(ParseObject(workload_json, "workload"));
  json::Object options = ParseObject(options_json, "options");
  int64_t max_workspace = Get<int64_t>(options, "max_workspace", -1);
  json::Array configs, dropped, refusals;
  try {
    Target target(options);
    CudnnGraph graph(load, target.target, Get<bool>(options, "zero_bias", false));
    bool can_compile = HasCudaDriver();
    int64_t rank = 0;
    for (const auto& given : Require<json::Array>(options, "configs")) {
      EngineConfig config = CudnnEntry::FromJson(given.cast<json::Object>()).config;
      std::string reason;
      try {
        config = CheckConfig(graph, config);
        reason = WhyDropped(config, max_workspace, can_compile);
      } catch (const CudnnRefusal& refusal) {
        reason = refusal.what();
      }
      json::Object object = ToJson(config, rank++);
      if (!reason.empty()) object.Set(ffi::String("reason"), ffi::String(reason));
      (reason.empty() ? configs : dropped).push_back(object);
    }
  } catch (const CudnnRefusal& refusal) {
    refusals.push_back(ffi::String(refusal.what()));
  }
  json::Object result;
  result.Set(ffi::String("cudnn_version"), int64_t{Cudnn().version});
  result.Set(ffi::String("configs"), configs);
  result.Set(ffi::String("dropped"), dropped);
  result.Set(ffi::String("refusals"), refusals);
  return json::Stringify(result);
}

// Builds the plan of a module entry (with its "workload"); returns {"plan_json", "workspace",
// "build_ms", "restored"} as JSON, or {"refusal"} when cuDNN does not take it. An entry with a
// plan_json is restored from that, without falling back to engine and knobs.
ffi::String BuildPlanJson(const ffi::String& entry_json, const ffi::String& options_json) {
  json::Object object = ParseObject(entry_json, "entry");
  Workload load = Workload::FromJson(Require<json::Object>(object, "workload"));
  CudnnEntry entry = CudnnEntry::FromJson(object);
  json::Object result;
  try {
    Target target(ParseObject(options_json, "options"));
    auto start = std::chrono::steady_clock::now();
    std::vector<CudnnDescriptor> parts;
    CudnnGraph graph(load, target.target, entry.zero_bias);
    CudnnDescriptor plan = entry.plan_json.empty() ? BuildPlan(graph, entry.config, &parts)
                                                   : RestorePlan(target.target, entry.plan_json);
    std::chrono::duration<double, std::milli> elapsed = std::chrono::steady_clock::now() - start;
    result.Set(ffi::String("plan_json"), ffi::String(plan.GetText(cudnn::kPlanJson)));
    result.Set(ffi::String("workspace"), PlanWorkspace(plan));
    result.Set(ffi::String("build_ms"), elapsed.count());
    result.Set(ffi::String("restored"), !entry.plan_json.empty());
  } catch (const CudnnRefusal& refusal) {
    result.Set(ffi::String("refusal"), ffi::String(refusal.what()));
  }
  return json::Stringify(result);
}

ffi::String DeviceProperties() {
  try {
    int device = 0;
    CONVOY_CUDA(cudaGetDevice, &device);
    return DevicePropertiesOf(ThreadContext::Current().Cudnn(device).get());
  } catch (const CudnnRefusal& refusal) {
    TVM_FFI_THROW(RuntimeError) << "cuDNN did not describe the device: " << refusal.what();
  }
  return "";
}

}  // namespace

TVM_FFI_STATIC_INIT_BLOCK() {
  namespace refl = tvm::ffi::reflection;
  refl::GlobalDef()
      .def("convoy.cudnn.version", []() { return int64_t{Cudnn().version}; })
      .def("convoy.cudnn.path", []() { return ffi::String(Cudnn().path); })
      .def("convoy.cudnn.epilogue", DescribeEpilogue)
      .def("convoy.cudnn.enumerate", Enumerate)
      .def("convoy.cudnn.knobs", Knobs)
      .def("convoy.cudnn.check", Check)
      .def("convoy.cudnn.build_plan", BuildPlanJson)
      .def("convoy.cudnn.device_properties", DeviceProperties);
}

}  // namespace convoy
