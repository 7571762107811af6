// Faults on demand, by swizzle: 95 cannot be launched, 96 is wrong by a hundredth, 97 leaves outputs
// unwritten, 98 takes two milliseconds, 99 refuses its problem.
//
// A kernel library on host memory that follows convoy/kernel_abi.h: the plain loops of a float32
// convolution. Launched through the fake CUDA where that is loaded, directly otherwise.
#include <dlfcn.h>
#include <unistd.h>

#include <cmath>
#include <cstring>

#include "convoy/kernel_abi.h"
#include "convoy/programmatic_abi.h"
#include "convoy/strided_abi.h"

namespace {

struct State {
  ConvoyShape s;
  ConvoyOperands o;
  ConvoyRowStrides rows;  // of fprop; other operations have compact operands
};

float At(const void* base, int64_t i) { return static_cast<const float*>(base)[i]; }

int64_t X(const ConvoyShape& s, int n, int h, int w, int c) {
  return ((int64_t{n} * s.h + h) * s.w + w) * s.c + c;
}
int64_t Y(const ConvoyShape& s, int n, int p, int q, int k) {
  return ((int64_t{n} * s.p + p) * s.q + q) * s.k + k;
}
int64_t W(const ConvoyShape& s, int k, int r, int t, int c) {
  return ((int64_t{k} * s.r + r) * s.s + t) * (s.c / s.groups) + c;
}

// Calls body(n, p, q, h, w, k, r, t, c, c_in_group) for every product of the convolution.
template <typename Body>
void ForEachProduct(const ConvoyShape& s, Body body) {
  int cg = s.c / s.groups, kg = s.k / s.groups;
  for (int n = 0; n < s.n; ++n)
    for (int p = 0; p < s.p; ++p)
      for (int q = 0; q < s.q; ++q)
        for (int r = 0; r < s.r; ++r)
          for (int t = 0; t < s.s; ++t) {
            int h = p * s.stride_h - s.pad_top + r * s.dilation_h;
            int w = q * s.stride_w - s.pad_left + t * s.dilation_w;
            if (h < 0 || h >= s.h || w < 0 || w >= s.w) continue;
            for (int k = 0; k < s.k; ++k)
              for (int c = 0; c < cg; ++c) body(n, p, q, h, w, k, r, t, k / kg * cg + c, c);
          }
}

void Run(void* data) {
  State state;
  std::memcpy(&state, data, sizeof(state));
  if (state.s.swizzle == 98) usleep(2000);
  const ConvoyShape& s = state.s;
  const ConvoyOperands& o = state.o;
  auto* d = static_cast<float*>(o.d);
  // The sum is built in the workspace, so that a workspace shared by mistake shows in the result.
  auto* sum = static_cast<float*>(o.workspace);
  std::memset(sum, 0, static_cast<size_t>(convoy_kernel_workspace(&s)));
  if (s.op == CONVOY_DGRAD) {
    ForEachProduct(s, [&](int n, int p, int q, int h, int w, int k, int r, int t, int c, int cg) {
      sum[X(s, n, h, w, c)] += At(o.a, Y(s, n, p, q, k)) * At(o.b, W(s, k, r, t, cg));
    });
    std::memcpy(d, sum, sizeof(float) * s.n * s.h * s.w * s.c);
    return;
  }
  if (s.op == CONVOY_WGRAD) {
    ForEachProduct(s, [&](int n, int p, int q, int h, int w, int k, int r, int t, int c, int cg) {
      sum[W(s, k, r, t, cg)] += At(o.a, Y(s, n, p, q, k)) * At(o.b, X(s, n, h, w, c));
    });
    std::memcpy(d, sum, sizeof(float) * s.k * s.r * s.s * (s.c / s.groups));
    return;
  }
  ForEachProduct(s, [&](int n, int p, int q, int h, int w, int k, int r, int t, int c, int cg) {
    sum[Y(s, n, p, q, k)] +=
        At(o.a, X(s, n, h, w, 0) / s.c * state.rows.a + c) * At(o.b, W(s, k, r, t, cg));
  });
  for (int64_t i = 0; i < int64_t{s.n} * s.p * s.q * s.k; ++i) {
    float y = sum[i];
    if (o.residual) y += At(o.residual, i / s.k * state.rows.residual + i % s.k);
    if (o.bias) y += At(o.bias, i % s.k);
    if (s.clip_max > s.clip_min) y = std::fmin(std::fmax(y, s.clip_min), s.clip_max);
    if (s.swizzle == 97 && i % s.k == s.k - 1) continue;  // leaves outputs unwritten
    if (d) d[i / s.k * state.rows.d + i % s.k] = s.swizzle == 96 ? 1.01f * y : y;
    if (o.d2) {
      float z = At(o.scale, i % s.k) * y + At(o.shift, i % s.k);
      static_cast<float*>(o.d2)[i] = z > 0 ? z : 0;
    }
  }
}

}  // namespace

#define API extern "C" __attribute__((visibility("default")))

API int32_t convoy_kernel_abi(void) { return CONVOY_KERNEL_ABI_VERSION; }
API int32_t convoy_kernel_check(const ConvoyShape* s) { return s->swizzle == 99 ? 7 : 0; }
API int64_t convoy_kernel_workspace(const ConvoyShape* s) {
  int64_t y = int64_t{s->n} * s->p * s->q * s->k, x = int64_t{s->n} * s->h * s->w * s->c;
  int64_t w = int64_t{s->k} * s->r * s->s * (s->c / s->groups);
  return 4 * (s->op == CONVOY_DGRAD ? x : s->op == CONVOY_WGRAD ? w : y);
}
API int64_t convoy_kernel_state_bytes(void) { return sizeof(State); }
API int32_t convoy_kernel_prepare(const ConvoyShape* s, const ConvoyOperands* o, void* state) {
  State made{*s, *o, {s->c, s->k, s->k}};
  std::memcpy(state, &made, sizeof(made));
  return 0;
}
#ifdef STRIDED
API int32_t convoy_kernel_prepare_strided(const ConvoyShape* s, const ConvoyOperands* o,
                                          const ConvoyRowStrides* rows, void* state) {
  State made{*s, *o, *rows};
  std::memcpy(state, &made, sizeof(made));
  return 0;
}
#endif
API int32_t convoy_kernel_launch(const void* state, void* stream) {
  if (static_cast<const State*>(state)->s.swizzle == 95) return 1;
  using Launch = int (*)(void*, const char*, void (*)(void*), const void*, size_t);
  static auto launch = reinterpret_cast<Launch>(dlsym(RTLD_DEFAULT, "fake_cuda_launch"));
  if (launch) return launch(stream, "conv", Run, state, sizeof(State));
  State copy;
  std::memcpy(&copy, state, sizeof(copy));
  Run(&copy);
  return 0;
}
#ifdef PROGRAMMATIC
// Tells how it was launched: 1 is added to the first output, 2 with constant weights.
API int32_t convoy_kernel_launch_programmatic(const void* state, void* stream,
                                              int32_t constant_weights) {
  int32_t code = convoy_kernel_launch(state, stream);
  static_cast<float*>(static_cast<const State*>(state)->o.d)[0] += constant_weights ? 2 : 1;
  return code;
}
#endif
API int32_t convoy_kernel_footprint(const void*, ConvoyFootprint* footprint) {
  *footprint = {1, 1, 0, 1};
  return 0;
}
API const char* convoy_kernel_error(int32_t code) {
  return code == 7 ? "swizzle 99 does not exist" : "launch refused";
}
