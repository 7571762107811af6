// Index arithmetic of small_conv.cuh. Plain C++ too: the tests compile this file for the host.
#pragma once

#include "phases.cuh"

namespace convoy::sm90 {

// Sizes of the problem; pixels is n * p * q, a chunk 128 bytes of channels.
struct SmallConvShape {
  int pixels, p, q, k;
  int stride_h, stride_w, pad_top, pad_left, dilation_h, dilation_w;
  int filter_w, taps, chunks;
};

// Where the window of an output pixel begins in x.
struct SmallConvPixel {
  int n, h, w;
};

CONVOY_HD SmallConvPixel small_conv_pixel(const SmallConvShape& s, int pixel) {
  const int row = pixel / s.q, image = row / s.p;
  return {image, (row - image * s.p) * s.stride_h - s.pad_top,
          (pixel - row * s.q) * s.stride_w - s.pad_left};
}

// A step of the reduction: one tap of the channels of a chunk.
struct SmallConvStep {
  int tap, channel, offset_h, offset_w;
};

CONVOY_HD SmallConvStep small_conv_step(const SmallConvShape& s, int step, int chunk) {
  const int tap = step / s.chunks, row = tap / s.filter_w;
  return {tap, (step - tap * s.chunks) * chunk, row * s.dilation_h,
          (tap - row * s.filter_w) * s.dilation_w};
}

// The step behind another one.
CONVOY_HD SmallConvStep small_conv_next(const SmallConvShape& s, SmallConvStep step, int chunk) {
  step.channel += chunk;
  if (step.channel < s.chunks * chunk) return step;
  step.channel = 0;
  ++step.tap;
  step.offset_w += s.dilation_w;
  if (step.offset_w < s.filter_w * s.dilation_w) return step;
  step.offset_w = 0;
  step.offset_h += s.dilation_h;
  return step;
}

// The steps of one of `slices` blocks: at least one each, as evenly as they divide.
struct SmallConvSteps {
  int begin, end;
  CONVOY_HD SmallConvSteps(const SmallConvShape& s, int rank, int slices)
      : begin(s.taps * s.chunks * rank / slices), end(s.taps * s.chunks * (rank + 1) / slices) {}
  CONVOY_HD int count() const { return end - begin; }
};

}  // namespace convoy::sm90
