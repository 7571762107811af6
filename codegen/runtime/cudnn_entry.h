// The cuDNN part of a module specification: engine, knobs and optionally the plan's JSON.
#pragma once

#include <string>

#include "cudnn_plan.h"
#include "json_fields.h"

namespace convoy {

struct CudnnEntry {
  EngineConfig config;
  bool zero_bias = false;
  std::string plan_json;  // kept where building takes seconds; empty otherwise
  int cudnn_version = 0;  // that the engine was chosen with

  // Throws InvalidOption naming a field of the wrong form.
  static CudnnEntry FromJson(const json::Object& entry);
};

std::string VersionText(int cudnn_version);  // 91900 -> "9.19.0"

}  // namespace convoy
