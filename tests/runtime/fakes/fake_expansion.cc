// A kernel library on host memory that follows convoy/expansion_abi.h, in float32, with clips.
#include <algorithm>
#include <cstring>

#include "convoy/expansion_abi.h"

namespace {

struct State {
  ConvoyExpansion e;
  ConvoyExpansionOperands o;
};

const float* Floats(const void* data) { return static_cast<const float*>(data); }

float Clipped(float value, float low, float high) {
  return low < high ? std::min(std::max(value, low), high) : value;
}

float Wide(const State& state, int n, int h, int w, int k) {
  const ConvoyExpansion& e = state.e;
  if (h < 0 || h >= e.conv.h || w < 0 || w >= e.conv.w) return 0;
  double sum = state.o.expand_bias ? Floats(state.o.expand_bias)[k] : 0;
  const float* x = Floats(state.o.x) + ((n * e.conv.h + h) * e.conv.w + w) * e.channels;
  for (int c = 0; c < e.channels; ++c) {
    sum += double(x[c]) * Floats(state.o.expand)[k * e.channels + c];
  }
  return Clipped(float(sum), e.clip_min, e.clip_max);
}

float Sum(const State& state, int n, int p, int q, int k) {
  const ConvoyShape& s = state.e.conv;
  double sum = state.o.bias ? Floats(state.o.bias)[k] : 0;
  for (int r = 0; r < s.r; ++r)
    for (int t = 0; t < s.s; ++t) {
      int h = p * s.stride_h - s.pad_top + r * s.dilation_h;
      int w = q * s.stride_w - s.pad_left + t * s.dilation_w;
      sum += double(Wide(state, n, h, w, k)) * Floats(state.o.filter)[(k * s.r + r) * s.s + t];
    }
  return Clipped(float(sum), s.clip_min, s.clip_max);
}

}  // namespace

extern "C" {

int32_t convoy_kernel_expansion_abi(void) { return CONVOY_EXPANSION_ABI_VERSION; }
int32_t convoy_kernel_expansion_check(const ConvoyExpansion* e) { return e->channels == 13; }
int64_t convoy_kernel_state_bytes(void) { return sizeof(State); }
int32_t convoy_kernel_expansion_prepare(const ConvoyExpansion* e, const ConvoyExpansionOperands* o,
                                        void* state) {
  State filled{*e, *o};
  std::memcpy(state, &filled, sizeof(filled));
  return 0;
}
int32_t convoy_kernel_launch(const void* data, void*) {
  State state;
  std::memcpy(&state, data, sizeof(state));
  const ConvoyShape& s = state.e.conv;
  auto* y = static_cast<float*>(state.o.y);
  for (int n = 0; n < s.n; ++n)
    for (int p = 0; p < s.p; ++p)
      for (int q = 0; q < s.q; ++q)
        for (int k = 0; k < s.k; ++k) *y++ = Sum(state, n, p, q, k);
  return 0;
}
int32_t convoy_kernel_footprint(const void*, ConvoyFootprint*) { return 0; }
const char* convoy_kernel_error(int32_t) { return "13 channels"; }

}  // extern "C"
