// Tiles that a thread may compute: `vector` channels of rows x columns outputs. Tiles of one output
// take any stride, the others are compiled for strides 1 and 2 (of a strip, see axis.cuh).
// Plain C++ too: the tests compare them with convoy.backends.kernels.depthwise.space.
#pragma once

namespace convoy::depthwise {

struct Tile {
  int vector, rows, columns;

  constexpr bool single() const { return rows == 1 && columns == 1; }
};

// By filter size; 0 is any filter. A filter of any size goes through one row of outputs at a time.
template <int Filter>
struct Tiles;

template <>
struct Tiles<3> {
  static constexpr Tile list[] = {{4, 4, 4}, {4, 2, 7}, {4, 1, 4}, {2, 2, 7},
                                  {2, 1, 4}, {1, 1, 7}, {4, 1, 1}, {1, 1, 1}};
};

template <>
struct Tiles<5> {
  static constexpr Tile list[] = {{4, 2, 4}, {4, 1, 7}, {4, 1, 4}, {2, 2, 7},
                                  {2, 1, 4}, {1, 1, 7}, {4, 1, 1}, {1, 1, 1}};
};

template <>
struct Tiles<7> {
  static constexpr Tile list[] = {{4, 1, 7}, {4, 1, 4}, {2, 2, 7}, {2, 1, 4},
                                  {1, 1, 7}, {4, 1, 1}, {1, 1, 1}};
};

template <>
struct Tiles<0> {
  static constexpr Tile list[] = {{4, 1, 8}, {4, 1, 4}, {2, 1, 4}, {1, 1, 8}, {4, 1, 1}, {1, 1, 1}};
};

// Of wgrad: `columns` outputs of a row that a thread adds at a time.
template <int Filter>
struct WgradTiles {
  static constexpr Tile list[] = {{4, 1, 4}, {2, 1, 4}, {1, 1, 8}, {4, 1, 1}, {1, 1, 1}};
};

template <>
struct WgradTiles<7> {
  static constexpr Tile list[] = {{2, 1, 4}, {1, 1, 8}, {2, 1, 1}, {1, 1, 1}};
};

template <int Filter>
constexpr int tile_count() {
  return int(sizeof(Tiles<Filter>::list) / sizeof(Tile));
}

template <int Filter>
constexpr int wgrad_tile_count() {
  return int(sizeof(WgradTiles<Filter>::list) / sizeof(Tile));
}

// Taps that the kernel of any filter size handles at a time.
constexpr int kTapChunk = 4;

}  // namespace convoy::depthwise
