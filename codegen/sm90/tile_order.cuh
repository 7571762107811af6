// Which tile a thread block works on in its s-th step: a fixed order, the same for all warps.
//
// A tile is (phase, m, n): rows m * tile_rows .. of the phase's matrix, columns n * tile_columns ..
// All phases have the same grid of tiles; tiles behind the last row of a smaller phase are empty.
//   kUnits: a block takes (m, n) and does all phases of it one after the other. Their rows of dy are
//     the same up to the taps' offsets and stay in L2, phases with many taps (bound by arithmetic)
//     alternate with those with few (bound by memory), and every block has the same work.
//   kTurned: the same, but every second block begins with a phase from the middle of the list, so that
//     not all blocks write at the same time.
//   kSorted: phase by phase, the one with most taps first, blocks in serpentine order: evens out
//     the work where there are few tiles for each block.
// Plain C++ too: the tests compile this file for the host.
#pragma once

#include "divider.cuh"

namespace convoy::sm90 {

enum OrderKind { kUnits = 1, kSorted = 2, kTurned = 3 };

struct TileOrder {
  int kind;
  int phases;   // phases with tiles, most taps first
  int rows;     // tiles along m
  int columns;  // tiles along n
  Divider by_phases, by_columns, by_units;

  TileOrder() = default;
  CONVOY_HD TileOrder(int kind, int phases, int rows, int columns)
      : kind(kind),
        phases(phases),
        rows(rows),
        columns(columns),
        by_phases(phases),
        by_columns(columns),
        by_units(rows * columns) {}
};

struct Tile {
  int phase, m, n;
};

// Blocks that have work.
CONVOY_HD long long tile_blocks(const TileOrder& order) {
  long long units = (long long)order.rows * order.columns;
  return order.kind == kSorted ? units * order.phases : units;
}

// False when the block has no s-th step.
CONVOY_HD bool tile_at(const TileOrder& order, int step, int block, int blocks, Tile* tile) {
  int units = order.rows * order.columns;
  int unit;
  if (order.kind == kSorted) {
    int index = step * blocks + (step & 1 ? blocks - 1 - block : block);
    if (index >= units * order.phases) return false;
    tile->phase = order.by_units.divide(index);
    unit = index - tile->phase * units;
  } else {
    int round = order.by_phases.divide(step);
    unit = block + round * blocks;
    if (unit >= units) return false;
    tile->phase = step - round * order.phases;
    if (order.kind == kTurned) {
      tile->phase += block & 1 ? order.phases / 2 : 0;
      if (tile->phase >= order.phases) tile->phase -= order.phases;
    }
  }
  // Neighbouring blocks share rows of dy, the larger operand.
  tile->m = order.by_columns.divide(unit);
  tile->n = unit - tile->m * order.columns;
  return true;
}

}  // namespace convoy::sm90
