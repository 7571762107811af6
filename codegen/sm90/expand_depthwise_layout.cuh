// Tiles and index arithmetic of expand_depthwise.cuh. Plain C++ too: the tests compile this file for
// the host.
#pragma once

#include <cstdint>

#include "phases.cuh"

namespace convoy::sm90 {

// Outputs of a depthwise convolution (p x q) and what it reads (h x w). The filter is square.
struct ExpandShape {
  int images, h, w, p, q;
  int filter, stride, pad_top, pad_left;
};

// Blocks of channels, units of a block, and blocks that the device holds at a time.
struct ExpandBlocks {
  int columns, units, together;
};

// A tile: width x height outputs of each of several images. Its input, `pitch` pixels wide, comes in
// chunks of some rows, and so is the 1x1 convolution computed, 64 pixels at a time. A unit of the
// depthwise convolution is a strip of the tile's columns in one image.
struct ExpandTile {
  int images, width, height;
  int pitch, rows;           // of a chunk
  int across, down, groups;  // tiles side by side, on top of each other; 64 pixels of a chunk
  int strips;
};

constexpr int kExpandStrip = 4;  // columns of outputs

CONVOY_HD int expand_up(int size, int unit) { return (size + unit - 1) / unit; }

// First column of the input that a tile holds, whose first output is `first`.
CONVOY_HD int expand_left(const ExpandShape& s, const ExpandTile& t, int first) {
  const int wanted = first * s.stride - s.pad_left, last = s.w - t.pitch;
  return wanted < 0 ? 0 : wanted < last ? wanted : last;
}

// Rows of the input under outputs `first` .. `first + height - 1`: those of the first window count
// from `window`, those of the image are `begin` .. `end - 1`.
struct ExpandRows {
  int window, begin, end;
};

CONVOY_HD ExpandRows expand_rows(const ExpandShape& s, int first, int height) {
  const int window = first * s.stride - s.pad_top;
  const int end = window + (height - 1) * s.stride + s.filter;
  return {window, window < 0 ? 0 : window, end < s.h ? end : s.h};
}

// Instructions of a thread for a tile, roughly: for each 64 pixels of the 1x1 convolution; for each
// row of the input its pixels and what they add to outputs; for each row of outputs.
CONVOY_HD int64_t expand_tile_cost(const ExpandShape& s, const ExpandTile& t) {
  const int window = (kExpandStrip - 1) * s.stride + s.filter;
  const int high = (t.height - 1) * s.stride + s.filter, read = high < s.h ? high : s.h;
  return 300 + int64_t(expand_up(read, t.rows)) * (t.groups * 160 + 80) +
         int64_t(high) * (10 + 4 * window + 8 * s.filter * s.filter / s.stride) +
         int64_t(t.height) * 40;
}

// Completes a tile of so many columns and images whose chunks have at most `pixels` pixels; false where
// one does not fit, or is as wide as a narrower one.
inline bool complete_expand_tile(const ExpandShape& s, int pixels, int height, ExpandTile* tile) {
  constexpr int kMostBox = 256;
  tile->across = expand_up(s.q, tile->width);
  tile->strips = expand_up(tile->width, kExpandStrip);
  const int wide = (tile->width - 1) * s.stride + s.filter;
  tile->pitch = wide < s.w ? wide : s.w;
  int most = pixels / (tile->images * tile->pitch);
  if (most > kMostBox) most = kMostBox;
  if (most < 1 || tile->pitch > kMostBox || expand_up(s.q, tile->across) < tile->width)
    return false;
  tile->down = expand_up(s.p, height);
  tile->height = expand_up(s.p, tile->down);
  const int high = (tile->height - 1) * s.stride + s.filter, read = high < s.h ? high : s.h;
  tile->rows = expand_up(read, expand_up(read, most));
  tile->groups = expand_up(tile->images * tile->rows * tile->pitch, 64);
  return true;
}

// The tile that takes the least time; its width is 0 where there is none. Of the heights those of one
// to four tiles, and the least with which the device holds all tiles at once.
inline ExpandTile expand_tile(const ExpandShape& s, const ExpandBlocks& blocks, int pixels) {
  ExpandTile best = {};
  int64_t least = 0;
  for (int width = blocks.units * kExpandStrip; width > 0; --width) {
    const int strips = expand_up(width, kExpandStrip);
    for (int images = 1; images * strips <= blocks.units; images *= 2) {
      if (images > 1 && images > s.images) break;
      const int64_t side = int64_t(expand_up(s.images, images)) * expand_up(s.q, width);
      const int64_t at_once = blocks.together / (side * blocks.columns);
      const int counts[] = {1, 2, 3, 4, at_once < s.p ? int(at_once) : s.p};
      for (int count : counts) {
        if (count < 1) continue;
        ExpandTile tile = {images, width};
        if (!complete_expand_tile(s, pixels, expand_up(s.p, count), &tile)) continue;
        const int64_t tiles = side * tile.down * blocks.columns;
        const int64_t turns = (tiles + blocks.together - 1) / blocks.together;
        const int64_t cost = turns * expand_tile_cost(s, tile);
        if (!best.width || cost < least) best = tile, least = cost;
      }
    }
  }
  return best;
}

}  // namespace convoy::sm90
