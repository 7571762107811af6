// dgrad_strided behind the C ABI: checks a problem, lays out its phases, encodes the tensor maps.
#pragma once

#include <algorithm>
#include <utility>

#include "dgrad_strided.cuh"
#include "tensor_map.cuh"

namespace convoy::hopper {

// The phases of a problem with at least one element, most taps first, those without taps last.
struct PhaseList {
  struct Entry {
    int phase_h, phase_w;
    PhaseAxis h, w;
    int taps() const { return h.taps * w.taps; }
  };
  Entry entry[kMaxPhases];
  int count = 0;
  int with_taps = 0;

  explicit PhaseList(const ConvoyShape& s) {
    for (int a = 0; a < s.stride_h; ++a) {
      for (int b = 0; b < s.stride_w; ++b) {
        Entry e{a, b, phase_axis(s.h, s.r, s.stride_h, s.pad_top, a),
                phase_axis(s.w, s.s, s.stride_w, s.pad_left, b)};
        if (e.h.extent == 0 || e.w.extent == 0) continue;
        with_taps += e.taps() > 0;
        entry[count++] = e;
      }
    }
    std::stable_sort(entry, entry + count,
                     [](const Entry& x, const Entry& y) { return x.taps() > y.taps(); });
  }
};

template <class Config>
struct DgradStrided {
  using T = typename Config::Element;
  struct State {
    DgradParams params;
    int blocks;
  };

  static int32_t check(const ConvoyShape& s) {
    if (int32_t code = check_conv(s, CONVOY_DGRAD)) return code;
    if (int64_t(s.stride_h) * s.stride_w > kMaxPhases) return kUnsupported;
    if (s.c % 8 != 0 || s.k % 8 != 0) return kMisaligned;
    if (s.swizzle < 0 || s.swizzle > kSorted || s.sm_count < 1) return kBadShape;
    constexpr int64_t kLimit = int64_t(1) << 31;
    if (int64_t(s.n) * s.h * s.w + Config::kRows >= kLimit) return kTooLarge;
    if (int64_t(s.r) * s.s * s.c * 2 >= int64_t(1) << 40) return kTooLarge;
    if (int64_t(s.h) * s.w * s.c * 2 >= int64_t(1) << 40) return kTooLarge;
    PhaseList phases(s);
    if (phases.with_taps < phases.count && !Config::kZeros) return kNeedsZeros;
    for (int i = 0; i < phases.with_taps; ++i) {
      const PhaseList::Entry& e = phases.entry[i];
      bool fits =
          corner_fits(e.h.lower, e.h.extent, s.p) && corner_fits(e.w.lower, e.w.extent, s.q);
      if (!fits || e.h.taps > 256 || e.w.taps > 256) return kUnsupported;
    }
    return kOk;
  }

  static int32_t prepare(const ConvoyShape& s, const ConvoyOperands& o, State* state) {
    DgradParams& params = state->params;
    PhaseList phases(s);
    params.channel_steps = (s.k + kStepK - 1) / kStepK;
    params.channels = s.c;
    params.filter_w = s.s;
    params.stride_h = s.stride_h;
    params.stride_w = s.stride_w;
    int rows = 0;
    for (int i = 0; i < phases.count; ++i) {
      params.phase[i] = phase_of(s, phases.entry[i]);
      rows = std::max(rows, params.phase[i].tiles);
    }
    if (int32_t code = encode(s, o, phases, &params)) return code;
    params.zero_phases = phases.count - phases.with_taps;
    params.order.phases = phases.with_taps;
    if (phases.with_taps == 0) {
      // All of dx is zero: one phase of empty tiles carries the stores. There is room for it, as an
      // axis shorter than its stride leaves phases out.
      std::copy_backward(params.phase, params.phase + phases.count,
                         params.phase + phases.count + 1);
      std::copy_backward(params.dx, params.dx + phases.count, params.dx + phases.count + 1);
      params.phase[0] = Phase{};
      params.order.phases = 1;
    }
    params.order.rows = rows;
    params.order.columns = (s.c + Config::kColumns - 1) / Config::kColumns;
    params.order.kind = s.swizzle ? s.swizzle : default_order(s, params);
    if (int64_t(rows) * params.order.columns * params.order.phases >= int64_t(1) << 31) {
      return kTooLarge;
    }
    const int teams = std::max(1, s.sm_count / Config::kSplit);
    state->blocks = int(std::min<long long>(tile_blocks(params.order), teams)) * Config::kSplit;
    return allow_shared(kernel(), Config::kSharedBytes);
  }

  static int32_t launch(const State& state, cudaStream_t stream) {
    cudaLaunchAttribute cluster;
    cluster.id = cudaLaunchAttributeClusterDimension;
    cluster.val.clusterDim.x = Config::kSplit;
    cluster.val.clusterDim.y = cluster.val.clusterDim.z = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(state.blocks);
    config.blockDim = dim3(Config::kThreads);
    config.dynamicSmemBytes = Config::kSharedBytes;
    config.stream = stream;
    config.attrs = &cluster;
    config.numAttrs = Config::kSplit > 1;
    return from_cuda(cudaLaunchKernelEx(&config, dgrad_strided<Config>, state.params));
  }

  static int32_t footprint(const State& state, ConvoyFootprint* out) {
    return fill_footprint(kernel(), state.blocks, Config::kThreads, Config::kSharedBytes, out);
  }

 private:
  static const void* kernel() { return reinterpret_cast<const void*>(&dgrad_strided<Config>); }

  static Phase phase_of(const ConvoyShape& s, const PhaseList::Entry& e) {
    Phase phase;
    phase.plane = e.h.extent * e.w.extent;
    phase.width = e.w.extent;
    phase.rows = s.n * phase.plane;
    phase.tiles = (phase.rows + Config::kRows - 1) / Config::kRows;
    phase.h = e.h;
    phase.w = e.w;
    return phase;
  }

  static int32_t encode(const ConvoyShape& s, const ConvoyOperands& o, const PhaseList& phases,
                        DgradParams* params) {
    const int64_t c = s.c, k = s.k, taps = int64_t(s.r) * s.s;
    if (int32_t code = encode_tiled<T, 3>(&params->filter, o.b, {c, taps, k}, {c, taps * c},
                                          {64, 1, kStepK})) {
      return code;
    }
    PixelView dy{k, s.q, s.p, s.n, k, s.q * k, int64_t(s.p) * s.q * k};
    for (int i = 0; i < phases.count; ++i) {
      const PhaseList::Entry& e = phases.entry[i];
      if (i < phases.with_taps) {
        if (int32_t code = encode_im2col<T>(&params->dy[i], o.a, dy, e.w.lower, e.h.lower,
                                            e.w.extent, e.h.extent, Config::kRows)) {
          return code;
        }
      }
      const T* first = static_cast<const T*>(o.d) + (int64_t(e.phase_h) * s.w + e.phase_w) * c;
      PixelView dx{c,
                   e.w.extent,
                   e.h.extent,
                   s.n,
                   s.stride_w * c,
                   s.stride_h * s.w * c,
                   int64_t(s.h) * s.w * c};
      if (int32_t code =
              encode_im2col<T>(&params->dx[i], first, dx, 0, 0, e.w.extent, e.h.extent, 64)) {
        return code;
      }
    }
    return kOk;
  }

  // Units where every block has several; otherwise single tiles, which even out better.
  static int default_order(const ConvoyShape& s, const DgradParams& params) {
    int64_t units = int64_t(params.order.rows) * params.order.columns;
    return units >= 2 * int64_t(s.sm_count) ? kUnits : kSorted;
  }
};

}  // namespace convoy::hopper
