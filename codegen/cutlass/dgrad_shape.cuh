// dgrad with stride 1 seen as a forward problem: dx is a convolution of dy, with the filter turned
// around and its channels exchanged. The kernel wrapper of the forward families then serves it.
//
//   dx[h] = sum over r of dy[h + pad - dilation * r] * w[r]
// is, with r' = R - 1 - r, the correlation of dy with the turned filter under the padding
// dilation * (R - 1) - pad at the upper border, and likewise at the other three.
#pragma once

#include "abi.cuh"

namespace convoy {

// The forward problem from dy (n, p, q, k) to dx (n, h, w, c). Its own inverse, but for the op.
inline ConvoyShape turned_shape(ConvoyShape const& s, ConvoyOp op) {
  ConvoyShape t = s;
  int reach_h = s.dilation_h * (s.r - 1), reach_w = s.dilation_w * (s.s - 1);
  t.op = op;
  t.h = s.p;
  t.w = s.q;
  t.c = s.k;
  t.p = s.h;
  t.q = s.w;
  t.k = s.c;
  t.pad_top = reach_h - s.pad_top;
  t.pad_bottom = reach_h - s.pad_bottom;
  t.pad_left = reach_w - s.pad_left;
  t.pad_right = reach_w - s.pad_right;
  return t;
}

// Kernel is a class of the C ABI (abi.cuh) for the turned problem.
template <class Kernel>
struct UnitDgrad {
  using State = typename Kernel::State;

  static int32_t check(ConvoyShape const& s) {
    if (int32_t code = check_sizes(s)) return code;
    if (s.op != CONVOY_DGRAD) return kWrongOp;
    if (s.stride_h != 1 || s.stride_w != 1) return kUnsupported;
    ConvoyShape t = turned(s);
    // Pixels of dy beyond the reach of any dx: the forward problem would have to crop.
    if (t.pad_top < 0 || t.pad_bottom < 0 || t.pad_left < 0 || t.pad_right < 0) return kUnsupported;
    return Kernel::check(t);
  }

  static int64_t workspace(ConvoyShape const& s) { return Kernel::workspace(turned(s)); }

  static int32_t prepare(ConvoyShape const& s, ConvoyOperands const& o, State* state) {
    return Kernel::prepare(turned(s), o, state);
  }

  static int32_t launch(State const& state, cudaStream_t stream) {
    return Kernel::launch(state, stream);
  }

  static int32_t footprint(State const& state, ConvoyFootprint* out) {
    return Kernel::footprint(state, out);
  }

 private:
  static ConvoyShape turned(ConvoyShape const& s) { return turned_shape(s, CONVOY_FPROP); }
};

}  // namespace convoy
