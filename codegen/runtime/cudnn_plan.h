// Engine configurations of an operation graph, and execution plans built from them.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "cudnn_graph.h"

namespace convoy {

struct EngineConfig {
  int64_t engine = 0;
  std::vector<std::pair<int64_t, int64_t>> knobs;  // (type, value), ascending by type
  int64_t workspace = 0;
  std::string mode;  // heuristic that proposed it first: A, B or fallback
  std::vector<std::string> notes;
};

struct EnumerateOptions {
  bool mode_a = true, mode_b = true, fallback = true;
  int32_t sm_count_target = 0;  // 0: the whole device
};

// What the heuristics propose, in their order, without duplicates. `refusals` receives why a
// heuristic gave nothing. Knows nothing of limits: filtering is the caller's.
std::vector<EngineConfig> EnumerateEngines(const CudnnGraph& graph, const EnumerateOptions& options,
                                           std::vector<std::string>* refusals);

struct KnobRange {
  int64_t type = 0, minimum = 0, maximum = 0, stride = 1;
};

// The knobs of an engine with their values, ascending by type; not every combination is valid.
// Throws CudnnRefusal where the engine does not take the graph.
std::vector<KnobRange> EngineKnobs(const CudnnGraph& graph, int64_t engine);

// Completes a configuration made of engine and knobs: workspace and notes. Throws CudnnRefusal
// where it is not valid.
EngineConfig CheckConfig(const CudnnGraph& graph, const EngineConfig& config);

// Builds a plan from engine and knobs, without heuristics. `parts` receives what the plan was made
// from, to be kept as long as the plan and the graph. Throws CudnnRefusal.
CudnnDescriptor BuildPlan(const CudnnGraph& graph, const EngineConfig& config,
                          std::vector<CudnnDescriptor>* parts);

// Restores a plan from the JSON that cuDNN wrote for it. Throws CudnnRefusal, as it does for
// another cuDNN version, driver version or device.
CudnnDescriptor RestorePlan(const CudnnTarget& target, const std::string& plan_json);

int64_t PlanWorkspace(const CudnnDescriptor& plan);

// The finalised device description in cuDNN's JSON form. Throws CudnnRefusal.
CudnnDescriptor DevicePropertiesFromJson(const std::string& text);
std::string DevicePropertiesOf(cudnn::Handle handle);

}  // namespace convoy
