#include "cudnn_epilogue.h"

#include <sstream>

namespace convoy {
namespace {

PointwiseStep Add(Second second) { return {cudnn::kAdd, second}; }

PointwiseStep AddConstant(float value) { return {cudnn::kAdd, Second::kConstant, value}; }

PointwiseStep MultiplyBy(float value) { return {cudnn::kMultiply, Second::kConstant, value}; }

PointwiseStep Clip(float lower, float upper) {
  PointwiseStep step{cudnn::kReluForward};
  step.clips = true;
  step.lower = lower;
  step.upper = upper;
  return step;
}

std::vector<PointwiseStep> ActivationSteps(const Epilogue& epilogue) {
  const PointwiseStep gate = {cudnn::kMultiply, Second::kActivationInput};
  PointwiseStep step{cudnn::kReluForward};
  switch (epilogue.activation) {
    case Activation::kNone: return {};
    case Activation::kRelu: return {step};
    case Activation::kClip: return {Clip(epilogue.clip_min, epilogue.clip_max)};
    case Activation::kLeakyRelu: step.slope = epilogue.alpha; return {step};
    case Activation::kElu:
      step.mode = cudnn::kEluForward;
      step.alpha = epilogue.alpha;
      return {step};
    case Activation::kSigmoid: return {{cudnn::kSigmoidForward}};
    case Activation::kSilu: return {{cudnn::kSwishForward}};
    case Activation::kGelu: return {{cudnn::kGeluForward}};
    case Activation::kGeluTanh: return {{cudnn::kGeluTanhForward}};
    case Activation::kTanh: return {{cudnn::kTanhForward}};
    case Activation::kSoftplus: return {{cudnn::kSoftplusForward}};
    case Activation::kMish: return {{cudnn::kSoftplusForward}, {cudnn::kTanhForward}, gate};
    case Activation::kHardSwish: return {AddConstant(3), Clip(0, 6), gate, MultiplyBy(1.0f / 6)};
  }
  return {};
}

const char* Name(cudnn::PointwiseMode mode) {
  switch (mode) {
    case cudnn::kAdd: return "add";
    case cudnn::kMultiply: return "multiply";
    case cudnn::kReluForward: return "relu";
    case cudnn::kTanhForward: return "tanh";
    case cudnn::kSigmoidForward: return "sigmoid";
    case cudnn::kEluForward: return "elu";
    case cudnn::kGeluForward: return "gelu";
    case cudnn::kSoftplusForward: return "softplus";
    case cudnn::kSwishForward: return "swish";
    case cudnn::kGeluTanhForward: return "gelu_tanh";
    default: return "?";  // of no epilogue
  }
}

}  // namespace

std::vector<PointwiseStep> EpilogueSteps(const Epilogue& epilogue, bool zero_bias) {
  std::vector<PointwiseStep> steps;
  if (epilogue.residual && !epilogue.residual_last) steps.push_back(Add(Second::kResidual));
  if (epilogue.bias) {
    steps.push_back(Add(Second::kBias));
  } else if (zero_bias) {
    steps.push_back(Add(Second::kZeroBias));
  }
  for (const PointwiseStep& step : ActivationSteps(epilogue)) steps.push_back(step);
  if (epilogue.residual_last) steps.push_back(Add(Second::kResidual));
  return steps;
}

std::vector<float> EpilogueConstants(const Epilogue& epilogue) {
  std::vector<float> constants;
  for (const PointwiseStep& step : EpilogueSteps(epilogue, false)) {
    if (step.second == Second::kConstant) constants.push_back(step.constant);
  }
  return constants;
}

std::string Describe(const std::vector<PointwiseStep>& steps) {
  std::ostringstream text;
  for (const PointwiseStep& step : steps) {
    text << Name(step.mode);
    switch (step.second) {
      case Second::kNone: break;
      case Second::kResidual: text << " residual"; break;
      case Second::kBias: text << " bias"; break;
      case Second::kZeroBias: text << " zeros"; break;
      case Second::kConstant: text << " " << step.constant; break;
      case Second::kActivationInput: text << " x"; break;
    }
    if (step.clips) text << " " << step.lower << " to " << step.upper;
    if (step.slope != 0) text << " slope " << step.slope;
    if (step.mode == cudnn::kEluForward) text << " alpha " << step.alpha;
    text << "\n";
  }
  return text.str();
}

}  // namespace convoy
