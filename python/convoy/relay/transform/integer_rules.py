"""Rules of FakeQuantizationToInteger: an operator of real numbers, on integers.

A rule `(call, types)` gets a call whose arguments are integers, and the affine types of
expressions; that of the call itself is the quantization wished for the result. It returns the call
on integers and its affine type. Constants in the place of an argument are real numbers still.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from convoy.errors import InvalidOption
from convoy.relay.affine import TensorAffineType, TupleAffineType
from convoy.relay.ast import Call, Constant, Expr, Tuple, op_call
from convoy.relay.equality import structural_equal
from convoy.relay.infer.incremental import type_of
from convoy.relay.registration import (
    register_fake_quantization_to_integer,
    register_optional_fake_quantization_to_integer,
)

Types = Mapping[Expr, Any]
Rewritten = tuple[Expr, TensorAffineType | TupleAffineType]
Rule = Callable[[Call, Types], Rewritten]


def _rules(*names: str) -> Callable[[Rule], Rule]:
    def register(rule: Rule) -> Rule:
        for name in names:
            register_fake_quantization_to_integer(name, rule)
        return rule

    return register


def _attrs(call: Call, *without: str) -> dict[str, Any]:
    return {k: v for k, v in (call.attrs or {}).items() if k not in without}


def _same(x: Expr, y: Expr) -> bool:
    """Check for equal scales or zero points; one may be a number and the other a vector of it."""
    if isinstance(x, Constant) and isinstance(y, Constant):
        if x.value.size != y.value.size and 1 not in (x.value.size, y.value.size):
            return False
        return bool(np.allclose(x.value.ravel(), y.value.ravel(), atol=0))
    return structural_equal(x, y)


def _same_type(a: TensorAffineType, b: TensorAffineType, rank_a: int, rank_b: int) -> bool:
    """Compare the quantizations of two tensors, whose axes are aligned at the last one."""
    same = _same(a.scale, b.scale) and _same(a.zero_point, b.zero_point) and a.dtype == b.dtype
    if not (a.per_channel and b.per_channel):
        return same
    return same and (a.axis % rank_a) - rank_a == (b.axis % rank_b) - rank_b


def _rank(expr: Expr) -> int:
    return len(type_of(expr).shape)  # type: ignore[attr-defined]


def _product(x: Expr, y: Expr) -> Expr:
    """Multiply two scales."""
    if isinstance(x, Constant) and isinstance(y, Constant):
        return Constant(np.asarray(x.value * y.value))
    return x * y


def _zeros(scale: Expr) -> Expr:
    """Return zero points for scales."""
    if isinstance(scale, Constant):
        return Constant(np.zeros(scale.value.shape, "int32"))
    return op_call("cast", [op_call("zeros_like", [scale])], dtype="int32")


def _requantized(x: Expr, old: TensorAffineType, new: TensorAffineType, **attrs: Any) -> Expr:
    """Convert integers of one quantization to those of another; none where they are the same."""
    given = {"axis": old.axis, "out_dtype": new.dtype, **attrs}
    rank = _rank(x)
    if _same_type(old, new, rank, rank) and given["out_dtype"] == old.dtype:
        return x
    args = [x, old.scale, old.zero_point, new.scale, new.zero_point]
    return op_call("qnn.requantize", args, **{"rounding": "None", "compute_dtype": "None", **given})


def _quantized(x: Expr, t: TensorAffineType, axis: int = -1) -> Expr:
    """Quantize a constant."""
    if not isinstance(x, Constant) or x.value.dtype.kind in "iub":
        raise InvalidOption("an argument that is not quantized", "a constant of real numbers")
    return op_call("qnn.quantize", [x, t.scale, t.zero_point], axis=axis, out_dtype=t.dtype)


def _constant(x: Expr, other: TensorAffineType) -> tuple[Expr, TensorAffineType]:
    """Quantize a constant operand to the dtype of the other one.

    In 8 bits it gets a step of its own; TVM 0.18 took the other's, in which it may not fit.
    """
    if other.dtype in ("int8", "uint8") and isinstance(x, Constant):
        step = np.float32(np.abs(x.value).max(initial=0) / 127) or np.float32(1)
        own = TensorAffineType(
            Constant(np.asarray(step)), Constant(np.asarray(0, "int32")), "int8", other.axis
        )
        other = _in_dtype(own, other.dtype)
    return _quantized(x, other), other


def _in_dtype(t: TensorAffineType, dtype: str) -> TensorAffineType:
    """Return the quantization of the same numbers, at the same step, by integers of a dtype.

    Raises:
        InvalidOption: The integers of the dtype are too few.
    """
    shift = {("uint8", "int8"): -128, ("int8", "uint8"): 128}.get((t.dtype, dtype), 0)
    zero = t.zero_point
    if shift and isinstance(zero, Constant):
        zero = Constant(np.asarray(zero.value + shift, "int32"))
    elif t.dtype != dtype != "int32":
        raise InvalidOption(
            f"a result of {t.dtype} from integers of {dtype}", "8 bits or one dtype"
        )
    return TensorAffineType(t.scale, zero, dtype, t.axis)


def _along(vector: Expr, t: TensorAffineType, x: Expr) -> Expr:
    """Reshape a vector of channels so that it broadcasts with a tensor of this quantization."""
    if isinstance(vector, Constant) and vector.value.size == 1:
        return vector
    shape = [1] * _rank(x)
    shape[t.axis] = -1
    return op_call("reshape", [vector], newshape=shape)


# ---- the edges


@_rules("qnn.dequantize")
def _dequantize(call: Call, types: Types) -> Rewritten:
    return call.args[0], types[call]


@_rules("qnn.quantize")
def _quantize(call: Call, types: Types) -> Rewritten:
    assert call.attrs is not None
    scale, zero_point = call.args[1:]
    attrs = call.attrs
    result = TensorAffineType(scale, zero_point, attrs["out_dtype"], int(attrs["axis"]))
    return _requantized(call.args[0], types[call.args[0]], result), result


# ---- operators that only move or choose values


@_rules(
    "reshape",
    "squeeze",
    "strided_slice",
    "transpose",
    "expand_dims",
    "broadcast_to",
    "nn.max_pool2d",
    "nn.batch_flatten",
    "nn.depth_to_space",
    "max",
    "min",
    "image.resize2d",
    "take",
)
def _identity(call: Call, types: Types) -> Rewritten:
    found = types[call.args[0]]
    attrs = _attrs(call)
    if "out_dtype" in attrs:  # of the real numbers
        attrs["out_dtype"] = ""
    return op_call(call.op.name, call.args, **attrs), found  # type: ignore[attr-defined]


@_rules("topk")
def _topk(call: Call, types: Types) -> Rewritten:
    if call.attrs is None or call.attrs["ret_type"] != "values":
        raise InvalidOption("topk with indices", "ret_type='values'")
    return call, types[call.args[0]]


@_rules("split")
def _split(call: Call, types: Types) -> Rewritten:
    assert call.attrs is not None
    sections = call.attrs["indices_or_sections"]
    count = sections if isinstance(sections, int) else len(sections) + 1
    return call, TupleAffineType([types[call.args[0]]] * count)


@_rules("concatenate")
def _concatenate(call: Call, types: Types) -> Rewritten:
    fields, result = types[call.args[0]].types, types[call]
    scales, zeros = Tuple([t.scale for t in fields]), Tuple([t.zero_point for t in fields])
    args = [call.args[0], scales, zeros, result.scale, result.zero_point]
    return op_call("qnn.concatenate", args, **_attrs(call)), result


@_rules("nn.pad")
def _pad(call: Call, types: Types) -> Rewritten:
    data, value = call.args
    t = types[data]
    if value in types:
        value = _requantized(value, types[value], t)
    else:
        value = _quantized(value, t)
    return op_call("nn.pad", [data, value], **_attrs(call)), t


@_rules("clip")
def _clip(call: Call, types: Types) -> Rewritten:
    data = call.args[0]
    t = types[data]
    assert call.attrs is not None
    low, high = call.attrs["a_min"], call.attrs["a_max"]
    if not t.per_channel:
        scale, zero = float(t.scale.value.item()), int(t.zero_point.value.item())
        ends = np.rint(np.array([low, high]) / scale + zero)
        return op_call("clip", [data], a_min=float(ends[0]), a_max=float(ends[1])), t

    def bound(value: float) -> Expr:
        filled = op_call("full_like", [t.scale, Constant(np.asarray(value, "float32"))])
        quantize = op_call(
            "qnn.quantize", [filled, t.scale, t.zero_point], axis=0, out_dtype=t.dtype
        )
        return _along(quantize, t, data)

    return op_call("minimum", [op_call("maximum", [data, bound(low)]), bound(high)]), t


@_rules("nn.relu")
def _relu(call: Call, types: Types) -> Rewritten:
    data = call.args[0]
    t = types[data]
    zero = t.zero_point
    if isinstance(zero, Constant):
        zero = Constant(zero.value.astype(t.dtype))
    else:
        zero = op_call("cast", [zero], dtype=t.dtype)
    return op_call("maximum", [data, _along(zero, t, data)]), t


# ---- averages


@_rules("nn.avg_pool2d")
def _avg_pool(call: Call, types: Types) -> Rewritten:
    data, result = call.args[0], types[call]
    t = types[data]
    result = _in_dtype(result, t.dtype)
    args = [data, t.scale, t.zero_point, result.scale, result.zero_point]
    return op_call("qnn.avg_pool2d", args, **_attrs(call)), result


@_rules("nn.global_avg_pool2d", "nn.adaptive_avg_pool1d", "mean")
def _average(call: Call, types: Types) -> Rewritten:
    """Average in 32 bits at the result's scale."""
    data, result = call.args[0], types[call]
    if result.per_channel:
        raise InvalidOption("an average of channels with different scales", "one scale")
    wide = _requantized(data, types[data], result, out_dtype="int32")
    average = op_call(call.op.name, [wide], **_attrs(call))  # type: ignore[attr-defined]
    inner = TensorAffineType(result.scale, result.zero_point, "int32", result.axis)
    return _requantized(average, inner, result), result


# ---- convolutions and GEMMs: 32-bit integers whose scale is the product of both


def _linear(call: Call, types: Types, axis: int, **attrs: Any) -> Rewritten:
    x, w = call.args
    tx, tw = types[x], types[w]
    scale = _product(tx.scale, tw.scale)
    args = [x, w, tx.zero_point, tw.zero_point, tx.scale, tw.scale]
    attrs["out_dtype"] = "int32"
    new = op_call(f"qnn.{call.op.name.removeprefix('nn.')}", args, **attrs)  # type: ignore[attr-defined]
    return new, TensorAffineType(scale, _zeros(scale), "int32", axis)


@_rules("nn.conv2d", "nn.conv2d_transpose")
def _convolution(call: Call, types: Types) -> Rewritten:
    attrs = _attrs(call)
    layout = attrs["out_layout"] or attrs["data_layout"]
    return _linear(call, types, layout.index("C"), **attrs)


@_rules("nn.dense")
def _dense(call: Call, types: Types) -> Rewritten:
    return _linear(call, types, 1, units=_attrs(call)["units"])


@_rules("nn.batch_matmul")
def _batch_matmul(call: Call, types: Types) -> Rewritten:
    attrs = _attrs(call)
    if attrs["transpose_a"] or not attrs["transpose_b"]:
        raise InvalidOption("batch_matmul of other operands", "transpose_b alone")
    t = types[call.args[0]]
    return _linear(call, types, t.axis, transpose_a=False, transpose_b=True)


@_rules("nn.bias_add")
def _bias_add(call: Call, types: Types) -> Rewritten:
    data, bias = call.args
    t = types[data]
    vector = TensorAffineType(t.scale, t.zero_point, t.dtype, 0)
    if bias in types:
        b = types[bias]
        old = TensorAffineType(b.scale, b.zero_point, b.dtype, 0)
        bias = _requantized(bias, old, vector)
    else:
        bias = _quantized(bias, vector, axis=0)
    return op_call("nn.bias_add", [data, bias], **_attrs(call)), t


# ---- arithmetic


def _operands(call: Call, types: Types) -> tuple[Expr, Expr, Any, Any, Any]:
    """Return both arguments as integers, with their affine types and that of the result."""
    left, right = call.args
    if left not in types and right not in types:
        raise InvalidOption("two arguments that are not quantized", "one that is")
    if left not in types:
        left, left_t = _constant(left, types[right])
    else:
        left_t = types[left]
    if right not in types:
        right, right_t = _constant(right, left_t)
    else:
        right_t = types[right]
    wide = left_t.dtype == "int32" != types[call].dtype
    return left, right, left_t, right_t, left_t if wide else _in_dtype(types[call], left_t.dtype)


def _arithmetic(name: str, integer: str) -> None:
    def rule(call: Call, types: Types) -> Rewritten:
        left, right, left_t, right_t, result = _operands(call, types)
        plain = name == "add" and left_t.dtype == "int32" and _is_zero(result.zero_point)
        if plain and _same(left_t.scale, result.scale):
            ranks = _rank(left), _rank(right)
            if _same_type(left_t, right_t, *ranks):  # a bias after a GEMM
                return left + right, left_t
        if result.per_channel:
            raise InvalidOption(f"{name} to channels with different scales", "one scale")
        args = [left, right]
        for t in (left_t, right_t, result):
            args += [t.scale, t.zero_point]
        attrs = {"lhs_axis": left_t.axis, "rhs_axis": right_t.axis}
        return op_call(integer, args, **attrs), result

    register_fake_quantization_to_integer(name, rule)


def _is_zero(zero_point: Expr) -> bool:
    return isinstance(zero_point, Constant) and not zero_point.value.any()


for _name, _integer in (("add", "qnn.add"), ("subtract", "qnn.subtract"), ("multiply", "qnn.mul")):
    _arithmetic(_name, _integer)


@_rules("minimum", "maximum")
def _extremum(call: Call, types: Types) -> Rewritten:
    left, right, left_t, right_t, result = _operands(call, types)
    args = [_requantized(left, left_t, result), _requantized(right, right_t, result)]
    return op_call(call.op.name, args), result  # type: ignore[attr-defined]


def _pointwise(call: Call, types: Types) -> tuple[list[Expr], TensorAffineType]:
    """Return the arguments of an operator whose result has the dtype of its data, and its type."""
    t = types[call.args[0]]
    result = _in_dtype(types[call], t.dtype)
    return [call.args[0], t.scale, t.zero_point, result.scale, result.zero_point], result


@_rules("sqrt", "rsqrt", "exp", "erf", "sigmoid", "hardswish", "tanh", "abs", "log")
def _unary(call: Call, types: Types) -> Rewritten:
    """Look the results up in a table."""
    args, result = _pointwise(call, types)
    return op_call(f"qnn.{call.op.name}", args, **_attrs(call)), result  # type: ignore[attr-defined]


@_rules("nn.leaky_relu")
def _leaky_relu(call: Call, types: Types) -> Rewritten:
    args, result = _pointwise(call, types)
    return op_call("qnn.leaky_relu", args, **_attrs(call)), result


def _softmax(call: Call, types: Types) -> Rewritten:
    args, result = _pointwise(call, types)
    return op_call("qnn.softmax", args, **_attrs(call)), result


register_optional_fake_quantization_to_integer("nn.softmax", _softmax)
