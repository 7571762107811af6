// A kernel library on host memory that follows convoy/attention_abi.h, in float32.
#include <cmath>
#include <cstring>
#include <vector>

#include "convoy/attention_abi.h"

namespace {

struct State {
  ConvoyAttention a;
  ConvoyAttentionOperands o;
};

int64_t At(const ConvoyAttentionView& view, int outer, int batch, int head, int row) {
  const int64_t* s = view.strides;
  return view.offset + outer * s[0] + batch * s[1] + head * s[2] + row * s[3];
}

void Row(const State& state, int outer, int batch, int head, int row) {
  const ConvoyAttention& a = state.a;
  auto* q = static_cast<const float*>(state.o.q) + At(a.q_view, outer, batch, head, row);
  auto* out = static_cast<float*>(state.o.o) + At(a.o_view, outer, batch, head, row);
  std::vector<double> scores(a.keys, -INFINITY);
  double most = -INFINITY, sum = 0;
  for (int key = 0; key < (a.causal ? std::min(a.keys, row + 1) : a.keys); ++key) {
    auto* k = static_cast<const float*>(state.o.k) + At(a.k_view, outer, batch, head, key);
    double product = 0;
    for (int d = 0; d < a.dim; ++d) product += double(q[d]) * k[d];
    scores[key] = a.scale * product;
    if (a.bias != CONVOY_NO_BIAS) {
      auto* bias = static_cast<const float*>(state.o.bias);
      scores[key] += bias[At(a.bias_view, outer, batch, head, row) + key];
    }
    most = std::max(most, scores[key]);
  }
  for (int d = 0; d < a.value_dim; ++d) out[d] = 0;
  if (most == -INFINITY) most = 0;
  for (int key = 0; key < a.keys; ++key) {
    auto* v = static_cast<const float*>(state.o.v) + At(a.v_view, outer, batch, head, key);
    double power = std::exp(scores[key] - most);
    sum += power;
    for (int d = 0; d < a.value_dim; ++d) out[d] += power * v[d];
  }
  for (int d = 0; d < a.value_dim; ++d) out[d] = sum == 0 && a.zeros ? 0 : out[d] / sum;
}

}  // namespace

extern "C" {

int32_t convoy_kernel_attention_abi(void) { return CONVOY_ATTENTION_ABI_VERSION; }
int32_t convoy_kernel_attention_check(const ConvoyAttention* a) { return a->dim == 13; }
int64_t convoy_kernel_state_bytes(void) { return sizeof(State); }
int32_t convoy_kernel_attention_prepare(const ConvoyAttention* a, const ConvoyAttentionOperands* o,
                                        void* state) {
  State filled{*a, *o};
  std::memcpy(state, &filled, sizeof(filled));
  return 0;
}
int32_t convoy_kernel_launch(const void* data, void*) {
  State state;
  std::memcpy(&state, data, sizeof(state));
  const ConvoyAttention& a = state.a;
  for (int outer = 0; outer < a.outer; ++outer)
    for (int batch = 0; batch < a.batch; ++batch)
      for (int head = 0; head < a.heads; ++head)
        for (int row = 0; row < a.queries; ++row) Row(state, outer, batch, head, row);
  return 0;
}
int32_t convoy_kernel_footprint(const void*, ConvoyFootprint*) { return 0; }
const char* convoy_kernel_error(int32_t) { return "heads of 13 elements"; }

}  // extern "C"
