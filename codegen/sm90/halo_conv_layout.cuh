// Index arithmetic of halo_conv.cuh. Plain C++ too: the tests compile this file for the host.
#pragma once

#include "small_conv_layout.cuh"

namespace convoy::sm90 {

// A tile: width x height outputs of each of several images, and its input with the halo of the
// filter, `rows` x `pitch` pixels an image. Output (h, w) is position h * pitch + w, and what the
// filter's tap (r, s) takes for it lies (r * dilation_h) * pitch + s * dilation_w positions further:
// under each tap the inputs of consecutive positions are consecutive. Positions between the width
// and the pitch are computed for nothing. Tiles of several images have one in each 64 positions.
struct HaloTile {
  int width, height, images;
  int pitch, rows;
  int across, down;  // tiles of an image
};

// First output of a tile.
struct HaloOrigin {
  int n, h, w;
};

CONVOY_HD HaloOrigin halo_origin(const HaloTile& t, int tile) {
  const int line = tile / t.across, group = line / t.down;
  return {group * t.images, (line - group * t.down) * t.height, (tile - line * t.across) * t.width};
}

// Position, in the tile's input, of the first output of 64 rows of a block.
CONVOY_HD int halo_start(const HaloTile& t, int group) {
  return t.images > 1 ? group * t.rows * t.pitch : 64 * group;
}

CONVOY_HD int halo_offset(const HaloTile& t, const SmallConvShape& s, int tap) {
  const int row = tap / s.filter_w;
  return row * s.dilation_h * t.pitch + (tap - row * s.filter_w) * s.dilation_w;
}

// The output pixel of a row of a tile; negative where it is none.
CONVOY_HD int halo_pixel(const HaloTile& t, const SmallConvShape& s, const HaloOrigin& origin,
                         int row) {
  const int image = t.images > 1 ? row / 64 : 0, position = row - 64 * image;
  const int h = position / t.pitch, w = position - h * t.pitch;
  const int pixel = ((origin.n + image) * s.p + origin.h + h) * s.q + origin.w + w;
  const bool inside = h < t.height && w < t.width && origin.h + h < s.p && origin.w + w < s.q;
  return inside && pixel < s.pixels ? pixel : -1;
}

// A step of the reduction: a tap of a chunk, all taps of a chunk in turn.
CONVOY_HD SmallConvStep halo_step(const SmallConvShape& s, int step, int chunk) {
  const int at = step / s.taps;
  return {step - at * s.taps, at * chunk, 0, 0};
}

// The tile of `rows` positions that covers an image with the fewest tiles; of those, with the least
// input. Its width is 0 where no tile has room.
inline HaloTile halo_tile(const SmallConvShape& s, int images, int rows) {
  const int reach_h = s.dilation_h * (s.taps / s.filter_w - 1);
  const int reach_w = s.dilation_w * (s.filter_w - 1);
  const int groups = rows / 64;
  HaloTile best = {};
  int64_t least = 0;
  auto offer = [&](int width, int height, int together) {
    const HaloTile tile = {width,
                           height,
                           together,
                           width + reach_w,
                           height + reach_h,
                           (s.q + width - 1) / width,
                           (s.p + height - 1) / height};
    if (tile.pitch > 256 || tile.rows > 256) return;
    const int64_t count = int64_t(tile.across) * tile.down * ((images + together - 1) / together);
    const int64_t cost = (count << 24) + int64_t(tile.pitch) * tile.rows * together;
    if (!best.width || cost < least) best = tile, least = cost;
  };
  for (int across = 1; across <= s.q; ++across) {
    const int width = (s.q + across - 1) / across, pitch = width + reach_w;
    if (width > rows) continue;
    const int most = (rows - width) / pitch + 1, down = (s.p + most - 1) / most;
    offer(width, (s.p + down - 1) / down, 1);
    if (across == 1 && groups > 1 && (s.p - 1) * pitch + width <= 64) offer(width, s.p, groups);
  }
  return best;
}

}  // namespace convoy::sm90
