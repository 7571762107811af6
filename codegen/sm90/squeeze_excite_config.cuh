// What a launch of squeeze_excite.cuh is given, and what lies where in the shared memory of a block.
#pragma once

#include "phases.cuh"
#include "ptx.cuh"
#include "rounded_bounds.cuh"

namespace convoy::sm90 {

constexpr int kSqueezeThreads = 512, kSqueezeWarps = kSqueezeThreads / 32;
constexpr int kMostSqueezeCluster = 16;

// A small product: its weights, its bias (may be null) and its activation, a number of the lists of
// squeeze_excite.cuh.
struct SqueezeProduct {
  const void *weights, *bias;
  int activation;
  ClipBounds bounds;
};

struct SqueezeExciteParams {
  const void *x, *residual;
  void* y;
  SqueezeProduct squeeze, excite;
  int pixels, channels, vectors, squeezed;  // of an image; a vector is 8 channels
  // A cluster has an image; its blocks share channels, and the pixels of the same channels.
  int cluster, channel_parts, part_pixels, part_vectors;
  int part_squeezed;  // results of the first product of a block: all, where each block repeats it
  // Logarithms: of the cluster, and of neighbouring threads that have the vectors of a pixel, share a
  // result of the first product, and one of the second.
  int cluster_shift, vector_shift, squeeze_shift, excite_shift;
  int keeps_weights;  // of its results, in shared memory
  int keeps_pixels;
  int activation;
  ClipBounds bounds;
  int constant_weights;
};

CONVOY_HD int squeeze_up(int size, int unit) { return (size + unit - 1) / unit; }

// Float32 values, then 16-bit weights, then pixels; all begin at multiples of 16 bytes.
struct SqueezeExciteLayout {
  int sums, means, squeezed, gates, squeeze_bias, excite_bias, scratch;
  int weights, excite, pixels, bytes;

  CONVOY_HD explicit SqueezeExciteLayout(const SqueezeExciteParams& p) {
    const int own = p.part_vectors * 8;
    int at = 0;
    auto take = [&at](int size) {
      const int begin = at;
      at += squeeze_up(size, 16) * 16;
      return begin;
    };
    means = take(4 * p.channels);
    const int parts = p.cluster / p.channel_parts;
    sums = parts > 1 ? take(4 * parts * p.channels) : means;
    squeezed = take(4 * p.squeezed);
    gates = take(4 * own);
    squeeze_bias = take(4 * p.part_squeezed);
    excite_bias = take(4 * own);
    scratch = take(4 * 8 * kSqueezeThreads);
    weights = take(p.keeps_weights ? 2 * p.part_squeezed * p.channels : 0);
    excite = take(p.keeps_weights ? 2 * own * p.squeezed : 0);
    pixels = take(p.keeps_pixels ? 16 * p.part_pixels * p.part_vectors : 0);
    bytes = at;
  }
};

}  // namespace convoy::sm90
