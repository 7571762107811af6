// Host arithmetic that stem_fprop and stem_wgrad share: both read a filter row as one window of
// memory (see window_layout.cuh).
#pragma once

#include <algorithm>

#include "library.cuh"
#include "window_layout.cuh"

namespace convoy::sm90 {

template <class Config>
struct StemWindow {
  // `most` elements of a row of x fit into shared memory.
  static int32_t check(const ConvoyShape& s, ConvoyOp op, int64_t most) {
    if (int32_t code = check_conv(s, op)) return code;
    if (s.c != Config::kChannels) return kWrongChannels;
    if (s.r != Config::kFilterH || s.s != Config::kFilterW) return kUnsupported;
    // Rows that no output needs would never be waited for.
    if (s.stride_h > s.r) return kUnsupported;
    // Windows start at 4-byte boundaries; rows of x at 16-byte ones; a strip of 16 columns fits.
    if (s.stride_w * s.c % 2 != 0 || row_elements(s, 16) > most) return kUnsupported;
    if (int64_t(s.w) * s.c % 8 != 0 || s.k % 8 != 0) return kMisaligned;
    if (s.swizzle < 0 || s.sm_count < 1) return kBadShape;
    if (int64_t(s.n) * s.p * ((s.q + 15) / 16) >= int64_t(1) << 30) return kTooLarge;
    if (int64_t(s.w) * s.c >= int64_t(1) << 30 || s.k > 65535 * Config::kColumns) return kTooLarge;
    return kOk;
  }

  static int64_t row_elements(const ConvoyShape& s, int columns) {
    return window_row_elements(columns, s.stride_w, s.pad_left, Config::kFilterW,
                               Config::kChannels);
  }

  static int column_blocks(int k) { return (k + Config::kColumns - 1) / Config::kColumns; }

  // As many as are resident at once, no more than there are items.
  static int blocks(const ConvoyShape& s, const WindowGrid& grid) {
    int resident = s.sm_count * Config::kBlocksPerProcessor / column_blocks(s.k);
    return std::min(window_items(grid), std::max(1, resident));
  }

  // Where the first window lies in a row of x.
  template <class Params>
  static void set_origin(const ConvoyShape& s, Params* params) {
    const int shift = window_shift(s.pad_left, s.c);
    params->pad_top = s.pad_top;
    params->lead = window_lead(s.pad_left, s.c);
    params->left = s.pad_left * s.c + shift;
    params->first = shift - params->lead;
  }

  // Divides the rows of an image into chunks of so many.
  static void set_rows(const ConvoyShape& s, int chunk_rows, WindowGrid* grid) {
    grid->images = s.n;
    grid->rows = s.p;
    grid->chunk_rows = std::min(s.swizzle ? s.swizzle : chunk_rows, s.p);
    grid->chunks = (s.p + grid->chunk_rows - 1) / grid->chunk_rows;
  }
};

}  // namespace convoy::sm90
