// A kernel library on host memory that follows convoy/bottleneck_abi.h, in float32, with clips.
#include <algorithm>
#include <cstring>
#include <vector>

#include "convoy/bottleneck_abi.h"

namespace {

struct State {
  ConvoyBottleneck b;
  ConvoyBottleneckOperands o;
};

const float* Floats(const void* data) { return static_cast<const float*>(data); }

float At(const void* data, size_t i) { return data ? Floats(data)[i] : 0; }

float Clipped(float value, float low, float high) {
  return low < high ? std::min(std::max(value, low), high) : value;
}

double Dot(const float* a, const float* b, int count) {
  double sum = 0;
  for (int i = 0; i < count; ++i) sum += double(a[i]) * b[i];
  return sum;
}

// The results of the first convolution at a pixel.
std::vector<float> Middle(const State& state, int n, int p, int q) {
  const ConvoyShape& s = state.b.conv;
  std::vector<float> found(s.k);
  for (int k = 0; k < s.k; ++k) {
    double sum = At(state.o.bias, k);
    for (int r = 0; r < s.r; ++r)
      for (int t = 0; t < s.s; ++t) {
        int h = p - s.pad_top + r * s.dilation_h, w = q - s.pad_left + t * s.dilation_w;
        if (h < 0 || h >= s.h || w < 0 || w >= s.w) continue;
        const float* x = Floats(state.o.x) + ((n * s.h + h) * s.w + w) * s.c;
        sum += Dot(x, Floats(state.o.filter) + ((k * s.r + r) * s.s + t) * s.c, s.c);
      }
    found[k] = Clipped(float(sum), s.clip_min, s.clip_max);
  }
  return found;
}

}  // namespace

extern "C" {

int32_t convoy_kernel_bottleneck_abi(void) { return CONVOY_BOTTLENECK_ABI_VERSION; }
int32_t convoy_kernel_bottleneck_check(const ConvoyBottleneck* b) { return b->expand == 13; }
int64_t convoy_kernel_state_bytes(void) { return sizeof(State); }
int32_t convoy_kernel_bottleneck_prepare(const ConvoyBottleneck* b,
                                         const ConvoyBottleneckOperands* o, void* state) {
  State filled{*b, *o};
  std::memcpy(state, &filled, sizeof(filled));
  return 0;
}
int32_t convoy_kernel_launch(const void* data, void*) {
  State state;
  std::memcpy(&state, data, sizeof(state));
  const ConvoyBottleneck& b = state.b;
  const ConvoyShape& s = b.conv;
  auto *y = static_cast<float*>(state.o.y), *z = static_cast<float*>(state.o.z);
  for (int pixel = 0; pixel < s.n * s.p * s.q; ++pixel, y += b.expand) {
    std::vector<float> middle = Middle(state, pixel / (s.p * s.q), pixel / s.q % s.p, pixel % s.q);
    for (int k = 0; k < b.expand; ++k) {
      double sum = Dot(middle.data(), Floats(state.o.expand) + k * s.k, s.k);
      sum += At(state.o.expand_bias, k) + At(state.o.residual, size_t(pixel) * b.expand + k);
      y[k] = Clipped(float(sum), b.expand_clip_min, b.expand_clip_max);
    }
    for (int k = 0; k < b.reduce; ++k) {
      double sum = Dot(y, Floats(state.o.reduce) + k * b.expand, b.expand);
      sum += At(state.o.reduce_bias, k);
      *z++ = Clipped(float(sum), b.reduce_clip_min, b.reduce_clip_max);
    }
  }
  return 0;
}
int32_t convoy_kernel_footprint(const void*, ConvoyFootprint*) { return 0; }
const char* convoy_kernel_error(int32_t) { return "13 channels"; }

}  // extern "C"
