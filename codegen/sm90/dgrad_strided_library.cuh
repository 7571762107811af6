// dgrad_strided behind the C ABI: checks a problem, lays out its phases, encodes the tensor maps.
#pragma once

#include <algorithm>
#include <utility>

#include "dgrad_strided.cuh"
#include "tensor_map.cuh"

namespace convoy::sm90 {

// The phases of a problem with at least one element, most taps first, those without taps last.
struct PhaseList {
  struct Entry {
    int phase_h, phase_w;
    PhaseAxis h, w;
    int stride_w;  // pixels of dx between columns of the phase
    int taps() const { return h.taps * w.taps; }
  };
  Entry entry[kMaxPhases];
  int count = 0;
  int with_taps = 0;

  explicit PhaseList(const ConvoyShape& s) {
    for (int a = 0; a < s.stride_h; ++a) {
      const PhaseAxis h = phase_axis(s.h, s.r, s.stride_h, s.pad_top, a);
      // Rows of dx that no tap reaches are one phase, so that whole rows are stored.
      const int stride_w = h.taps == 0 ? 1 : s.stride_w;
      for (int b = 0; b < stride_w; ++b) {
        Entry e{a, b, h, phase_axis(s.w, s.s, s.stride_w, s.pad_left, b), stride_w};
        if (stride_w != s.stride_w) e.w = PhaseAxis{s.w, 0, 0, 0};
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
    if (s.swizzle < 0 || s.swizzle > kTurned || s.sm_count < 1) return kBadShape;
    constexpr int64_t kLimit = int64_t(1) << 31;
    if (int64_t(s.n) * s.h * s.w + Config::kRows * s.stride_w >= kLimit) return kTooLarge;
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
    params.zero_spans = 0;
    int rows = 0;
    for (int i = 0; i < phases.count; ++i) {
      params.phase[i] = phase_of(s, phases.entry[i]);
      rows = std::max(rows, params.phase[i].tiles);
      if (i >= phases.with_taps) params.zero_spans += params.phase[i].span;
    }
    if (int32_t code = encode(s, o, phases, &params)) return code;
    if (phases.with_taps == 0) {
      // All of dx is zero: one phase of empty tiles carries the stores. There is room for it, as an
      // axis shorter than its stride leaves phases out.
      std::copy_backward(params.phase, params.phase + phases.count,
                         params.phase + phases.count + 1);
      std::copy_backward(params.dx, params.dx + phases.count, params.dx + phases.count + 1);
      params.phase[0] = Phase{};
    }
    const int order_phases = std::max(1, phases.with_taps);
    const int columns = (s.c + Config::kColumns - 1) / Config::kColumns;
    if (int64_t(rows) * columns * order_phases >= int64_t(1) << 31) return kTooLarge;
    const int kind = s.swizzle ? s.swizzle : default_order(s, rows, columns);
    params.order = TileOrder(kind, order_phases, rows, columns);
    const int clusters = std::max(1, s.sm_count / Config::kSplit);
    state->blocks = int(std::min<long long>(tile_blocks(params.order), clusters)) * Config::kSplit;
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
    phase.span = s.stride_w / e.stride_w;
    phase.tiles = (phase.rows + Config::kRows * phase.span - 1) / (Config::kRows * phase.span);
    phase.by_plane = Divider(phase.plane);
    phase.by_width = Divider(phase.width);
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
      const int64_t first_pixel = int64_t(e.phase_h) * s.w + e.phase_w;
      const T* first = static_cast<const T*>(o.d) + first_pixel * c;
      PixelView dx{c,
                   e.w.extent,
                   e.h.extent,
                   s.n,
                   e.stride_w * c,
                   s.stride_h * s.w * c,
                   int64_t(s.h) * s.w * c};
      const int32_t code = i < phases.with_taps ? encode_im2col<T>(&params->dx[i], first, dx, 0, 0,
                                                                   e.w.extent, e.h.extent, 64)
                                                : encode_zero_rows(&params->dx[i], first, dx);
      if (code) return code;
    }
    return kOk;
  }

  // For stores of zeros: all pixels of a view in runs of kZeroRows, all of a tile's columns of each.
  static int32_t encode_zero_rows(CUtensorMap* map, const void* base, const PixelView& view) {
    static const auto encode =
        driver_function<decltype(&cuTensorMapEncodeIm2col)>("cuTensorMapEncodeIm2col");
    if (!encode) return kDriver + int32_t(CUDA_ERROR_NOT_FOUND);
    const cuuint64_t sizes[4] = {cuuint64_t(view.c), cuuint64_t(view.w), cuuint64_t(view.h),
                                 cuuint64_t(view.n)};
    const cuuint64_t bytes[3] = {cuuint64_t(view.stride_w) * sizeof(T),
                                 cuuint64_t(view.stride_h) * sizeof(T),
                                 cuuint64_t(view.stride_n) * sizeof(T)};
    const int whole[2] = {0, 0};
    const cuuint32_t ones[4] = {1, 1, 1, 1};
    return from_driver(encode(map, map_type<T>(), 4, const_cast<void*>(base), sizes, bytes, whole,
                              whole, Config::kColumns, Config::kZeroRows, ones,
                              CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_NONE,
                              CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                              CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE));
  }

  // Units where every block has several; otherwise single tiles, which even out better.
  static int default_order(const ConvoyShape& s, int rows, int columns) {
    return int64_t(rows) * columns >= 2 * int64_t(s.sm_count) ? kUnits : kSorted;
  }
};

}  // namespace convoy::sm90
