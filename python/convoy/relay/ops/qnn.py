"""Quantized operators, expanded into integer arithmetic (`qnn_arithmetic`).

A quantized value q stands for scale * (q - zero_point). Scales and zero points are expressions
that must be constants, or bound parameters, when the module is compiled. They do not affect types.

Here are quantize, dequantize and requantize; `qnn_linear` has convolutions and GEMMs, `qnn_joining`
sums, products and concatenation, `qnn_unary` the functions of one value.
"""

from __future__ import annotations

from collections.abc import Sequence

from convoy.errors import UnsupportedOp
from convoy.relay.ast import Call, Expr
from convoy.relay.ops.arguments import make_call
from convoy.relay.ops.expansion_call import attrs_of, type_of
from convoy.relay.ops.qnn_arithmetic import dequantized, quantized, requantized, saturated
from convoy.relay.ops.qnn_call import axis_of, constants, result_of, scale_of
from convoy.relay.ops.registry import builder, expansion, type_rule
from convoy.relay.ops.type_inputs import Inputs
from convoy.relay.types import TensorType, Type

_ROUNDINGS = ("None", "UPWARD", "TONEAREST")
_COMPUTE = ("None", "int64", "float32", "float64")


@builder("qnn.quantize")
def quantize(
    data: Expr, output_scale: Expr, output_zero_point: Expr, axis: int = -1, out_dtype: str = "int8"
) -> Call:
    """Compute round(data / scale) + zero point; scales may be vectors along `axis`."""
    args = (data, output_scale, output_zero_point)
    return make_call("qnn.quantize", *args, axis=axis, out_dtype=out_dtype)


@builder("qnn.dequantize")
def dequantize(
    data: Expr,
    input_scale: Expr,
    input_zero_point: Expr,
    axis: int = -1,
    out_dtype: str = "float32",
) -> Call:
    """Compute scale * (data - zero point); scales may be vectors along `axis`."""
    args = (data, input_scale, input_zero_point)
    return make_call("qnn.dequantize", *args, axis=axis, out_dtype=out_dtype)


@type_rule("qnn.quantize", "qnn.dequantize")
def infer_quantize(call: Inputs) -> Type:
    call.count(3)
    return TensorType(call.tensor(0).shape, call.out_dtype("float32"))


@expansion("qnn.quantize")
def expand_quantize(call: Call, args: Sequence[Expr]) -> Expr:
    scale, zero = scale_of(call, args, 1), scale_of(call, args, 2)
    ndim = len(type_of(call, 0).shape)
    return quantized(args[0], scale, zero, axis_of(call), ndim, attrs_of(call)["out_dtype"])


@expansion("qnn.dequantize")
def expand_dequantize(call: Call, args: Sequence[Expr]) -> Expr:
    scale, zero = scale_of(call, args, 1), scale_of(call, args, 2)
    ndim = len(type_of(call, 0).shape)
    return dequantized(args[0], scale, zero, axis_of(call), ndim, attrs_of(call)["out_dtype"])


@builder("qnn.requantize")
def requantize(
    data: Expr,
    input_scale: Expr,
    input_zero_point: Expr,
    output_scale: Expr,
    output_zero_point: Expr,
    axis: int = -1,
    rounding: str = "None",
    compute_dtype: str = "None",
    out_dtype: str = "int8",
) -> Call:
    """Change scale and zero point.

    Args:
        axis: The axis of an input scale per channel.
        rounding: "UPWARD" or "TONEAREST" (halves away from zero). "None" for both is what
            `requantize_config` sets, "UPWARD" and "int64" outside of it.
        compute_dtype: "int64", which "None" means too, "float32" or "float64".
        out_dtype: The result's dtype.
    """
    return make_call(
        "qnn.requantize", data, input_scale, input_zero_point, output_scale, output_zero_point,
        axis=axis, rounding=rounding, compute_dtype=compute_dtype, out_dtype=out_dtype,
    )  # fmt: skip


@type_rule("qnn.requantize")
def infer_requantize(call: Inputs) -> Type:
    call.count(5)
    return TensorType(call.tensor(0).shape, call.out_dtype("int8"))


@expansion("qnn.requantize")
def expand_requantize(call: Call, args: Sequence[Expr]) -> Expr:
    quantization = constants(call, args, 1, 2, 3, 4)
    attrs, ndim, how = attrs_of(call), len(type_of(call, 0).shape), {}
    for field, known in (("rounding", _ROUNDINGS), ("compute_dtype", _COMPUTE)):
        if attrs[field] not in known:
            raise UnsupportedOp(f"qnn.requantize with {field}='{attrs[field]}'", ", ".join(known))
        if attrs[field] != "None":
            how[field] = attrs[field]
    result = requantized(args[0], quantization, axis_of(call), ndim, **how)
    return saturated(result, result_of(call).dtype)
