// Which tile a thread block works on in its s-th step: a fixed order, the same for all warps.
//
// A tile is (phase, m, n): rows m * tile_rows .. of the phase's matrix, columns n * tile_columns ..
// All phases have the same grid of tiles; tiles behind the last row of a smaller phase are empty.
//   kUnits: a block takes (m, n) and does all phases of it one after the other. Their rows of dy are
//     the same up to the taps' offsets and stay in L2, phases with many taps (bound by arithmetic)
//     alternate with those with few (bound by memory), and every block has the same work.
//   kSorted: phase by phase, the one with most taps first, blocks in serpentine order: evens out
//     the work where there are few tiles for each block.
// Plain C++ too: the tests compile this file for the host.
#pragma once

#include "phases.cuh"

namespace convoy::hopper {

enum OrderKind { kUnits = 1, kSorted = 2 };

struct TileOrder {
  int kind;
  int phases;   // phases with tiles, most taps first
  int rows;     // tiles along m
  int columns;  // tiles along n
};

struct Tile {
  int phase, m, n;
};

// Blocks that have work.
CONVOY_HD long long tile_blocks(const TileOrder& order) {
  long long units = (long long)order.rows * order.columns;
  return order.kind == kUnits ? units : units * order.phases;
}

// False when the block has no s-th step.
CONVOY_HD bool tile_at(const TileOrder& order, int step, int block, int blocks, Tile* tile) {
  int units = order.rows * order.columns;
  int unit;
  if (order.kind == kUnits) {
    int round = step / order.phases;
    unit = block + round * blocks;
    if (unit >= units) return false;
    tile->phase = step - round * order.phases;
  } else {
    int index = step * blocks + (step & 1 ? blocks - 1 - block : block);
    if (index >= units * order.phases) return false;
    tile->phase = index / units;
    unit = index - tile->phase * units;
  }
  // Neighbouring blocks share rows of dy, the larger operand.
  tile->m = unit / order.columns;
  tile->n = unit - tile->m * order.columns;
  return true;
}

}  // namespace convoy::hopper
