// Tiles of the grouped convolution: 16 x rows pixels and 8 x columns outputs of a warp.
// Plain C++ too: the tests compare them with convoy.backends.kernels.depthwise.grouped.
#pragma once

namespace convoy::depthwise {

struct GroupedTile {
  int rows, columns;
};

constexpr GroupedTile kGroupedTiles[] = {{1, 1}, {2, 1}, {4, 1}, {1, 2}, {2, 2}, {4, 2},
                                         {1, 3}, {2, 3}, {4, 3}, {1, 4}, {2, 4}, {4, 4}};
constexpr int kGroupedTileCount = int(sizeof(kGroupedTiles) / sizeof(GroupedTile));

}  // namespace convoy::depthwise
