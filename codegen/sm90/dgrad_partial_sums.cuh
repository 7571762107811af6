// dgrad_strided with kSplit > 1: partial sums through distributed shared memory.
#pragma once

#include "cluster.cuh"
#include "dgrad_config.cuh"
#include "warpgroup.cuh"

namespace convoy::sm90 {

// Adds the partial sums of a cluster's blocks: afterwards d holds the whole sum in the columns of
// this block (kOwnBlocks * rank of 64 on).
template <class Config>
struct PartialSums {
  const DgradShared<Config>& shared;
  const int group, rank;
  uint32_t round = 0;

  __device__ void add(float (&d)[Config::kBlocks][Config::kColumns / 2]) {
    const int thread = threadIdx.x % 128;
    cluster_wait(shared.taken(group), round ^ 1);
#pragma unroll
    for (int other = 0; other < Config::kSplit; ++other) {
      if (other == rank) continue;
      uint32_t to = cluster_address(shared.partial(group, sender(rank, other)), other);
      each(d, other, [&](float* v, int i) {
        cluster_store(to + (i * 128 + thread) * 16, v[0], v[1], v[2], v[3]);
      });
      cluster_arrive(cluster_address(shared.ready(group), other));
    }
    cluster_wait(shared.ready(group), round);
#pragma unroll
    for (int own = 0; own < Config::kSplit; ++own) {
      if (own != rank) continue;  // so that registers are indexed by constants
#pragma unroll
      for (int from = 0; from < Config::kSplit - 1; ++from) {
        uint32_t at = shared.partial(group, from);
        each(d, own, [&](float* v, int i) {
          float4 other = load_shared_float4(at + (i * 128 + thread) * 16);
          v[0] += other.x;
          v[1] += other.y;
          v[2] += other.z;
          v[3] += other.w;
        });
      }
    }
#pragma unroll
    for (int other = 0; other < Config::kSplit; ++other) {
      if (other != rank) cluster_arrive(cluster_address(shared.taken(group), other));
    }
    round ^= 1;
  }

 private:
  // Place of block `from` among the senders to block `to`.
  static __device__ int sender(int from, int to) { return from < to ? from : from - 1; }

  // f(four accumulators, their number) for all of the columns that block `owner` adds up.
  template <class Function>
  static __device__ void each(float (&d)[Config::kBlocks][Config::kColumns / 2], int owner,
                              Function f) {
#pragma unroll
    for (int b = 0; b < Config::kBlocks; ++b) {
#pragma unroll
      for (int i = 0; i < Config::kOwnBlocks * 8; ++i) {
        f(&d[b][(owner * Config::kOwnBlocks * 8 + i) * 4], b * Config::kOwnBlocks * 8 + i);
      }
    }
  }
};

}  // namespace convoy::sm90
