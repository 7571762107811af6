// Index arithmetic of the stem's fprop (see stem_fprop.cuh): a filter row as one window of memory.
//
// In NHWC the s * c inputs that one filter row of output (p, q) reads are contiguous:
//   x[n][stride_h * p - pad_top + r][(stride_w * q - pad_left) * c + e],  e = 0 .. s * c - 1.
// So the reduction runs over pairs of neighbouring elements, the 32-bit registers of wgmma's first
// operand: filter row r has some s * c / 2 of them, rounded up to quads of 4 pairs so that all lanes
// read the same row at once; all pairs are numbered through. Elements outside the window, and the
// quad that fills up the last 16 k, have weight zero. (So an infinity up to 8 elements beside a
// window makes its output a NaN.)
//
// TMA starts at 16-byte boundaries only, so a row in shared memory begins up to seven
// elements (window_shift) before its first window. Where that is an odd number, pairs begin one
// element (window_lead) before their window. Strips start at multiples of 16 output columns, thus
// both are the same for all of them.
//
// Plain C++ too: the tests compile this file for the host.
#pragma once

#include <cstdint>

#include "phases.cuh"

namespace convoy::sm90 {

constexpr int kCopyGranule = 8;  // elements: where a copy may start in a row

// Elements that a strip's row has before its first window.
CONVOY_HD int window_shift(int pad_left, int channels) {
  return (kCopyGranule - pad_left * channels % kCopyGranule) % kCopyGranule;
}

// Elements that the first pair has before its window: 0 or 1.
CONVOY_HD int window_lead(int pad_left, int channels) {
  return window_shift(pad_left, channels) % 2;
}

// Quads of a filter row; with odd channels enough for either lead.
CONVOY_HD constexpr int window_quads(int filter_w, int channels) {
  return (filter_w * channels + channels % 2 + 7) / 8;
}

// Steps of 16 k, two quads each.
CONVOY_HD constexpr int window_steps(int filter_h, int filter_w, int channels) {
  return (filter_h * window_quads(filter_w, channels) + 1) / 2;
}

// Where a quad or a pair lies: filter row and first element, counted from the row's first pair.
struct WindowPlace {
  int row, element;
};

// The quad behind the last one reads what the first one reads, for that has been loaded.
CONVOY_HD WindowPlace window_quad(int quad, int filter_h, int filter_w, int channels) {
  int quads = window_quads(filter_w, channels);
  if (quad >= filter_h * quads) return {0, 0};
  return {quad / quads, 8 * (quad % quads)};
}

CONVOY_HD WindowPlace window_pair(int index, int filter_h, int filter_w, int channels) {
  WindowPlace quad = window_quad(index / 4, filter_h, filter_w, channels);
  return {quad.row, quad.element + 2 * (index % 4)};
}

// Index of the pair that a lane holds for 16 k step `step`, k of the lower (0) or upper (1) eight.
CONVOY_HD int lane_pair(int step, int upper, int lane) { return 8 * step + 4 * upper + lane % 4; }

// Weight (r * s * c + ...) of element k of the reduction within one output channel; -1: zero.
CONVOY_HD int window_weight(int k, int filter_h, int filter_w, int channels, int lead) {
  if (k / 8 >= filter_h * window_quads(filter_w, channels)) return -1;
  WindowPlace quad = window_quad(k / 8, filter_h, filter_w, channels);
  int element = quad.element + k % 8 - lead;
  if (element < 0 || element >= filter_w * channels) return -1;
  return quad.row * filter_w * channels + element;
}

// A work item: output rows p0 .. p1 - 1 of a strip of columns of one image.
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

// Elements of a row that `columns` output columns read, from the row's first one in shared memory.
CONVOY_HD int64_t window_row_elements(int columns, int stride_w, int pad_left, int filter_w,
                                      int channels) {
  return window_shift(pad_left, channels) - window_lead(pad_left, channels) +
         (int64_t(columns) - 1) * stride_w * channels + 8 * window_quads(filter_w, channels);
}

// Input rows that an item reads.
CONVOY_HD int window_input_rows(const WindowItem& item, int stride_h, int filter_h) {
  return (item.p1 - item.p0 - 1) * stride_h + filter_h;
}

}  // namespace convoy::sm90
