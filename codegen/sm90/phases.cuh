// Strided dgrad as unit-stride problems, one for each position of dx modulo the stride.
//
// By definition, along one axis (size, filter, stride, pad: of the forward convolution; y has
// `outputs` positions),
//   dx[h] = sum over r, p with h + pad - r = stride * p of dy[p] * w[r].
// Write h = stride * i + phase with 0 <= phase < stride. Then r = phase + pad (mod stride), that is
//   r = first + stride * t,  first = (phase + pad) mod stride,  t = 0 .. taps - 1,
// and p = i + (phase + pad - r) / stride = i + top - t with top = floor((phase + pad) / stride).
// With lower = top - (taps - 1), tap t reads dy at i + lower + (taps - 1 - t): a unit-stride
// correlation over the box of positions lower .. lower + extent - 1, with offsets of at least 0 as
// TMA's im2col mode wants them. Positions outside 0 .. outputs - 1 read as zero.
// Phases of both axes combine freely: stride_h * stride_w problems, each a GEMM of
// (n * extent_h * extent_w) x (taps_h * taps_w * k) by (taps_h * taps_w * k) x c.
//
// Plain C++ too: the tests compile this file for the host.
#pragma once

#ifdef __CUDACC__
#define CONVOY_HD __host__ __device__ __forceinline__
#else
#define CONVOY_HD inline
#endif

namespace convoy::sm90 {

// One axis of one phase.
struct PhaseAxis {
  int extent;  // positions of dx in this phase
  int taps;    // filter positions that reach them; 0: the phase is zero
  int first;   // smallest such filter position
  int lower;   // dy position that the last tap reads for i = 0
};

CONVOY_HD PhaseAxis phase_axis(int size, int filter, int stride, int pad, int phase) {
  PhaseAxis axis;
  axis.extent = phase < size ? (size - phase + stride - 1) / stride : 0;
  axis.first = (phase + pad) % stride;
  axis.taps = axis.first < filter ? (filter - axis.first + stride - 1) / stride : 0;
  axis.lower = (phase + pad) / stride - (axis.taps - 1);
  return axis;
}

// Filter position of tap t.
CONVOY_HD int filter_position(const PhaseAxis& axis, int stride, int t) {
  return axis.first + stride * t;
}

// Offset of tap t from the box that starts at `lower`.
CONVOY_HD int tap_offset(const PhaseAxis& axis, int t) { return axis.taps - 1 - t; }

}  // namespace convoy::sm90
