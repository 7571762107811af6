// A kernel library on host memory that follows convoy/squeeze_excite_abi.h, in float32, with clips.
#include <algorithm>
#include <cstring>
#include <vector>

#include "convoy/squeeze_excite_abi.h"

namespace {

struct State {
  ConvoySqueezeExcite b;
  ConvoySqueezeExciteOperands o;
};

const float* Floats(const void* data) { return static_cast<const float*>(data); }

float At(const void* data, size_t i) { return data ? Floats(data)[i] : 0; }

float Clipped(double value, float low, float high) {
  return low < high ? std::min(std::max(float(value), low), high) : float(value);
}

std::vector<float> Product(const std::vector<float>& x, const void* weights, const void* bias,
                           int count, float low, float high) {
  std::vector<float> found(count);
  for (int k = 0; k < count; ++k) {
    double sum = At(bias, k);
    for (size_t c = 0; c < x.size(); ++c) sum += double(x[c]) * At(weights, k * x.size() + c);
    found[k] = Clipped(sum, low, high);
  }
  return found;
}

std::vector<float> Gates(const State& state, int image) {
  const ConvoySqueezeExcite& b = state.b;
  const int pixels = b.image.h * b.image.w, channels = b.image.c;
  std::vector<float> means(channels);
  for (int c = 0; c < channels; ++c) {
    double sum = 0;
    for (int i = 0; i < pixels; ++i) {
      sum += At(state.o.x, (size_t(image) * pixels + i) * channels + c);
    }
    means[c] = float(sum / pixels);
  }
  std::vector<float> squeezed = Product(means, state.o.squeeze, state.o.squeeze_bias, b.squeezed,
                                        b.squeeze_clip_min, b.squeeze_clip_max);
  return Product(squeezed, state.o.excite, state.o.excite_bias, channels, b.gate_clip_min,
                 b.gate_clip_max);
}

}  // namespace

extern "C" {

int32_t convoy_kernel_squeeze_excite_abi(void) { return CONVOY_SQUEEZE_EXCITE_ABI_VERSION; }
int32_t convoy_kernel_squeeze_excite_check(const ConvoySqueezeExcite* b) {
  return b->squeezed == 13;
}
int64_t convoy_kernel_state_bytes(void) { return sizeof(State); }
int32_t convoy_kernel_squeeze_excite_prepare(const ConvoySqueezeExcite* b,
                                             const ConvoySqueezeExciteOperands* o, void* state) {
  State filled{*b, *o};
  std::memcpy(state, &filled, sizeof(filled));
  return 0;
}
int32_t convoy_kernel_launch(const void* data, void*) {
  State state;
  std::memcpy(&state, data, sizeof(state));
  const ConvoyShape& s = state.b.image;
  auto* y = static_cast<float*>(state.o.y);
  for (int image = 0; image < s.n; ++image) {
    std::vector<float> gates = Gates(state, image);
    const size_t first = size_t(image) * s.h * s.w * s.c;
    for (size_t i = first; i < first + size_t(s.h) * s.w * s.c; ++i) {
      float value = At(state.o.x, i) * gates[i % s.c] + At(state.o.residual, i);
      y[i] = Clipped(value, s.clip_min, s.clip_max);
    }
  }
  return 0;
}
int32_t convoy_kernel_footprint(const void*, ConvoyFootprint*) { return 0; }
const char* convoy_kernel_error(int32_t) { return "13 channels"; }

}  // extern "C"
