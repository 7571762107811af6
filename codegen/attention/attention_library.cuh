// The host side of attention.cuh behind convoy/attention_abi.h. The emitted source ends with
// CONVOY_EXPORT_ATTENTION(Config).
#pragma once

#include "attention.cuh"
#include "convoy/attention_abi.h"
#include "convoy/kernel_library.cuh"
#include "convoy/programmatic_abi.h"

namespace convoy::attention {

struct State {
  Params params;
  int blocks, shared_bytes;
};

// Rows are read and written 16 bytes at a time.
inline bool is_aligned(const ConvoyAttentionView& view) {
  bool aligned = view.offset % 8 == 0;
  for (int64_t stride : view.strides) aligned = aligned && stride % 8 == 0;
  return aligned;
}

inline bool is_aligned(const void* pointer) {
  return reinterpret_cast<uintptr_t>(pointer) % 16 == 0;
}

inline Strides strides_of(const ConvoyAttentionView& view) {
  return {view.strides[0], view.strides[1], view.strides[2], int(view.strides[3])};
}

template <class Config>
struct Library {
  using T = typename Config::Element;

  static int64_t blocks(const ConvoyAttention& a) {
    int64_t tiles = (int64_t(a.queries) + Config::kRows - 1) / Config::kRows;
    return tiles * a.outer * a.batch * a.heads;
  }

  static int32_t check(const ConvoyAttention& a) {
    for (int32_t size : {a.outer, a.batch, a.heads, a.queries, a.keys, a.dim, a.value_dim}) {
      if (size < 1) return kBadShape;
    }
    if (a.bias < CONVOY_NO_BIAS || a.bias > CONVOY_FLOAT32_BIAS) return kUnsupported;
    if (a.dim > Config::kDim || a.value_dim > Config::kValueDim) return kWrongChannels;
    if (a.dim % 8 || a.value_dim % 8) return kMisaligned;
    for (const ConvoyAttentionView* view : {&a.q_view, &a.k_view, &a.v_view, &a.o_view}) {
      if (!is_aligned(*view)) return kMisaligned;
      if (view->strides[3] > INT32_MAX) return kTooLarge;
    }
    if (a.bias_view.strides[3] > INT32_MAX) return kTooLarge;
    bool fits = a.queries <= INT32_MAX - Config::kRows && a.keys <= INT32_MAX - Config::kKeyTile;
    return fits && blocks(a) <= INT32_MAX ? kOk : kTooLarge;
  }

  static int32_t prepare(const ConvoyAttention& a, const ConvoyAttentionOperands& o, State* state) {
    if (!o.q || !o.k || !o.v || !o.o || (a.bias != CONVOY_NO_BIAS && !o.bias)) {
      return kMissingOperand;
    }
    for (const void* pointer : {o.q, o.k, o.v, static_cast<const void*>(o.o)}) {
      if (!is_aligned(pointer)) return kMisaligned;
    }
    Params& p = state->params;
    p.q = static_cast<const T*>(o.q) + a.q_view.offset;
    p.k = static_cast<const T*>(o.k) + a.k_view.offset;
    p.v = static_cast<const T*>(o.v) + a.v_view.offset;
    p.o = static_cast<T*>(o.o) + a.o_view.offset;
    p.wide_bias = a.bias == CONVOY_FLOAT32_BIAS;
    int64_t size = p.wide_bias ? sizeof(float) : sizeof(T);
    p.bias = a.bias == CONVOY_NO_BIAS
                 ? nullptr
                 : static_cast<const char*>(o.bias) + a.bias_view.offset * size;
    p.q_strides = strides_of(a.q_view);
    p.k_strides = strides_of(a.k_view);
    p.v_strides = strides_of(a.v_view);
    p.o_strides = strides_of(a.o_view);
    p.bias_strides = strides_of(a.bias_view);
    p.batch = a.batch;
    p.heads = a.heads;
    p.queries = a.queries;
    p.keys = a.keys;
    p.dim = a.dim;
    p.value_dim = a.value_dim;
    p.row_tiles = (a.queries + Config::kRows - 1) / Config::kRows;
    p.scale = a.scale * 1.4426950408889634f;
    p.late_scale = p.bias == nullptr && p.scale > 0.f;
    p.causal = a.causal != 0;
    p.zeros = a.zeros != 0;
    state->blocks = int(blocks(a));
    state->shared_bytes = Config::shared_bytes(a.keys);
    return allow_shared(reinterpret_cast<const void*>(&attention<Config>),
                        Config::shared_bytes(INT32_MAX));
  }

  // With `programmatic` it starts before its predecessor has ended.
  static int32_t launch(const State& state, cudaStream_t stream, bool programmatic) {
    cudaLaunchAttribute attribute;
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config = {dim3(unsigned(state.blocks)),
                                 dim3(Config::kThreads),
                                 size_t(state.shared_bytes),
                                 stream,
                                 &attribute,
                                 programmatic ? 1u : 0u};
    return from_cuda(cudaLaunchKernelEx(&config, attention<Config>, state.params));
  }

  static int32_t footprint(const State& state, ConvoyFootprint* out) {
    return fill_footprint(reinterpret_cast<const void*>(&attention<Config>), state.blocks,
                          Config::kThreads, state.shared_bytes, out);
  }
};

}  // namespace convoy::attention

#define CONVOY_EXPORT_ATTENTION(Config)                                                         \
  using AttentionLibrary = convoy::attention::Library<Config>;                                  \
  using AttentionState = convoy::attention::State;                                              \
  CONVOY_API int32_t convoy_kernel_attention_abi(void) { return CONVOY_ATTENTION_ABI_VERSION; } \
  CONVOY_API int32_t convoy_kernel_attention_check(const ConvoyAttention* problem) {            \
    return AttentionLibrary::check(*problem);                                                   \
  }                                                                                             \
  CONVOY_API int64_t convoy_kernel_state_bytes(void) {                                          \
    return convoy::state_bytes<AttentionState>();                                               \
  }                                                                                             \
  CONVOY_API int32_t convoy_kernel_attention_prepare(                                           \
      const ConvoyAttention* problem, const ConvoyAttentionOperands* operands, void* buffer) {  \
    if (int32_t code = AttentionLibrary::check(*problem)) return code;                          \
    auto* state = new (convoy::state_at<AttentionState>(buffer)) AttentionState();              \
    return AttentionLibrary::prepare(*problem, *operands, state);                               \
  }                                                                                             \
  CONVOY_API int32_t convoy_kernel_launch(const void* buffer, void* stream) {                   \
    return AttentionLibrary::launch(*convoy::state_at<AttentionState>(buffer),                  \
                                    static_cast<cudaStream_t>(stream), false);                  \
  }                                                                                             \
  CONVOY_API int32_t convoy_kernel_launch_programmatic(const void* buffer, void* stream,        \
                                                       int32_t) {                               \
    return AttentionLibrary::launch(*convoy::state_at<AttentionState>(buffer),                  \
                                    static_cast<cudaStream_t>(stream), true);                   \
  }                                                                                             \
  CONVOY_API int32_t convoy_kernel_footprint(const void* buffer, ConvoyFootprint* footprint) {  \
    return AttentionLibrary::footprint(*convoy::state_at<AttentionState>(buffer), footprint);   \
  }                                                                                             \
  CONVOY_API const char* convoy_kernel_error(int32_t code) { return convoy::describe(code); }
