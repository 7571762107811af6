// Tiles of the staged grouped convolution, and how a problem is divided among blocks.
// Plain C++ too: the tests compare them with convoy.backends.kernels.depthwise.staged.
#pragma once

#include <algorithm>

#include "convoy/kernel_abi.h"

namespace convoy::depthwise {

constexpr int kStagedWarps = 4;
constexpr int kStagedThreads = 32 * kStagedWarps;
// Elements of the reduction in a step.
constexpr int kStagedStep = 16;

// Of a warp: 16 x rows pixels and 8 x columns outputs. A block has 64 x rows pixels.
struct StagedTile {
  int rows, columns;

  constexpr int pixels() const { return kStagedWarps * 16 * rows; }
  constexpr int outputs() const { return 8 * columns; }
};

constexpr StagedTile kStagedTiles[] = {{1, 1}, {2, 1}, {4, 1}, {1, 2}, {2, 2}, {4, 2},
                                       {1, 3}, {2, 3}, {4, 3}, {1, 4}, {2, 4}, {4, 4},
                                       {1, 6}, {2, 6}, {1, 8}, {2, 8}};
constexpr int kStagedTileCount = int(sizeof(kStagedTiles) / sizeof(StagedTile));

// Elements of consecutive rows in shared memory whose first `stride` multiples lie in different
// banks for 8 bytes of each of a half warp's lanes: 32 bytes more than a multiple of 64 for odd
// strides, 16 more than one of 32 for those that are odd times two.
constexpr int staged_pitch(int elements, int stride) {
  const int unit = stride % 2 ? 32 : 16;
  return (elements + unit / 2 - 1) / unit * unit + unit / 2;
}

// Of a block: groups, and images, rows and columns of outputs; of its inputs rows and columns.
struct StagedBlock {
  int groups, images, rows, columns, input_rows, input_columns;
  int input_pitch, weight_pitch, steps;

  int64_t input_elements() const {
    return int64_t(images) * input_rows * input_columns * input_pitch;
  }

  int64_t shared_bytes(StagedTile tile, int stages) const {
    const int64_t weights = int64_t(groups) * tile.outputs() * weight_pitch;
    return 2 * (weights + stages * input_elements()) + 4 * 4 * steps;
  }
};

// A length in as few parts of at most `most` as possible, that are most even: the longest part.
constexpr int evenly(int length, int most) {
  const int parts = (length + most - 1) / most;
  return (length + parts - 1) / parts;
}

inline StagedBlock staged_block(const ConvoyShape& s, StagedTile tile) {
  const int channels = s.c / s.groups, outputs = s.k / s.groups, pixels = tile.pixels();
  StagedBlock b;
  // 64 bytes of a pixel where a group has fewer.
  b.groups = outputs > tile.outputs() ? 1 : std::min(s.groups, (32 + channels - 1) / channels);
  b.columns = evenly(s.q, 32);
  b.rows = evenly(s.p, std::max(1, pixels / b.columns));
  b.images = std::min(s.n, std::max(1, pixels / (b.rows * b.columns)));
  b.input_rows = (b.rows - 1) * s.stride_h + (s.r - 1) * s.dilation_h + 1;
  b.input_columns = (b.columns - 1) * s.stride_w + (s.s - 1) * s.dilation_w + 1;
  b.input_pitch = staged_pitch(b.groups * channels, s.stride_w);
  b.steps = (s.r * s.s * channels + kStagedStep - 1) / kStagedStep;
  b.weight_pitch = staged_pitch(b.steps * kStagedStep, 1);
  return b;
}

}  // namespace convoy::depthwise
