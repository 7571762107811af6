// Index arithmetic of the stem's wgrad (see stem_wgrad.cuh): windows of x as columns of a matrix.
//
// dw^T (weights x output channels) is the sum over output pixels of window(pixel) * dy(pixel). Its
// rows are the elements of window_layout.cuh, 8 to a quad, 64 to a tile of a warpgroup; the
// reduction runs along 16 neighbouring pixels of an output row. wgmma wants of a thread, with
// lane = thread % 32, rows lane / 4 and lane / 4 + 8 of its warp's 16 and in both the pixels
// 2 * (lane % 4), + 1, + 8, + 9. Which row of the matrix is which element is free: here these two
// rows are neighbouring elements, 2 * (lane / 4) and the next one of the warp's two quads. So what a
// thread reads of one pixel is one 32-bit word, and two words give two registers of the operand,
// their lower halves one row, their upper halves the other.
//
// Plain C++ too: the tests compile this file for the host.
#pragma once

#include "window_layout.cuh"

namespace convoy::sm90 {

constexpr int kWidestStrip = 128;         // most output columns of a strip
constexpr int kWindowRowElements = 1024;  // most elements of a row of x in a strip

// Tiles of 64 elements, of 4 warps.
CONVOY_HD constexpr int wgrad_tiles(int filter_h, int filter_w, int channels) {
  return (filter_h * window_quads(filter_w, channels) + 7) / 8;
}

// First of the two elements, numbered through all quads, that are this thread's rows of its tile.
CONVOY_HD int wgrad_element(int tile, int warp, int lane) {
  return 64 * tile + 16 * warp + 2 * (lane / 4);
}

// Pixel of a step, of the thread's i-th word (0 .. 3).
CONVOY_HD constexpr int wgrad_pixel(int lane, int i) { return 2 * (lane % 4) + i % 2 + i / 2 * 8; }

// Where an element lies. Those behind the last quad are read in it; no weight is made of them.
CONVOY_HD WindowPlace wgrad_place(int element, int filter_h, int filter_w, int channels) {
  int last = filter_h * window_quads(filter_w, channels) - 1;
  int quad = element / 8 < last ? element / 8 : last;
  WindowPlace place = window_quad(quad, filter_h, filter_w, channels);
  return {place.row, place.element + element % 8};
}

// Strips of an output row of q columns, each as wide as the others but the last one.
CONVOY_HD WindowGrid wgrad_strips(int q, int stride_w, int pad_left, int filter_w, int channels) {
  int widest = kWidestStrip;
  while (widest > 16 &&
         window_row_elements(widest, stride_w, pad_left, filter_w, channels) > kWindowRowElements) {
    widest -= 16;
  }
  WindowGrid grid{};
  grid.strips = (q + widest - 1) / widest;
  grid.strip_columns = ((q + grid.strips - 1) / grid.strips + 15) / 16 * 16;
  return grid;
}

}  // namespace convoy::sm90
