// A kernel library on host memory that follows convoy/stem_abi.h, in float32, without activations.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "convoy/stem_abi.h"

namespace {

struct State {
  ConvoyStem s;
  ConvoyOperands o;
};

float Pixel(const State& state, int n, int h, int w, int c) {
  const ConvoyStem& s = state.s;
  if (h < 0 || h >= s.conv.h || w < 0 || w >= s.conv.w) return 0;
  auto* x = static_cast<const float*>(state.o.a);
  if (s.channels_last) return x[((n * s.conv.h + h) * s.conv.w + w) * s.channels + c];
  return x[((n * s.channels + c) * s.conv.h + h) * s.conv.w + w];
}

float Sum(const State& state, int n, int p, int q, int k) {
  const ConvoyShape& s = state.s.conv;
  auto* bias = static_cast<const float*>(state.o.bias);
  double sum = bias ? bias[k] : 0;
  for (int r = 0; r < s.r; ++r)
    for (int t = 0; t < s.s; ++t)
      for (int c = 0; c < state.s.channels; ++c) {
        int h = p * s.stride_h - s.pad_top + r * s.dilation_h;
        int w = q * s.stride_w - s.pad_left + t * s.dilation_w;
        auto* filter = static_cast<const float*>(state.o.b);
        sum += double(Pixel(state, n, h, w, c)) * filter[((k * s.r + r) * s.s + t) * s.c + c];
      }
  return float(sum);
}

float Largest(const State& state, int n, int p, int q, int k) {
  const ConvoyStem& s = state.s;
  if (s.pool_h == 0) return Sum(state, n, p, q, k);
  float largest = -INFINITY;
  for (int r = 0; r < s.pool_h; ++r)
    for (int t = 0; t < s.pool_w; ++t) {
      int row = p * s.pool_stride_h - s.pool_top + r,
          column = q * s.pool_stride_w - s.pool_left + t;
      if (row < 0 || row >= s.conv.p || column < 0 || column >= s.conv.q) continue;
      largest = std::max(largest, Sum(state, n, row, column, k));
    }
  return largest;
}

}  // namespace

extern "C" {

int32_t convoy_kernel_stem_abi(void) { return CONVOY_STEM_ABI_VERSION; }
int32_t convoy_kernel_stem_check(const ConvoyStem* s) { return s->conv.k == 13 || !s->is_float32; }
int64_t convoy_kernel_state_bytes(void) { return sizeof(State); }
int32_t convoy_kernel_stem_prepare(const ConvoyStem* s, const ConvoyOperands* o, void* state) {
  State filled{*s, *o};
  std::memcpy(state, &filled, sizeof(filled));
  return 0;
}
int32_t convoy_kernel_launch(const void* data, void*) {
  State state;
  std::memcpy(&state, data, sizeof(state));
  const ConvoyStem& s = state.s;
  auto* y = static_cast<float*>(state.o.d);
  for (int n = 0; n < s.conv.n; ++n)
    for (int p = 0; p < s.p; ++p)
      for (int q = 0; q < s.q; ++q)
        for (int k = 0; k < s.conv.k; ++k) *y++ = Largest(state, n, p, q, k);
  return 0;
}
int32_t convoy_kernel_footprint(const void*, ConvoyFootprint*) { return 0; }
const char* convoy_kernel_error(int32_t) { return "13 output channels"; }

}  // extern "C"
