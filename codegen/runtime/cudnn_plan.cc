#include "cudnn_plan.h"

#include <algorithm>
#include <mutex>
#include <set>

namespace convoy {
namespace {

// More than the knob types and notes of any cuDNN 9, so that lists of a newer one are read whole.
constexpr int kMaxKnobs = 128;
constexpr int kMaxNotes = 64;

const char* NumericalNoteName(int note) {
  switch (note) {
    case cudnn::kTensorCore: return "tensor_core";
    case cudnn::kDownConvertInputs: return "down_convert_inputs";
    case cudnn::kReducedPrecisionReduction: return "reduced_precision_reduction";
    case cudnn::kFft: return "fft";
    case cudnn::kNondeterministic: return "nondeterministic";
    case cudnn::kWinograd: return "winograd";
    case cudnn::kWinograd4x4: return "winograd_4x4";
    case cudnn::kWinograd6x6: return "winograd_6x6";
    case cudnn::kWinograd13x13: return "winograd_13x13";
    case cudnn::kStrictNanPropagation: return "strict_nan_propagation";
    default: return "unknown_numerical_note";
  }
}

const char* BehaviorNoteName(int note) {
  switch (note) {
    case cudnn::kRuntimeCompilation: return "runtime_compilation";
    case cudnn::kNeedsFilterReorder: return "needs_filter_reorder";
    case cudnn::kNeedsBiasReorder: return "needs_bias_reorder";
    case cudnn::kNativeCudaGraph: return "native_cuda_graph";
    case cudnn::kNeedsCublasLt: return "needs_cublaslt";
    default: return "unknown_behavior_note";
  }
}

EngineConfig Describe(const CudnnDescriptor& config, const char* mode) {
  EngineConfig result;
  result.mode = mode;
  CudnnDescriptor engine(cudnn::kEngine);
  cudnn::Descriptor raw = engine.get();
  config.Get(cudnn::kConfigEngine, cudnn::kTypeDescriptor, 1, &raw);
  engine.Get(cudnn::kEngineGlobalIndex, cudnn::kTypeInt64, 1, &result.engine);
  config.Get(cudnn::kConfigWorkspaceSize, cudnn::kTypeInt64, 1, &result.workspace);

  int notes[kMaxNotes];
  int64_t count =
      engine.Get(cudnn::kEngineNumericalNote, cudnn::kTypeNumericalNote, kMaxNotes, notes);
  for (int64_t i = 0; i < std::min<int64_t>(count, kMaxNotes); ++i) {
    result.notes.push_back(NumericalNoteName(notes[i]));
  }
  count = engine.Get(cudnn::kEngineBehaviorNote, cudnn::kTypeBehaviorNote, kMaxNotes, notes);
  for (int64_t i = 0; i < std::min<int64_t>(count, kMaxNotes); ++i) {
    result.notes.push_back(BehaviorNoteName(notes[i]));
  }

  std::vector<CudnnDescriptor> choices;
  std::vector<cudnn::Descriptor> raws;
  for (int i = 0; i < kMaxKnobs; ++i) {
    choices.emplace_back(cudnn::kKnobChoice);
    raws.push_back(choices.back().get());
  }
  count = config.Get(cudnn::kConfigKnobChoices, cudnn::kTypeDescriptor, kMaxKnobs, raws.data());
  for (int64_t i = 0; i < std::min<int64_t>(count, kMaxKnobs); ++i) {
    int type = 0;
    int64_t value = 0;
    choices[i].Get(cudnn::kKnobChoiceType, cudnn::kTypeKnobType, 1, &type);
    choices[i].Get(cudnn::kKnobChoiceValue, cudnn::kTypeInt64, 1, &value);
    result.knobs.emplace_back(type, value);
  }
  std::sort(result.knobs.begin(), result.knobs.end());
  return result;
}

void FinalizeHeuristics(CudnnDescriptor* heuristics, cudnn::HeuristicMode mode) {
  // Mode B is not safe to run in two threads at once.
  static auto* mutex = new std::mutex;
  std::unique_lock<std::mutex> lock(*mutex, std::defer_lock);
  if (mode == cudnn::kHeuristicB) lock.lock();
  heuristics->Finalize();
}

std::vector<CudnnDescriptor> RunHeuristics(const CudnnGraph& graph, cudnn::HeuristicMode mode,
                                           int32_t sm_count_target) {
  CudnnDescriptor heuristics(cudnn::kEngineHeuristics);
  heuristics.Set(cudnn::kHeuristicsGraph, graph.descriptor())
      .Set(cudnn::kHeuristicsMode, cudnn::kTypeHeuristicMode, mode);
  if (sm_count_target > 0) {
    heuristics.Set(cudnn::kHeuristicsSmCountTarget, cudnn::kTypeInt32, sm_count_target);
  }
  if (const CudnnDescriptor* properties = graph.target().device_properties) {
    heuristics.Set(cudnn::kHeuristicsDeviceProperties, *properties);
  }
  FinalizeHeuristics(&heuristics, mode);
  int64_t count = heuristics.Get(cudnn::kHeuristicsResults, cudnn::kTypeDescriptor, 0, nullptr);
  std::vector<CudnnDescriptor> results;
  std::vector<cudnn::Descriptor> raws;
  for (int64_t i = 0; i < count; ++i) {
    results.emplace_back(cudnn::kEngineConfig);
    raws.push_back(results.back().get());
  }
  if (count > 0) {
    count = heuristics.Get(cudnn::kHeuristicsResults, cudnn::kTypeDescriptor, count, raws.data());
  }
  results.resize(static_cast<size_t>(count));
  return results;
}

// Sets the device where the target is a description: a handle is set by another attribute.
void SetTarget(CudnnDescriptor* plan, const CudnnTarget& target) {
  if (target.device_properties) {
    plan->Set(cudnn::kPlanDeviceProperties, *target.device_properties);
  } else {
    plan->Set(cudnn::kPlanHandle, cudnn::kTypeHandle, target.handle);
  }
}

CudnnDescriptor MakeEngine(const CudnnGraph& graph, int64_t number) {
  CudnnDescriptor engine(cudnn::kEngine);
  engine.Set(cudnn::kEngineGraph, graph.descriptor())
      .Set(cudnn::kEngineGlobalIndex, cudnn::kTypeInt64, number);
  if (graph.target().device_properties) {
    engine.Set(cudnn::kEngineDeviceProperties, *graph.target().device_properties);
  }
  engine.Finalize();
  return engine;
}

// `parts` receives what the configuration refers to.
CudnnDescriptor MakeConfig(const CudnnGraph& graph, const EngineConfig& config,
                           std::vector<CudnnDescriptor>* parts) {
  CudnnDescriptor engine = MakeEngine(graph, config.engine);
  CudnnDescriptor chosen(cudnn::kEngineConfig);
  chosen.Set(cudnn::kConfigEngine, engine);
  parts->push_back(std::move(engine));
  std::vector<cudnn::Descriptor> raws;
  for (const auto& [type, value] : config.knobs) {
    CudnnDescriptor choice(cudnn::kKnobChoice);
    choice.Set(cudnn::kKnobChoiceType, cudnn::kTypeKnobType, static_cast<int>(type))
        .Set(cudnn::kKnobChoiceValue, cudnn::kTypeInt64, value);
    choice.Finalize();
    raws.push_back(choice.get());
    parts->push_back(std::move(choice));
  }
  if (!raws.empty()) {
    chosen.Set(cudnn::kConfigKnobChoices, cudnn::kTypeDescriptor, static_cast<int64_t>(raws.size()),
               raws.data());
  }
  chosen.Finalize();
  return chosen;
}

}  // namespace

std::vector<EngineConfig> EnumerateEngines(const CudnnGraph& graph, const EnumerateOptions& options,
                                           std::vector<std::string>* refusals) {
  struct Mode {
    cudnn::HeuristicMode mode;
    const char* name;
    bool wanted;
  };
  std::vector<EngineConfig> configs;
  std::set<std::pair<int64_t, std::vector<std::pair<int64_t, int64_t>>>> seen;
  for (const Mode& mode : {Mode{cudnn::kHeuristicA, "A", options.mode_a},
                           Mode{cudnn::kHeuristicB, "B", options.mode_b},
                           Mode{cudnn::kHeuristicFallback, "fallback", options.fallback}}) {
    if (!mode.wanted) continue;
    try {
      for (const CudnnDescriptor& raw : RunHeuristics(graph, mode.mode, options.sm_count_target)) {
        EngineConfig config = Describe(raw, mode.name);
        if (seen.emplace(config.engine, config.knobs).second) configs.push_back(std::move(config));
      }
    } catch (const CudnnRefusal& refusal) {
      refusals->push_back(std::string("heuristic ") + mode.name + ": " + refusal.what());
    }
  }
  return configs;
}

CudnnDescriptor BuildPlan(const CudnnGraph& graph, const EngineConfig& config,
                          std::vector<CudnnDescriptor>* parts) {
  CudnnDescriptor chosen = MakeConfig(graph, config, parts);
  CudnnDescriptor plan(cudnn::kExecutionPlan);
  SetTarget(&plan, graph.target());
  plan.Set(cudnn::kPlanConfig, chosen);
  plan.Finalize();
  parts->push_back(std::move(chosen));
  return plan;
}

std::vector<KnobRange> EngineKnobs(const CudnnGraph& graph, int64_t engine_number) {
  CudnnDescriptor engine = MakeEngine(graph, engine_number);
  std::vector<CudnnDescriptor> infos;
  std::vector<cudnn::Descriptor> raws;
  for (int i = 0; i < kMaxKnobs; ++i) {
    infos.emplace_back(cudnn::kKnobInfo);
    raws.push_back(infos.back().get());
  }
  int64_t count =
      engine.Get(cudnn::kEngineKnobInfo, cudnn::kTypeDescriptor, kMaxKnobs, raws.data());
  std::vector<KnobRange> ranges;
  for (int64_t i = 0; i < std::min<int64_t>(count, kMaxKnobs); ++i) {
    KnobRange range;
    int type = 0;
    infos[i].Get(cudnn::kKnobInfoType, cudnn::kTypeKnobType, 1, &type);
    infos[i].Get(cudnn::kKnobInfoMinimum, cudnn::kTypeInt64, 1, &range.minimum);
    infos[i].Get(cudnn::kKnobInfoMaximum, cudnn::kTypeInt64, 1, &range.maximum);
    infos[i].Get(cudnn::kKnobInfoStride, cudnn::kTypeInt64, 1, &range.stride);
    range.type = type;
    ranges.push_back(range);
  }
  std::sort(ranges.begin(), ranges.end(),
            [](const KnobRange& a, const KnobRange& b) { return a.type < b.type; });
  return ranges;
}

EngineConfig CheckConfig(const CudnnGraph& graph, const EngineConfig& config) {
  std::vector<CudnnDescriptor> parts;
  EngineConfig described = Describe(MakeConfig(graph, config, &parts), "given");
  described.engine = config.engine;
  described.knobs = config.knobs;
  return described;
}

CudnnDescriptor RestorePlan(const CudnnTarget& target, const std::string& plan_json) {
  CudnnDescriptor plan(cudnn::kExecutionPlan);
  SetTarget(&plan, target);
  plan.Set(cudnn::kPlanJson, cudnn::kTypeChar, static_cast<int64_t>(plan_json.size()),
           plan_json.data());
  plan.Finalize();
  return plan;
}

int64_t PlanWorkspace(const CudnnDescriptor& plan) {
  int64_t bytes = 0;
  plan.Get(cudnn::kPlanWorkspaceSize, cudnn::kTypeInt64, 1, &bytes);
  return bytes;
}

CudnnDescriptor DevicePropertiesFromJson(const std::string& text) {
  CudnnDescriptor properties(cudnn::kDeviceProperties);
  properties.Set(cudnn::kDevicePropertiesJson, cudnn::kTypeChar, static_cast<int64_t>(text.size()),
                 text.data());
  properties.Finalize();
  return properties;
}

std::string DevicePropertiesOf(cudnn::Handle handle) {
  CudnnDescriptor properties(cudnn::kDeviceProperties);
  properties.Set(cudnn::kDevicePropertiesHandle, cudnn::kTypeHandle, handle);
  properties.Finalize();
  return properties.GetText(cudnn::kDevicePropertiesJson);
}

}  // namespace convoy
