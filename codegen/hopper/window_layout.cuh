// Index arithmetic of the stem's fprop (see stem_fprop.cuh): a filter row as one window of memory.
//
// In NHWC the s * c inputs that one filter row of output (p, q) reads are contiguous:
//   x[n][stride_h * p - pad_top + r][(stride_w * q - pad_left) * c + e],  e = 0 .. s * c - 1.
// So the reduction runs over pairs of neighbouring elements, the 32-bit registers of wgmma's first
// operand: filter row r has ceil(s * c / 2) of them, and all pairs are numbered through. The last
// element of an odd window, and the pairs that fill up the last 16 k, have weight zero.
//
// Plain C++ too: the tests compile this file for the host.
#pragma once

#include "phases.cuh"

namespace convoy::hopper {

CONVOY_HD constexpr int window_pairs(int filter_w, int channels) {
  return (filter_w * channels + 1) / 2;
}

// Steps of 16 k, 8 pairs each.
CONVOY_HD constexpr int window_steps(int filter_h, int filter_w, int channels) {
  return (filter_h * window_pairs(filter_w, channels) + 7) / 8;
}

// Where a pair lies: filter row and first element within the window. Pairs behind the last one
// read what the first one reads, for it is sure to be a number.
struct WindowPair {
  int row, element;
};

CONVOY_HD WindowPair window_pair(int index, int filter_h, int filter_w, int channels) {
  int pairs = window_pairs(filter_w, channels);
  if (index >= filter_h * pairs) return {0, 0};
  return {index / pairs, 2 * (index % pairs)};
}

// Index of the pair that a lane holds for 16 k step `step`, k of the lower (0) or upper (1) eight.
CONVOY_HD int lane_pair(int step, int upper, int lane) { return 8 * step + 4 * upper + lane % 4; }

// Weight (r * s * c + ...) of element k of the reduction within one output channel; -1: zero.
CONVOY_HD int window_weight(int k, int filter_h, int filter_w, int channels) {
  int pairs = window_pairs(filter_w, channels), index = k / 2;
  if (index >= filter_h * pairs) return -1;
  int element = 2 * (index % pairs) + k % 2;
  if (element >= filter_w * channels) return -1;
  return index / pairs * filter_w * channels + element;
}

// A piece of work: output rows p0 .. p1 - 1 of a strip of columns of one image.
struct WindowItem {
  int n, q0, p0, p1;
};

struct WindowGrid {
  int images, strips, chunks;  // chunks of rows
  int chunk_rows, rows;        // output rows of a chunk, of an image
  int strip_columns;           // a multiple of 16
};

CONVOY_HD int window_items(const WindowGrid& grid) {
  return grid.images * grid.strips * grid.chunks;
}

CONVOY_HD WindowItem window_item(const WindowGrid& grid, int index) {
  int per_image = grid.strips * grid.chunks;
  int n = index / per_image;
  int rest = index - n * per_image;
  int strip = rest / grid.chunks;
  int p0 = (rest - strip * grid.chunks) * grid.chunk_rows;
  int p1 = p0 + grid.chunk_rows < grid.rows ? p0 + grid.chunk_rows : grid.rows;
  return {n, strip * grid.strip_columns, p0, p1};
}

// Input rows that an item reads.
CONVOY_HD int window_input_rows(const WindowItem& item, int stride_h, int filter_h) {
  return (item.p1 - item.p0 - 1) * stride_h + filter_h;
}

}  // namespace convoy::hopper
