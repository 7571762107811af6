"""Quantized sums, products and concatenation: operands of several scales, requantized to one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from convoy.errors import UnsupportedOp
from convoy.relay import ast
from convoy.relay.ast import Call, Expr
from convoy.relay.ops.arguments import as_tuple, make_call
from convoy.relay.ops.expansion_call import attrs_of, const, constant, name_of, plain, type_of
from convoy.relay.ops.join import infer_concatenate
from convoy.relay.ops.qnn_arithmetic import (
    along,
    per_tensor,
    requantized,
    saturated,
    without_zero_point,
)
from convoy.relay.ops.qnn_call import axis_of, constants, infer_plain, result_of
from convoy.relay.ops.registry import builder, expansion, type_rule
from convoy.relay.ops.type_inputs import Inputs
from convoy.relay.shapes import broadcast
from convoy.relay.types import TensorType, Type


def _binary(name: str, verb: str) -> None:
    def build(
        lhs: Expr,
        rhs: Expr,
        lhs_scale: Expr,
        lhs_zero_point: Expr,
        rhs_scale: Expr,
        rhs_zero_point: Expr,
        output_scale: Expr,
        output_zero_point: Expr,
        lhs_axis: int = -1,
        rhs_axis: int = -1,
    ) -> Call:
        args = (lhs, rhs, lhs_scale, lhs_zero_point, rhs_scale, rhs_zero_point)
        out = (output_scale, output_zero_point)
        return make_call(f"qnn.{name}", *args, *out, lhs_axis=lhs_axis, rhs_axis=rhs_axis)

    build.__name__ = build.__qualname__ = name
    build.__doc__ = f"{verb} quantized tensors; `lhs_axis` is that of a scale per channel."
    builder(f"qnn.{name}")(build)


_binary("add", "Add")
_binary("subtract", "Subtract")
_binary("mul", "Multiply")


@type_rule("qnn.add", "qnn.mul", "qnn.subtract")
def infer_binary(call: Inputs) -> Type:
    call.count(8)
    lhs, rhs = call.tensor(0), call.tensor(1)
    shape = broadcast(lhs.shape, rhs.shape)
    if shape is None or lhs.dtype != rhs.dtype:
        raise call.error(f"operands of types {lhs} and {rhs}", "one dtype, shapes that broadcast")
    return TensorType(shape, lhs.dtype)


@expansion("qnn.add", "qnn.subtract")
def expand_sum(call: Call, args: Sequence[Expr]) -> Expr:
    """Requantize both operands to the result's scale, then add or subtract."""
    lhs_scale, lhs_zero, rhs_scale, rhs_zero, *out = constants(call, args, 2, 3, 4, 5, 6, 7)
    axes = [int(attrs_of(call)[f"{side}_axis"]) for side in ("lhs", "rhs")]
    dims = [len(type_of(call, i).shape) for i in (0, 1)]
    lhs = requantized(args[0], (lhs_scale, lhs_zero, *out), axes[0], dims[0])
    rhs = requantized(args[1], (rhs_scale, rhs_zero, *out), axes[1], dims[1])
    shift, dtype = const(per_tensor(out[1]), "int32"), result_of(call).dtype
    if name_of(call) == "qnn.add":  # both operands contain the zero point, the sum has it twice
        return saturated(plain("subtract", plain("add", lhs, rhs), shift), dtype)
    return saturated(plain("add", plain("subtract", lhs, rhs), shift), dtype)


@expansion("qnn.mul")
def expand_mul(call: Call, args: Sequence[Expr]) -> Expr:
    """Multiply in int32, then requantize from the product of the scales."""
    lhs_scale, lhs_zero, rhs_scale, rhs_zero, *out = constants(call, args, 2, 3, 4, 5, 6, 7)
    dims = [len(type_of(call, i).shape) for i in (0, 1)]
    axes = [int(attrs_of(call)[f"{side}_axis"]) for side in ("lhs", "rhs")]
    lhs = without_zero_point(args[0], along(lhs_zero, axes[0], dims[0]))
    rhs = without_zero_point(args[1], along(rhs_zero, axes[1], dims[1]))
    # Channels from the end, where both shapes are aligned.
    channels = {
        axis % ndim - ndim
        for axis, ndim, scale in zip(axes, dims, (lhs_scale, rhs_scale), strict=True)
        if scale.size > 1
    }
    if len(channels) > 1:
        raise UnsupportedOp("qnn.mul with scales along two axes", "scales along one")
    scale = lhs_scale.astype("float64") * rhs_scale.astype("float64")
    quantization = (scale, np.zeros((), "int32"), *out)
    axis = channels.pop() if channels else -1
    result = requantized(plain("multiply", lhs, rhs), quantization, axis, max(dims))
    return saturated(result, result_of(call).dtype)


@builder("qnn.concatenate")
def concatenate(
    data: Any,
    input_scales: Any,
    input_zero_points: Any,
    output_scale: Expr,
    output_zero_point: Expr,
    axis: int,
) -> Call:
    """Concatenate tensors of several scales, requantized to one."""
    scales, zeros = as_tuple(input_scales), as_tuple(input_zero_points)
    args = (as_tuple(data), scales, zeros, output_scale, output_zero_point)
    return make_call("qnn.concatenate", *args, axis=axis)


@type_rule("qnn.concatenate")
def infer_quantized_concatenate(call: Inputs) -> Type:
    call.count(5)
    return infer_plain(call, 1, infer_concatenate)


@expansion("qnn.concatenate")
def expand_concatenate(call: Call, args: Sequence[Expr]) -> Expr:
    data, scales, zeros = args[:3]
    out_scale, out_zero = constants(call, args, 3, 4)
    axis, dtype = axis_of(call), result_of(call).dtype
    if not (isinstance(scales, ast.Tuple) and isinstance(zeros, ast.Tuple)):
        raise UnsupportedOp("qnn.concatenate with scales that are computed", "tuples of constants")
    parts = []
    for i, (scale, zero) in enumerate(zip(scales.fields, zeros.fields, strict=True)):
        value = data.fields[i] if isinstance(data, ast.Tuple) else ast.TupleGetItem(data, i)
        quantization = [constant(call, scale, "a scale"), constant(call, zero, "a zero point")]
        quantization += [out_scale, out_zero]
        wide = requantized(value, quantization, -1, len(result_of(call).shape))
        parts.append(saturated(wide, dtype))
    return plain("concatenate", ast.Tuple(parts), axis=axis)
