// attention.cuh on the host: beside a copy of it lies the mma.cuh of this folder. CONFIG gives the
// arguments of Config.
#include "mma.cuh"  // what CUDA declares, before the project's headers need it

#include "attention.cuh"

namespace convoy::attention {

alignas(128) unsigned char shared[1 << 18];

}  // namespace convoy::attention

using Config = convoy::attention::Config<CONFIG>;

// sizes: outer, batch, heads, queries, keys, dim, value_dim, causal, zeros, wide_bias.
// strides: outer, batch, head, row of q, k, v, o and the bias.
extern "C" void run(const int* sizes, const int64_t* strides, float scale, const void* q,
                    const void* k, const void* v, const void* bias, void* o) {
  using convoy::attention::Strides;
  auto of = [&](int i) {
    const int64_t* s = strides + 4 * i;
    return Strides{s[0], s[1], s[2], int(s[3])};
  };
  convoy::attention::Params p{};
  p.q = q, p.k = k, p.v = v, p.bias = bias, p.o = o;
  p.q_strides = of(0), p.k_strides = of(1), p.v_strides = of(2);
  p.o_strides = of(3), p.bias_strides = of(4);
  p.batch = sizes[1], p.heads = sizes[2], p.queries = sizes[3], p.keys = sizes[4];
  p.dim = sizes[5], p.value_dim = sizes[6];
  p.causal = sizes[7] != 0, p.zeros = sizes[8] != 0, p.wide_bias = sizes[9] != 0;
  p.row_tiles = (p.queries + Config::kRows - 1) / Config::kRows;
  p.scale = scale * 1.4426950408889634f;
  p.late_scale = bias == nullptr && scale > 0;
  int blocks = p.row_tiles * sizes[0] * p.batch * p.heads;
  emulator::launch(blocks, Config::kThreads, convoy::attention::shared,
                   sizeof(convoy::attention::shared),
                   [&] { convoy::attention::attention<Config>(p); });
}
