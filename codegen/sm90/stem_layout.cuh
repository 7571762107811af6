// Index arithmetic of the stem's dgrad (see stem_dgrad.cuh): stride 2, filters up to 7x7, c <= 4.
//
// Both phases of an axis (phases.cuh with stride 2) read dy at shifts p - i from a range of four:
//   shift = lower .. lower + 3,  lower = floor((1 + pad) / 2) - 3,
// because r = phase + pad - 2 * shift is negative above that range and at least 7 below it, in both
// phases. Combinations within it whose r lies outside the filter have weight zero.
//
// Columns of the result: slot (0..3: row shift lower + 3 - slot), phases (a, b), channel c. They
// are permuted so that one thread's accumulators, columns 8j + 2 * (lane % 4) + {0, 1}, belong to
// one pair of phases, lane % 4 = 2a + b, and count up as 2j + {0, 1} = slot * channels + c.
//
// Rows of the result: 8 runs of 15 output columns j = 15 * run + x. A warp's 16 rows are x and
// x + 1 of all runs, so that a shift by one column turns one 8x8 matrix into the next one, and the
// odd length 15 puts the 8 rows of a matrix into different banks.
//
// Plain C++ too: the tests compile this file for the host.
#pragma once

#include "phases.cuh"

namespace convoy::sm90 {

constexpr int kShifts = 4;
constexpr int kRun = 15;                     // output columns of a run
constexpr int kRuns = 8;                     // rows of an 8x8 matrix
constexpr int kStripColumns = kRun * kRuns;  // output columns j of a block: 120 (240 of dx)
// Columns of dy in shared memory: those of the strip, three more for the shifts, and one that only
// the unused 16th column of a run reads.
constexpr int kStripPixels = kStripColumns + kShifts;
constexpr int kLargestStemFilter = 7;

// Smallest shift of an axis.
CONVOY_HD int lowest_shift(int pad) { return (1 + pad) / 2 - (kShifts - 1); }

// Filter position that connects a phase with a shift; may lie outside the filter.
CONVOY_HD int shifted_filter_position(int pad, int phase, int shift) {
  return phase + pad - 2 * shift;
}

// Meaning of a column of the result (0 .. 16 * channels - 1).
struct StemColumn {
  int slot, phase_h, phase_w, c;
};

CONVOY_HD StemColumn stem_column(int column, int channels) {
  int phases = (column >> 1) & 3;
  int index = 2 * (column >> 3) + (column & 1);
  return {index / channels, phases >> 1, phases & 1, index % channels};
}

// Accumulator of a thread that holds (slot, c) in its upper (0) or lower (1) row of 8.
CONVOY_HD int stem_accumulator(int slot, int c, int channels, int lower_row) {
  int index = slot * channels + c;
  return 4 * (index >> 1) + 2 * lower_row + (index & 1);
}

// Column x within its run of a warp's first 8 rows; the other 8 have x + 1.
CONVOY_HD int stem_run_column(int group, int warp) { return 8 * group + 2 * warp; }

// A work item: output rows row0 .. row1 - 1 (of dx: 2 * row, + 1) of one image and strip.
struct StemItem {
  int n, strip, row0, row1;
};

struct StemGrid {
  int images, strips, chunks;  // chunks of rows
  int chunk_rows, rows;        // output rows of a chunk, of an image: ceil(h / 2)
};

CONVOY_HD int stem_items(const StemGrid& grid) { return grid.images * grid.strips * grid.chunks; }

CONVOY_HD StemItem stem_item(const StemGrid& grid, int index) {
  int per_image = grid.strips * grid.chunks;
  int n = index / per_image;
  int rest = index - n * per_image;
  int strip = rest / grid.chunks;
  int row0 = (rest - strip * grid.chunks) * grid.chunk_rows;
  int row1 = row0 + grid.chunk_rows < grid.rows ? row0 + grid.chunk_rows : grid.rows;
  return {n, strip, row0, row1};
}

}  // namespace convoy::sm90
