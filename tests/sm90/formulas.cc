// The index arithmetic of codegen/sm90 compiled for the host, for the tests to call.
#include "divider.cuh"
#include "expand_depthwise_layout.cuh"
#include "halo_conv_layout.cuh"
#include "image_conv_layout.cuh"
#include "phases.cuh"
#include "small_conv_layout.cuh"
#include "stem_layout.cuh"
#include "stem_wgrad_layout.cuh"
#include "tile_order.cuh"
#include "window_layout.cuh"

using namespace convoy::sm90;

extern "C" {

void phase_axis_of(int size, int filter, int stride, int pad, int phase, int* out) {
  PhaseAxis axis = phase_axis(size, filter, stride, pad, phase);
  out[0] = axis.extent;
  out[1] = axis.taps;
  out[2] = axis.first;
  out[3] = axis.lower;
}

int quotient_of(int dividend, int divisor) { return Divider(divisor).divide(dividend); }

int filter_position_of(int first, int stride, int t) {
  return filter_position({0, 0, first, 0}, stride, t);
}

int tap_offset_of(int taps, int t) { return tap_offset({0, taps, 0, 0}, t); }

long long tile_blocks_of(int kind, int phases, int rows, int columns) {
  return tile_blocks({kind, phases, rows, columns});
}

int tile_of(int kind, int phases, int rows, int columns, int step, int block, int blocks,
            int* out) {
  Tile tile{};
  bool found = tile_at({kind, phases, rows, columns}, step, block, blocks, &tile);
  out[0] = tile.phase;
  out[1] = tile.m;
  out[2] = tile.n;
  return found;
}

int lowest_shift_of(int pad) { return lowest_shift(pad); }

int shifted_position_of(int pad, int phase, int shift) {
  return shifted_filter_position(pad, phase, shift);
}

void stem_column_of(int column, int channels, int* out) {
  StemColumn meaning = stem_column(column, channels);
  out[0] = meaning.slot;
  out[1] = meaning.phase_h;
  out[2] = meaning.phase_w;
  out[3] = meaning.c;
}

int stem_accumulator_of(int slot, int c, int channels, int lower_row) {
  return stem_accumulator(slot, c, channels, lower_row);
}

int stem_run_column_of(int group, int warp) { return stem_run_column(group, warp); }

int stem_items_of(int images, int strips, int chunks, int chunk_rows, int rows) {
  return stem_items({images, strips, chunks, chunk_rows, rows});
}

void stem_item_of(int images, int strips, int chunks, int chunk_rows, int rows, int index,
                  int* out) {
  StemItem item = stem_item({images, strips, chunks, chunk_rows, rows}, index);
  out[0] = item.n;
  out[1] = item.strip;
  out[2] = item.row0;
  out[3] = item.row1;
}

int window_steps_of(int filter_h, int filter_w, int channels) {
  return window_steps(filter_h, filter_w, channels);
}

void window_pair_of(int index, int filter_h, int filter_w, int channels, int* out) {
  WindowPlace pair = window_pair(index, filter_h, filter_w, channels);
  out[0] = pair.row;
  out[1] = pair.element;
}

int lane_pair_of(int step, int upper, int lane) { return lane_pair(step, upper, lane); }

int window_shift_of(int pad_left, int channels) { return window_shift(pad_left, channels); }

int window_lead_of(int pad_left, int channels) { return window_lead(pad_left, channels); }

int window_row_elements_of(int columns, int stride_w, int pad_left, int filter_w, int channels) {
  return int(window_row_elements(columns, stride_w, pad_left, filter_w, channels));
}

int window_weight_of(int k, int filter_h, int filter_w, int channels, int lead) {
  return window_weight(k, filter_h, filter_w, channels, lead);
}

int window_items_of(int images, int strips, int chunks, int chunk_rows, int rows,
                    int strip_columns) {
  return window_items({images, strips, chunks, chunk_rows, rows, strip_columns});
}

void window_item_of(int images, int strips, int chunks, int chunk_rows, int rows, int strip_columns,
                    int stride_h, int filter_h, int index, int* out) {
  WindowItem item = window_item({images, strips, chunks, chunk_rows, rows, strip_columns}, index);
  out[0] = item.n;
  out[1] = item.q0;
  out[2] = item.p0;
  out[3] = item.p1;
  out[4] = window_input_rows(item, stride_h, filter_h);
}

int wgrad_tiles_of(int filter_h, int filter_w, int channels) {
  return wgrad_tiles(filter_h, filter_w, channels);
}

int wgrad_element_of(int tile, int warp, int lane) { return wgrad_element(tile, warp, lane); }

int wgrad_pixel_of(int lane, int i) { return wgrad_pixel(lane, i); }

void wgrad_place_of(int element, int filter_h, int filter_w, int channels, int* out) {
  WindowPlace place = wgrad_place(element, filter_h, filter_w, channels);
  out[0] = place.row;
  out[1] = place.element;
}

void wgrad_strips_of(int q, int stride_w, int pad_left, int filter_w, int channels, int* out) {
  WindowGrid grid = wgrad_strips(q, stride_w, pad_left, filter_w, channels);
  out[0] = grid.strips;
  out[1] = grid.strip_columns;
}

// Sizes in the order of SmallConvShape.
void small_conv_pixel_of(const SmallConvShape* shape, int pixel, int* out) {
  SmallConvPixel found = small_conv_pixel(*shape, pixel);
  out[0] = found.n;
  out[1] = found.h;
  out[2] = found.w;
}

void small_conv_step_of(const SmallConvShape* shape, int step, int chunk, int* out) {
  SmallConvStep found = small_conv_step(*shape, step, chunk);
  out[0] = found.tap;
  out[1] = found.channel;
  out[2] = found.offset_h;
  out[3] = found.offset_w;
}

void small_conv_steps_of(const SmallConvShape* shape, int rank, int slices, int* out) {
  SmallConvSteps found(*shape, rank, slices);
  out[0] = found.begin;
  out[1] = found.end;
}

void small_conv_next_of(const SmallConvShape* shape, int step, int chunk, int* out) {
  SmallConvStep found = small_conv_next(*shape, small_conv_step(*shape, step, chunk), chunk);
  out[0] = found.tap;
  out[1] = found.channel;
  out[2] = found.offset_h;
  out[3] = found.offset_w;
}

void halo_tile_of(const SmallConvShape* shape, int images, int rows, int* out) {
  HaloTile found = halo_tile(*shape, images, rows);
  const int fields[] = {found.width, found.height, found.images, found.pitch,
                        found.rows,  found.across, found.down};
  for (int i = 0; i < 7; ++i) out[i] = fields[i];
}

void halo_origin_of(const HaloTile* tile, int number, int* out) {
  HaloOrigin found = halo_origin(*tile, number);
  out[0] = found.n;
  out[1] = found.h;
  out[2] = found.w;
}

int halo_pixel_of(const HaloTile* tile, const SmallConvShape* shape, int number, int row) {
  return halo_pixel(*tile, *shape, halo_origin(*tile, number), row);
}

// Where the input of a row of a tile lies under a tap.
int halo_position_of(const HaloTile* tile, const SmallConvShape* shape, int row, int tap) {
  return halo_start(*tile, row / 64) + row % 64 + halo_offset(*tile, *shape, tap);
}

// Both axes of an image_conv, with the tile that it chooses.
void image_conv_tile_of(ImageConvAxis* axes, int rows, int groups, long long bytes) {
  choose_image_conv_tile(&axes[0], &axes[1], rows, groups, 1024, bytes);
}

void image_conv_axis_of(ImageConvAxis* axis, int tile) { *axis = image_conv_axis(*axis, tile); }

// (first sum, first pixel, lowest, highest, whether it has all sums) of a tile on an axis.
void image_conv_place_of(const ImageConvAxis* axis, int number, int* out) {
  out[0] = image_conv_first_sum(*axis, number);
  out[1] = image_conv_first_pixel(*axis, out[0]);
  out[2] = image_conv_lowest(out[0]);
  out[3] = image_conv_highest(*axis, out[0]);
  out[4] = has_all_sums(*axis, out[0]);
}

int image_conv_tap_of(const ImageConvAxis* axes, int tap) {
  return image_conv_tap(axes[0], axes[1], tap);
}

int image_conv_tap_in_of(int i) { return image_conv_tap_in(i); }

int image_conv_row_of(const ImageConvAxis* axes, int m) {
  return image_conv_row(axes[0], axes[1], m);
}

void expand_tile_of(const ExpandShape* shape, const ExpandBlocks* blocks, int pixels,
                    ExpandTile* tile) {
  *tile = expand_tile(*shape, *blocks, pixels);
}

int expand_left_of(const ExpandShape* shape, const ExpandTile* tile, int first) {
  return expand_left(*shape, *tile, first);
}

void expand_rows_of(const ExpandShape* shape, int first, int height, int* out) {
  ExpandRows rows = expand_rows(*shape, first, height);
  out[0] = rows.window;
  out[1] = rows.begin;
  out[2] = rows.end;
}

int expand_tile_cost_of(const ExpandShape* shape, const ExpandTile* tile) {
  return expand_tile_cost(*shape, *tile);
}

}  // extern "C"
