// One offloadable problem, read from the JSON that convoy.workload.Workload.to_json writes.
#pragma once

#include <dlpack/dlpack.h>

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "json_fields.h"

namespace convoy {

enum class Op {
  kFprop,
  kDgrad,
  kWgrad,
  kMatmul,
  kAttention,
  kStem,
  kExpandDepthwise,
  kBottleneck,
  kSqueezeExcite,
};
enum class Dtype { kFloat32, kFloat16, kBfloat16, kInt8, kInt32 };
enum class Activation {
  kNone,
  kRelu,
  kClip,
  kSigmoid,
  kSilu,
  kGelu,
  kGeluTanh,
  kHardSwish,
  kLeakyRelu,
  kTanh,
  kElu,
  kMish,
  kSoftplus,
};

// What an operand is to the forward convolution.
enum class Role {
  kX,
  kW,
  kY,
  kResidual,
  kBias,
  kScale,
  kShift,
  kY2,
  kQuery,
  kKey,
  kValue,
  kExpand,
  kExpandBias,
  kReduce,
  kReduceBias,
  kZ,
  kSqueeze,
  kExcite,
  kSqueezeBias,
  kExciteBias,
};

constexpr int kMaxOperands = 10;

// Rows are runs of channels. `row_stride`, in elements, leads from one to the next: the channels of
// a tensor that is compact, more of a slice of a wider one.
struct Operand {
  Role role;
  std::string name;
  std::vector<int64_t> shape;
  Dtype dtype;
  int64_t row_stride = shape.empty() ? 1 : shape.back();

  bool is_slice() const { return !shape.empty() && row_stride != shape.back(); }
};

struct Epilogue {
  bool residual = false, bias = false, affine_relu = false, affine_only = false;
  bool residual_last = false;  // added behind the activation
  Activation activation = Activation::kNone;
  float clip_min = 0, clip_max = 0;
  float alpha = 0;  // of leaky relu and ELU

  static Epilogue FromJson(const json::Object& object);
};

// Rows in a compact tensor of this shape, in elements: see ConvoyAttentionView. No shape, no
// tensor.
struct RowView {
  std::vector<int64_t> shape;
  int64_t offset = 0;
  std::array<int64_t, 4> strides{};  // outer, batch, head, row
};

struct Attention {
  RowView q, k, v, o, bias;
  Dtype bias_dtype;
  float scale;
  bool causal, zeros;
  int64_t outer;
};

// What surrounds the first convolution of a network: x as the network is given it, with `channels` of
// the c channels, and a max-pool behind the epilogue, without one where window is 0.
struct Stem {
  int64_t channels = 1;
  bool channels_last = false;
  Dtype dtype = Dtype::kFloat32;
  std::array<int64_t, 2> window{}, stride{};
  std::array<int64_t, 4> padding{};  // top, left, bottom, right
  int64_t p = 1, q = 1;              // of the result
};

// The 1x1 convolution of x (n,h,w,channels) whose result a depthwise convolution reads.
struct Expansion {
  int64_t channels = 1;
  Epilogue epilogue;  // a bias and an activation at most
};

// The 1x1 convolution to y (n,p,q,expand) of a convolution's result, and the one of y to z
// (n,p,q,reduce), which is not there where reduce is 0.
struct Bottleneck {
  int64_t expand = 1, reduce = 0;
  Epilogue expand_epilogue;  // a residual before the activation at most
  Epilogue reduce_epilogue;  // a bias and an activation at most
};

// The products that compute the gates of an image's channels from their means: to (n,channels), and
// back to (n,c). The epilogue of the workload is that of the image times its gates.
struct SqueezeExcite {
  int64_t channels = 1;
  Epilogue squeeze_epilogue, gate_epilogue;  // a bias and an activation at most
};

// The third spatial axis, outermost, of a convolution over volumes: d planes of the input, t of the
// filter, o of the output.
struct Depth {
  bool is_3d = false;  // the operands have this axis
  int64_t d = 1, t = 1, o = 1, stride = 1, dilation = 1;
  std::array<int64_t, 2> padding{};  // front, back
};

// Sizes are those of the forward convolution: x (n,h,w,c), filter (k,r,s,c/groups), y (n,p,q,k);
// over volumes x (n,d,h,w,c), filter (k,t,r,s,c/groups), y (n,o,p,q,k).
// A matmul has x (n,c), filter (k,c), y (n,k); of several groups it is batched, without an epilogue:
// x (groups,n,c/groups), filter (groups,k/groups,c/groups), y (groups,n,k/groups).
// Attention has n batches of `groups` heads, h queries, w keys, c / groups elements of q and k, and
// k / groups of v and o.
struct Workload {
  Op op;
  int64_t n, h, w, c, k, r, s, p, q;
  std::array<int64_t, 2> stride, dilation;
  std::array<int64_t, 4> padding;  // top, left, bottom, right
  Depth depth;
  int64_t groups;
  Dtype dtype, out_dtype, acc_dtype;
  bool tf32;
  Epilogue epilogue;
  Attention attention;            // only of kAttention
  Stem stem;                      // only of kStem
  Expansion expansion;            // only of kExpandDepthwise
  Bottleneck bottleneck;          // only of kBottleneck
  SqueezeExcite squeeze_excite;   // only of kSqueezeExcite
  std::vector<Operand> operands;  // in call order, outputs last
  int num_outputs;

  bool fused() const {
    return epilogue.residual || epilogue.bias || epilogue.affine_relu ||
           epilogue.activation != Activation::kNone;
  }

  bool is_batched() const { return op == Op::kMatmul && groups > 1; }

  // Whether it is several convolutions or products, each of which reads the result of the one before.
  bool is_back_to_back() const {
    return op == Op::kExpandDepthwise || op == Op::kBottleneck || op == Op::kSqueezeExcite;
  }

  bool has_slices() const {
    return std::any_of(operands.begin(), operands.end(),
                       [](const Operand& operand) { return operand.is_slice(); });
  }

  // Throws InvalidWorkload naming the field that is missing, of another type or out of range.
  static Workload FromJson(const json::Object& object);
};

DLDataType ToDlpack(Dtype dtype);
const char* Name(Dtype dtype);

}  // namespace convoy
