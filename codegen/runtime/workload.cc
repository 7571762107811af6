#include "workload.h"

#include <algorithm>

#include "back_to_back.h"

namespace convoy {
namespace {

template <typename T>
struct Choice {
  const char* name;
  T value;
};

template <typename T, size_t N>
T Choose(const json::Object& object, const char* field, const Choice<T> (&choices)[N],
         const char* fallback) {
  std::string got = GetString(object, field, fallback);
  std::string expected;
  for (const Choice<T>& choice : choices) {
    if (got == choice.name) return choice.value;
    expected += (expected.empty() ? "" : ", ") + std::string(choice.name);
  }
  TVM_FFI_THROW(InvalidWorkload) << field << " '" << got << "'; expected one of " << expected;
  return T();
}

constexpr Choice<Op> kOps[] = {{"fprop", Op::kFprop},
                               {"dgrad", Op::kDgrad},
                               {"wgrad", Op::kWgrad},
                               {"matmul", Op::kMatmul},
                               {"attention", Op::kAttention},
                               {"stem", Op::kStem},
                               {"expand_depthwise", Op::kExpandDepthwise},
                               {"bottleneck", Op::kBottleneck},
                               {"squeeze_excite", Op::kSqueezeExcite}};
constexpr Choice<Dtype> kDtypes[] = {{"float32", Dtype::kFloat32},
                                     {"float16", Dtype::kFloat16},
                                     {"bfloat16", Dtype::kBfloat16},
                                     {"int8", Dtype::kInt8},
                                     {"int32", Dtype::kInt32}};
constexpr Choice<Activation> kActivations[] = {{"none", Activation::kNone},
                                               {"relu", Activation::kRelu},
                                               {"clip", Activation::kClip},
                                               {"sigmoid", Activation::kSigmoid},
                                               {"silu", Activation::kSilu},
                                               {"gelu", Activation::kGelu},
                                               {"gelu_tanh", Activation::kGeluTanh},
                                               {"hardswish", Activation::kHardSwish},
                                               {"leaky_relu", Activation::kLeakyRelu},
                                               {"tanh", Activation::kTanh},
                                               {"elu", Activation::kElu},
                                               {"mish", Activation::kMish},
                                               {"softplus", Activation::kSoftplus}};

template <size_t N>
std::array<int64_t, N> GetArray(const json::Object& object, const char* name, int64_t fallback) {
  std::array<int64_t, N> result;
  result.fill(fallback);
  if (Find(object, name) == nullptr) return result;
  auto values = Require<json::Array>(object, name);
  if (values.size() != N) {
    TVM_FFI_THROW(InvalidWorkload)
        << name << " has " << values.size() << " numbers; expected " << N;
  }
  for (size_t i = 0; i < N; ++i) result[i] = values[i].cast<int64_t>();
  return result;
}

RowView ParseRows(const json::Object& object, const char* name) {
  constexpr int64_t kMost = int64_t(1) << 48;
  RowView view;
  if (Find(object, name) == nullptr) return view;
  auto fields = Require<json::Object>(object, name);
  int64_t size = 1;
  for (const auto& extent : Require<json::Array>(fields, "shape")) {
    view.shape.push_back(extent.cast<int64_t>());
    bool fits = view.shape.back() >= 1 && view.shape.back() <= kMost / size;
    if (!fits) TVM_FFI_THROW(InvalidWorkload) << name << " of " << json::Stringify(fields);
    size *= view.shape.back();
  }
  view.offset = Get<int64_t>(fields, "offset", 0);
  view.strides = GetArray<4>(fields, "strides", 0);
  return view;
}

// Throws InvalidWorkload where rows of `row` elements would be read or written outside the tensor.
void CheckView(const char* name, const RowView& view, const std::array<int64_t, 4>& sizes,
               int64_t row) {
  __int128 size = 1, last = __int128(view.offset) + row - 1;
  for (int64_t extent : view.shape) size *= extent;
  bool negative = view.offset < 0;
  for (size_t i = 0; i < sizes.size(); ++i) {
    negative = negative || view.strides[i] < 0;
    last += __int128(sizes[i] - 1) * view.strides[i];
  }
  if (negative || last >= size) {
    TVM_FFI_THROW(InvalidWorkload)
        << name << " of attention: offset and strides lead out of its tensor";
  }
}

Attention ParseAttention(const json::Object& object, const Workload& load) {
  Attention attention;
  attention.q = ParseRows(object, "q");
  attention.k = ParseRows(object, "k");
  attention.v = ParseRows(object, "v");
  attention.o = ParseRows(object, "o");
  attention.bias = ParseRows(object, "bias");
  attention.bias_dtype = Choose(object, "bias_dtype", kDtypes, "float16");
  attention.scale = static_cast<float>(Get<double>(object, "scale", 1));
  attention.causal = Get<bool>(object, "causal", false);
  attention.zeros = Get<bool>(object, "zeros", false);
  attention.outer = Get<int64_t>(object, "outer", 1);
  if (attention.outer < 1 || load.n % attention.outer) {
    TVM_FFI_THROW(InvalidWorkload)
        << "outer = " << attention.outer << " of " << load.n << " batches; expected a divisor";
  }
  std::array<int64_t, 4> queries = {attention.outer, load.n / attention.outer, load.groups, load.h};
  std::array<int64_t, 4> keys = {queries[0], queries[1], queries[2], load.w};
  int64_t dim = load.c / load.groups, value_dim = load.k / load.groups;
  CheckView("q", attention.q, queries, dim);
  CheckView("k", attention.k, keys, dim);
  CheckView("v", attention.v, keys, value_dim);
  CheckView("o", attention.o, queries, value_dim);
  if (!attention.bias.shape.empty()) CheckView("bias", attention.bias, queries, load.w);
  return attention;
}

void ListAttention(Workload* load) {
  const Attention& attention = load->attention;
  std::vector<Operand>& list = load->operands;
  list = {{Role::kQuery, "q", attention.q.shape, load->dtype},
          {Role::kKey, "k", attention.k.shape, load->dtype},
          {Role::kValue, "v", attention.v.shape, load->dtype}};
  if (!attention.bias.shape.empty()) {
    list.push_back({Role::kBias, "bias", attention.bias.shape, attention.bias_dtype});
  }
  list.push_back({Role::kY, "o", attention.o.shape, load->out_dtype});
  load->num_outputs = 1;
}

int64_t OutputSize(int64_t in, int64_t before, int64_t after, int64_t dilation, int64_t filter,
                   int64_t stride) {
  int64_t room = in + before + after - (dilation * (filter - 1) + 1);
  return room < 0 ? 0 : room / stride + 1;
}

Stem ParseStem(const json::Object& object, const Workload& load) {
  Stem stem;
  stem.channels = Require<int64_t>(object, "channels");
  stem.channels_last = Require<bool>(object, "channels_last");
  stem.dtype = Choose(object, "dtype", kDtypes, "float32");
  stem.window = GetArray<2>(object, "window", 0);
  stem.stride = GetArray<2>(object, "stride", 1);
  stem.padding = GetArray<4>(object, "padding", 0);
  stem.p = load.p;
  stem.q = load.q;
  if (stem.window[0] > 0) {
    bool steps = std::min(stem.stride[0], stem.stride[1]) >= 1;
    bool pads = *std::min_element(stem.padding.begin(), stem.padding.end()) >= 0;
    stem.p = !steps || !pads ? 0
                             : OutputSize(load.p, stem.padding[0], stem.padding[2], 1,
                                          stem.window[0], stem.stride[0]);
    stem.q = stem.p == 0 ? 0
                         : OutputSize(load.q, stem.padding[1], stem.padding[3], 1, stem.window[1],
                                      stem.stride[1]);
  }
  bool floats = stem.dtype != Dtype::kInt8 && stem.dtype != Dtype::kInt32;
  if (!floats || stem.channels < 1 || stem.channels > load.c || load.groups != 1 || stem.p < 1 ||
      stem.q < 1 || (stem.window[0] > 0) != (stem.window[1] > 0) || load.epilogue.residual ||
      load.epilogue.affine_relu) {
    TVM_FFI_THROW(InvalidWorkload)
        << "stem " << json::Stringify(object)
        << "; expected at most c channels of floats, and windows of a max-pool that fit into the "
           "result, with neither groups nor a residual nor a second result";
  }
  return stem;
}

void ListStem(Workload* load) {
  const Stem& stem = load->stem;
  std::vector<int64_t> x = {load->n, stem.channels, load->h, load->w};
  if (stem.channels_last) x = {load->n, load->h, load->w, stem.channels};
  std::vector<Operand>& list = load->operands;
  list = {{Role::kX, "x", x, stem.dtype},
          {Role::kW, "w", {load->k, load->r, load->s, load->c}, load->dtype}};
  if (load->epilogue.bias) list.push_back({Role::kBias, "bias", {load->k}, load->out_dtype});
  list.push_back({Role::kY, "y", {load->n, stem.p, stem.q, load->k}, load->out_dtype});
  load->num_outputs = 1;
}

void ListOperands(Workload* load) {
  if (load->op == Op::kAttention) return ListAttention(load);
  if (load->op == Op::kStem) return ListStem(load);
  if (load->is_back_to_back()) return ListBackToBack(load);
  bool matmul = load->op == Op::kMatmul;
  using Shape = std::vector<int64_t>;
  Shape x = matmul ? Shape{load->n, load->c} : Shape{load->n, load->h, load->w, load->c};
  Shape w =
      matmul ? Shape{load->k, load->c} : Shape{load->k, load->r, load->s, load->c / load->groups};
  Shape y = matmul ? Shape{load->n, load->k} : Shape{load->n, load->p, load->q, load->k};
  if (load->is_batched()) {
    int64_t c = load->c / load->groups, k = load->k / load->groups;
    x = {load->groups, load->n, c};
    w = {load->groups, k, c};
    y = {load->groups, load->n, k};
  }
  if (const Depth& depth = load->depth; depth.is_3d) {
    x.insert(x.begin() + 1, depth.d);
    w.insert(w.begin() + 1, depth.t);
    y.insert(y.begin() + 1, depth.o);
  }
  Shape per_channel = {load->k};
  Dtype in = load->dtype, out = load->out_dtype;
  std::vector<Operand>& list = load->operands;
  load->num_outputs = 1;
  if (load->op == Op::kDgrad) {
    list = {{Role::kY, "dy", y, in}, {Role::kW, "w", w, in}, {Role::kX, "dx", x, out}};
    return;
  }
  if (load->op == Op::kWgrad) {
    list = {{Role::kY, "dy", y, in}, {Role::kX, "x", x, in}, {Role::kW, "dw", w, out}};
    return;
  }
  list = {{Role::kX, "x", x, in}, {Role::kW, "w", w, in}};
  const Epilogue& epilogue = load->epilogue;
  if (epilogue.residual) list.push_back({Role::kResidual, "residual", y, out});
  bool requantizes = out == Dtype::kInt8;
  Shape bias = requantizes ? Shape{load->k, 4} : per_channel;
  if (epilogue.bias) {
    list.push_back({Role::kBias, "bias", bias, requantizes ? Dtype::kInt32 : out});
  }
  if (epilogue.affine_relu) {
    list.push_back({Role::kScale, "scale", per_channel, out});
    list.push_back({Role::kShift, "shift", per_channel, out});
  }
  if (!epilogue.affine_only) list.push_back({Role::kY, "y", y, out});
  if (epilogue.affine_relu) list.push_back({Role::kY2, "y2", y, out});
  load->num_outputs = !epilogue.affine_only + epilogue.affine_relu;
}

Depth ParseDepth(const json::Object& object) {
  Depth depth;
  depth.is_3d = true;
  for (auto [name, field] : {std::pair<const char*, int64_t*>{"d", &depth.d},
                             {"t", &depth.t},
                             {"stride", &depth.stride},
                             {"dilation", &depth.dilation}}) {
    *field = Get<int64_t>(object, name, 1);
    if (*field < 1 || *field > INT32_MAX) {
      TVM_FFI_THROW(InvalidWorkload)
          << name << " = " << *field << " of depth; expected 1 to " << INT32_MAX;
    }
  }
  depth.padding = GetArray<2>(object, "padding", 0);
  depth.o = OutputSize(depth.d, depth.padding[0], depth.padding[1], depth.dilation, depth.t,
                       depth.stride);
  if (std::min(depth.padding[0], depth.padding[1]) < 0 || depth.o < 1) {
    TVM_FFI_THROW(InvalidWorkload)
        << "depth " << json::Stringify(object)
        << "; expected padding of at least 0 and a filter no larger than the padded input";
  }
  return depth;
}

// {"y": 256}: the row strides of operands that are slices of wider tensors.
void ParseRowStrides(const json::Object& object, Workload* load) {
  for (const auto& [name, value] : object) {
    std::string key = name.cast<tvm::ffi::String>();
    auto it = std::find_if(load->operands.begin(), load->operands.end(),
                           [&](const Operand& operand) { return operand.name == key; });
    bool sliceable = it != load->operands.end() && it->shape.size() > 1 && !load->is_batched() &&
                     load->op != Op::kAttention && load->op != Op::kStem &&
                     !load->is_back_to_back() &&
                     (it->role == Role::kX || it->role == Role::kY || it->role == Role::kResidual);
    int64_t stride = value.cast<int64_t>();
    if (!sliceable || stride < it->shape.back() || stride > INT32_MAX) {
      TVM_FFI_THROW(InvalidWorkload)
          << "row_strides " << json::Stringify(object)
          << "; expected those of x, y or residual, of at least as many elements as channels";
    }
    it->row_stride = stride;
  }
}

// Sums of int8 are kept as int32, or made int8 again; no other operand is an integer.
void CheckDtypes(const Workload& load) {
  bool integers = load.dtype == Dtype::kInt8;
  bool kept = load.out_dtype == Dtype::kInt8 || load.out_dtype == Dtype::kInt32;
  if (load.dtype != Dtype::kInt32 && kept == integers &&
      (load.acc_dtype == Dtype::kInt32) == integers) {
    return;
  }
  TVM_FFI_THROW(InvalidWorkload) << "dtype '" << Name(load.dtype) << "' with out_dtype '"
                                 << Name(load.out_dtype) << "' and acc_dtype '"
                                 << Name(load.acc_dtype)
                                 << "'; expected integers in all of them or in none";
}

}  // namespace

Epilogue Epilogue::FromJson(const json::Object& object) {
  Epilogue epilogue;
  epilogue.residual = Get<bool>(object, "residual", false);
  epilogue.bias = Get<bool>(object, "bias", false);
  epilogue.affine_relu = Get<bool>(object, "affine_relu", false);
  epilogue.affine_only = epilogue.affine_relu && Get<bool>(object, "affine_only", false);
  epilogue.activation = Choose(object, "activation", kActivations, "none");
  epilogue.clip_min = static_cast<float>(Get<double>(object, "clip_min", 0));
  epilogue.clip_max = static_cast<float>(Get<double>(object, "clip_max", 0));
  epilogue.alpha = static_cast<float>(Get<double>(object, "alpha", 0));
  epilogue.residual_last = epilogue.residual && Get<bool>(object, "residual_last", false);
  return epilogue;
}

Workload Workload::FromJson(const json::Object& object) {
  Workload load;
  load.op = Choose(object, "op", kOps, "");
  for (auto [name, field] : {std::pair<const char*, int64_t*>{"n", &load.n},
                             {"h", &load.h},
                             {"w", &load.w},
                             {"c", &load.c},
                             {"k", &load.k},
                             {"r", &load.r},
                             {"s", &load.s}}) {
    *field = Require<int64_t>(object, name);
    if (*field < 1 || *field > INT32_MAX) {
      TVM_FFI_THROW(InvalidWorkload) << name << " = " << *field << "; expected 1 to " << INT32_MAX;
    }
  }
  load.stride = GetArray<2>(object, "stride", 1);
  load.dilation = GetArray<2>(object, "dilation", 1);
  load.padding = GetArray<4>(object, "padding", 0);
  load.groups = Get<int64_t>(object, "groups", 1);
  bool steps = std::min({load.stride[0], load.stride[1], load.dilation[0], load.dilation[1]}) >= 1;
  bool pads = *std::min_element(load.padding.begin(), load.padding.end()) >= 0;
  if (!steps || !pads || load.groups < 1 || load.c % load.groups || load.k % load.groups) {
    TVM_FFI_THROW(InvalidWorkload)
        << "stride, dilation, padding or groups out of range in " << json::Stringify(object)
        << "; expected strides and dilations of at least 1, padding of at least 0 and groups that "
           "divide c and k";
  }
  load.p = OutputSize(load.h, load.padding[0], load.padding[2], load.dilation[0], load.r,
                      load.stride[0]);
  load.q = OutputSize(load.w, load.padding[1], load.padding[3], load.dilation[1], load.s,
                      load.stride[1]);
  if (load.p < 1 || load.q < 1) {
    TVM_FFI_THROW(InvalidWorkload) << "an output of " << load.p << "x" << load.q
                                   << "; expected a filter no larger than the padded input";
  }
  if (Find(object, "depth") != nullptr) {
    load.depth = ParseDepth(Require<json::Object>(object, "depth"));
    if (load.op != Op::kFprop && load.op != Op::kDgrad) {
      TVM_FFI_THROW(InvalidWorkload) << "an op with a depth; expected fprop or dgrad";
    }
  }
  load.dtype = Choose(object, "dtype", kDtypes, "float16");
  load.out_dtype = Choose(object, "out_dtype", kDtypes, "float16");
  load.acc_dtype = Choose(object, "acc_dtype", kDtypes, "float32");
  CheckDtypes(load);
  load.tf32 = GetString(object, "math", "default") == "tf32";
  if (Find(object, "epilogue") != nullptr) {
    load.epilogue = Epilogue::FromJson(Require<json::Object>(object, "epilogue"));
  }
  if (load.is_batched() && (load.fused() || load.h * load.w * load.r * load.s != 1)) {
    TVM_FFI_THROW(InvalidWorkload) << "a batched matmul with an epilogue, rows or taps in "
                                   << json::Stringify(object) << "; expected n, c and k alone";
  }
  if (load.op == Op::kAttention) {
    load.attention = ParseAttention(Require<json::Object>(object, "attention"), load);
  }
  if (load.op == Op::kStem) load.stem = ParseStem(Require<json::Object>(object, "stem"), load);
  if (load.is_back_to_back()) ParseBackToBack(object, &load);
  ListOperands(&load);
  if (Find(object, "row_strides") != nullptr) {
    ParseRowStrides(Require<json::Object>(object, "row_strides"), &load);
  }
  return load;
}

DLDataType ToDlpack(Dtype dtype) {
  switch (dtype) {
    case Dtype::kFloat32: return {kDLFloat, 32, 1};
    case Dtype::kFloat16: return {kDLFloat, 16, 1};
    case Dtype::kInt8: return {kDLInt, 8, 1};
    case Dtype::kInt32: return {kDLInt, 32, 1};
    default: return {kDLBfloat, 16, 1};
  }
}

const char* Name(Dtype dtype) {
  for (const Choice<Dtype>& choice : kDtypes) {
    if (choice.value == dtype) return choice.name;
  }
  return "?";
}

}  // namespace convoy
