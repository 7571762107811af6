// pointwise_conv with an activation of its own, as small_conv_activated_library.cuh has it.
#pragma once

#include "pointwise_conv_library.cuh"
#include "small_conv_activated_library.cuh"
