// One axis of a depthwise problem as a strip of outputs sees it, for fprop and every phase of dgrad.
//
// Output j (0 .. count - 1) lies at position first + step * j of the output tensor, and
//   out[j] = sum over t = 0 .. taps - 1 of in[a * j + d * t + b] * w[w0 + w1 * t],
// where positions outside 0 .. in - 1 read as zero:
//   fprop            a = stride, d = dilation, b = -pad
//   dgrad, stride 1  in = dy, the filter reversed: d = dilation, b = pad - dilation * (filter - 1)
//   dgrad, stride s  a phase for each position of dx modulo s (derived in sm90/phases.cuh)
//
// With g = gcd(a, d) outputs that are `spread` = d / g apart read inputs a * d / g apart, which is
// `stride` = a / g times the distance of two taps. So a strip of outputs j0 + spread * i shares its
// inputs: tap t of output i reads position a * j0 + b + d * (stride * i + t). That is how dilated
// convolutions reuse inputs as plain ones do.
// Plain C++ too: the tests compile this file for the host.
#pragma once

#include "../sm90/divider.cuh"

namespace convoy::depthwise {

using sm90::Divider;

struct Axis {
  int first, step, count;  // positions of the outputs
  int a, d, b, taps;       // what they read
  int w0, w1;              // filter position of tap t: w0 + w1 * t
  int in;                  // extent of the input
  int stride, spread;      // of a strip, see above
  int strips;              // strips of `tile` outputs each, the last ones cut
  Divider by_spread, by_strips;

  // First output of a strip.
  CONVOY_HD int start(int strip, int tile) const {
    int group = by_spread.divide(strip);
    return group * spread * tile + (strip - group * spread);
  }
  CONVOY_HD int position(int j) const { return first + step * j; }
};

CONVOY_HD int greatest_divisor(int a, int b) {
  while (b) {
    int rest = a % b;
    a = b;
    b = rest;
  }
  return a;
}

CONVOY_HD Axis finish(Axis axis, int tile) {
  int divisor = greatest_divisor(axis.a, axis.d);
  axis.stride = axis.a / divisor;
  axis.spread = axis.d / divisor;
  axis.strips = (axis.count + axis.spread * tile - 1) / (axis.spread * tile) * axis.spread;
  axis.by_spread = Divider(axis.spread);
  axis.by_strips = Divider(axis.strips);
  return axis;
}

CONVOY_HD Axis fprop_axis(int in, int out, int filter, int stride, int dilation, int pad,
                          int tile) {
  Axis axis{0, 1, out, stride, dilation, -pad, filter, 0, 1, in};
  return finish(axis, tile);
}

// `in` is the extent of dy, `out` that of dx; stride and dilation of which one is 1.
CONVOY_HD Axis dgrad_axis(int in, int out, int filter, int stride, int dilation, int pad, int phase,
                          int tile) {
  int count = (out - phase + stride - 1) / stride;
  if (stride == 1) {
    int reach = dilation * (filter - 1);
    Axis axis{0, 1, out, 1, dilation, pad - reach, filter, filter - 1, -1, in};
    return finish(axis, tile);
  }
  int lowest = (phase + pad) % stride;
  int taps = filter > lowest ? (filter - 1 - lowest) / stride + 1 : 0;
  int lower = (phase + pad) / stride - (taps - 1);
  Axis axis{phase, stride, count < 0 ? 0 : count,        1,       1,
            lower, taps,   lowest + stride * (taps - 1), -stride, in};
  return finish(axis, tile);
}

}  // namespace convoy::depthwise
