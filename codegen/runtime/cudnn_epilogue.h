// An epilogue as a chain of cuDNN's pointwise operations, as plain data.
#pragma once

#include <string>
#include <vector>

#include "cudnn_abi.h"
#include "workload.h"

namespace convoy {

// The second operand of a pointwise operation; the first is the result of the one before.
enum class Second { kNone, kResidual, kBias, kZeroBias, kConstant, kActivationInput };

struct PointwiseStep {
  cudnn::PointwiseMode mode;
  Second second = Second::kNone;
  float constant = 0;  // of Second::kConstant
  // Of kReluForward: bounds where it is a clip, and the slope below zero.
  bool clips = false;
  float lower = 0, upper = 0, slope = 0;
  float alpha = 1;  // of kEluForward
};

// The steps in order. With `zero_bias` zeros are added where there is no bias. The residual is
// added before the bias: in the other order cuDNN 9.19 offers six engines instead of forty.
std::vector<PointwiseStep> EpilogueSteps(const Epilogue& epilogue, bool zero_bias);

// The constants of the steps, in order: they are passed by value when a plan runs.
std::vector<float> EpilogueConstants(const Epilogue& epilogue);

// One step a line, such as "add bias" and "relu 0 to 6".
std::string Describe(const std::vector<PointwiseStep>& steps);

}  // namespace convoy
