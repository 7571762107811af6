// Workloads of several convolutions or products: their fields in JSON and their operands.
#include "back_to_back.h"

#include <array>

namespace convoy {
namespace {

void ReadEpilogue(const json::Object& object, const char* name, Epilogue* epilogue) {
  if (Find(object, name) == nullptr) return;
  *epilogue = Epilogue::FromJson(Require<json::Object>(object, name));
}

Expansion ParseExpansion(const json::Object& object, const Workload& load) {
  Expansion expansion;
  expansion.channels = Require<int64_t>(object, "channels");
  ReadEpilogue(object, "epilogue", &expansion.epilogue);
  bool depthwise = load.groups == load.c && load.k == load.c && load.out_dtype == load.dtype;
  bool extent = expansion.channels >= 1 && expansion.channels <= INT32_MAX;
  bool second = false;
  for (const Epilogue& epilogue : {load.epilogue, expansion.epilogue}) {
    second = second || epilogue.residual || epilogue.affine_relu;
  }
  if (!depthwise || !extent || second) {
    TVM_FFI_THROW(InvalidWorkload)
        << "expansion " << json::Stringify(object)
        << "; expected channels, and a depthwise convolution of one type with as many results as "
           "channels, with neither a residual nor a second result";
  }
  return expansion;
}

void ListExpansion(Workload* load) {
  const Expansion& expansion = load->expansion;
  Dtype dtype = load->dtype;
  std::vector<Operand>& list = load->operands;
  list = {{Role::kX, "x", {load->n, load->h, load->w, expansion.channels}, dtype},
          {Role::kW, "w", {load->k, load->r, load->s, 1}, dtype},
          {Role::kExpand, "expand", {load->k, expansion.channels}, dtype}};
  if (expansion.epilogue.bias) {
    list.push_back({Role::kExpandBias, "expand_bias", {load->k}, dtype});
  }
  if (load->epilogue.bias) list.push_back({Role::kBias, "bias", {load->k}, dtype});
  list.push_back({Role::kY, "y", {load->n, load->p, load->q, load->k}, dtype});
  load->num_outputs = 1;
}

Bottleneck ParseBottleneck(const json::Object& object, const Workload& load) {
  Bottleneck bottleneck;
  bottleneck.expand = Require<int64_t>(object, "expand");
  bottleneck.reduce = Get<int64_t>(object, "reduce", 0);
  ReadEpilogue(object, "expand_epilogue", &bottleneck.expand_epilogue);
  ReadEpilogue(object, "reduce_epilogue", &bottleneck.reduce_epilogue);
  const Epilogue& second = bottleneck.expand_epilogue;
  const Epilogue& third = bottleneck.reduce_epilogue;
  bool plain = load.groups == 1 && load.stride[0] == 1 && load.stride[1] == 1 &&
               load.out_dtype == load.dtype;
  bool extents = bottleneck.expand >= 1 && bottleneck.expand <= INT32_MAX &&
                 bottleneck.reduce >= 0 && bottleneck.reduce <= INT32_MAX;
  bool others = load.epilogue.residual || load.epilogue.affine_relu || second.residual_last ||
                second.affine_relu || third.residual || third.affine_relu;
  if (!plain || !extents || others || (bottleneck.reduce == 0 && third.bias)) {
    TVM_FFI_THROW(InvalidWorkload)
        << "bottleneck " << json::Stringify(object)
        << "; expected channels, a convolution of one type with neither groups nor a stride, and "
           "no tensor to be added but before the activation of the second convolution";
  }
  return bottleneck;
}

void ListBottleneck(Workload* load) {
  const Bottleneck& bottleneck = load->bottleneck;
  const int64_t expand = bottleneck.expand, reduce = bottleneck.reduce;
  std::vector<int64_t> wide = {load->n, load->p, load->q, expand};
  Dtype dtype = load->dtype;
  std::vector<Operand>& list = load->operands;
  list = {{Role::kX, "x", {load->n, load->h, load->w, load->c}, dtype},
          {Role::kW, "w", {load->k, load->r, load->s, load->c}, dtype},
          {Role::kExpand, "expand", {expand, load->k}, dtype}};
  if (reduce > 0) list.push_back({Role::kReduce, "reduce", {reduce, expand}, dtype});
  if (bottleneck.expand_epilogue.residual) {
    list.push_back({Role::kResidual, "residual", wide, dtype});
  }
  if (load->epilogue.bias) list.push_back({Role::kBias, "bias", {load->k}, dtype});
  if (bottleneck.expand_epilogue.bias) {
    list.push_back({Role::kExpandBias, "expand_bias", {expand}, dtype});
  }
  if (bottleneck.reduce_epilogue.bias) {
    list.push_back({Role::kReduceBias, "reduce_bias", {reduce}, dtype});
  }
  list.push_back({Role::kY, "y", wide, dtype});
  if (reduce > 0) list.push_back({Role::kZ, "z", {load->n, load->p, load->q, reduce}, dtype});
  load->num_outputs = reduce > 0 ? 2 : 1;
}

SqueezeExcite ParseSqueezeExcite(const json::Object& object, const Workload& load) {
  SqueezeExcite block;
  block.channels = Require<int64_t>(object, "channels");
  ReadEpilogue(object, "squeeze_epilogue", &block.squeeze_epilogue);
  ReadEpilogue(object, "gate_epilogue", &block.gate_epilogue);
  bool moves = load.padding != std::array<int64_t, 4>{} || load.stride[0] * load.stride[1] != 1;
  bool image = load.k == load.c && load.r * load.s == 1 && load.groups == 1 && !moves &&
               load.out_dtype == load.dtype;
  bool extent = block.channels >= 1 && block.channels <= INT32_MAX;
  bool others = load.epilogue.bias || load.epilogue.affine_relu || load.epilogue.residual_last;
  for (const Epilogue& epilogue : {block.squeeze_epilogue, block.gate_epilogue}) {
    others = others || epilogue.residual || epilogue.affine_relu;
  }
  if (!image || !extent || others) {
    TVM_FFI_THROW(InvalidWorkload)
        << "squeeze_excite " << json::Stringify(object)
        << "; expected channels, an image of one type with as many results as channels, products "
           "with a bias and an activation alone, and a residual before the last activation at most";
  }
  return block;
}

void ListSqueezeExcite(Workload* load) {
  const SqueezeExcite& block = load->squeeze_excite;
  std::vector<int64_t> image = {load->n, load->h, load->w, load->c};
  Dtype dtype = load->dtype;
  std::vector<Operand>& list = load->operands;
  list = {{Role::kX, "x", image, dtype},
          {Role::kSqueeze, "squeeze", {block.channels, load->c}, dtype},
          {Role::kExcite, "excite", {load->c, block.channels}, dtype}};
  if (load->epilogue.residual) list.push_back({Role::kResidual, "residual", image, dtype});
  if (block.squeeze_epilogue.bias) {
    list.push_back({Role::kSqueezeBias, "squeeze_bias", {block.channels}, dtype});
  }
  if (block.gate_epilogue.bias) {
    list.push_back({Role::kExciteBias, "excite_bias", {load->c}, dtype});
  }
  list.push_back({Role::kY, "y", image, dtype});
  load->num_outputs = 1;
}

}  // namespace

void ParseBackToBack(const json::Object& object, Workload* load) {
  auto fields = [&object](const char* name) { return Require<json::Object>(object, name); };
  if (load->op == Op::kExpandDepthwise) {
    load->expansion = ParseExpansion(fields("expansion"), *load);
  } else if (load->op == Op::kBottleneck) {
    load->bottleneck = ParseBottleneck(fields("bottleneck"), *load);
  } else {
    load->squeeze_excite = ParseSqueezeExcite(fields("squeeze_excite"), *load);
  }
}

void ListBackToBack(Workload* load) {
  if (load->op == Op::kExpandDepthwise) return ListExpansion(load);
  if (load->op == Op::kBottleneck) return ListBottleneck(load);
  ListSqueezeExcite(load);
}

}  // namespace convoy
