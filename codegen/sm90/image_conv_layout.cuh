// Sizes and index arithmetic of image_conv.cuh. Plain C++ too: the tests compile this file for the host.
#pragma once

#include <cstdint>

#include "divider.cuh"

namespace convoy::sm90 {

constexpr int kImagePixelBytes = 8;    // four channels in 16 bits
constexpr int kImageGroupTaps = 16;    // taps of the filter in four steps of 16 k
constexpr int kImageGroupBytes = 128;  // of the table of where their pixels are
constexpr int kImageLoaders = 128;     // threads

// What a tile computes along one axis: outputs of the whole launch, those of the convolution that
// they are maxima of, and input pixels that these read.
struct ImageConvAxis {
  int size, outputs, inputs;  // of the tensors: results, results of the convolution, pixels
  int window, step, before;   // of the maximum
  int stride, dilation, pad;  // of the convolution
  int taps;
  int tile, sums, pixels, tiles;  // of a tile: results, sums, pixels; and the number of tiles
};

// The axis with tiles of so many results.
CONVOY_HD ImageConvAxis image_conv_axis(ImageConvAxis a, int tile) {
  a.tile = tile;
  a.sums = (tile - 1) * a.step + a.window;
  a.pixels = (a.sums - 1) * a.stride + (a.taps - 1) * a.dilation + 1;
  a.tiles = (a.size + tile - 1) / tile;
  return a;
}

// The first sum that tile `number` computes, before the first one of the tensor for windows that
// begin in the padding, and its first input pixel.
CONVOY_HD int image_conv_first_sum(const ImageConvAxis& a, int number) {
  return number * a.tile * a.step - a.before;
}
CONVOY_HD int image_conv_first_pixel(const ImageConvAxis& a, int first_sum) {
  return first_sum * a.stride - a.pad;
}

// The first and the last place in a tile with a sum that the tensor has. Maxima over windows that
// reach beyond these take the nearest one once more.
CONVOY_HD int image_conv_lowest(int first_sum) { return first_sum < 0 ? -first_sum : 0; }
CONVOY_HD int image_conv_highest(const ImageConvAxis& a, int first_sum) {
  return a.outputs - 1 - first_sum;
}

// Whether the tensor has all sums of a tile.
CONVOY_HD bool has_all_sums(const ImageConvAxis& a, int first_sum) {
  return image_conv_lowest(first_sum) == 0 && image_conv_highest(a, first_sum) >= a.sums - 1;
}

// Bytes from the first pixel that a sum reads to the one under a tap.
CONVOY_HD int image_conv_tap(const ImageConvAxis& h, const ImageConvAxis& w, int tap) {
  int row = tap / w.taps, column = tap % w.taps;
  return kImagePixelBytes * (row * h.dilation * w.pixels + column * w.dilation);
}

// The tap in place `i` of the table: of a group, a thread's taps of four steps are neighbours.
CONVOY_HD int image_conv_tap_in(int i) {
  return i / kImageGroupTaps * kImageGroupTaps + i % 4 * 4 + i / 4 % 4;
}

// Bytes from a tile's first pixel to the first one that the sum in row `m` of its matrix reads.
CONVOY_HD int image_conv_row(const ImageConvAxis& h, const ImageConvAxis& w, int m) {
  int last = h.sums * w.sums - 1;
  m = m < last ? m : last;
  return kImagePixelBytes * (m / w.sums * h.stride * w.pixels + m % w.sums * w.stride);
}

// About the clocks that a tile takes: what 64 sums take for themselves and for a group of taps, or a
// latency each time that the loaders wait for `at_once` pixels.
inline int64_t image_conv_clocks(const ImageConvAxis& h, const ImageConvAxis& w, int groups,
                                 int at_once) {
  const int64_t blocks = (h.sums * w.sums + 63) / 64;
  const int64_t loads = (h.pixels * w.pixels + at_once - 1) / at_once;
  const int64_t sums = blocks * (100 + 128 * groups), pixels = 400 * loads;
  return 300 + (sums > pixels ? sums : pixels);
}

// The tile of at most `rows` sums with which an image takes the least time. A tile of 0 results where
// not even one fits into `bytes`.
inline void choose_image_conv_tile(ImageConvAxis* h, ImageConvAxis* w, int rows, int groups,
                                   int at_once, int64_t bytes) {
  int64_t best = 0;
  const ImageConvAxis before_h = *h, before_w = *w;
  h->tile = w->tile = 0;
  for (int width = 1; width <= before_w.size; ++width) {
    const ImageConvAxis across = image_conv_axis(before_w, width);
    const int most = rows / across.sums;
    if (most < before_h.window) break;
    int height = (most - before_h.window) / before_h.step + 1;
    for (height = height < before_h.size ? height : before_h.size; height > 0; --height) {
      const ImageConvAxis tallest = image_conv_axis(before_h, height);
      if (int64_t(tallest.pixels) * across.pixels * kImagePixelBytes > bytes) continue;
      // As low as covers the image with as many.
      const ImageConvAxis down =
          image_conv_axis(before_h, (before_h.size + tallest.tiles - 1) / tallest.tiles);
      const int64_t clocks =
          int64_t(down.tiles) * across.tiles * image_conv_clocks(down, across, groups, at_once);
      if (!best || clocks < best) best = clocks, *h = down, *w = across;
      break;
    }
  }
}

}  // namespace convoy::sm90
