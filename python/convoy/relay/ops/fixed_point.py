"""Multiplication of int32 by fractions of 31 bits and powers of two, rounding halves up."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from convoy.relay.ast import Call, Expr
from convoy.relay.ops.arguments import make_call
from convoy.relay.ops.expansion_call import attrs_of, const, plain, type_of
from convoy.relay.ops.qnn_arithmetic import multiplied
from convoy.relay.ops.registry import builder, expansion, type_rule
from convoy.relay.ops.type_inputs import Inputs
from convoy.relay.types import TensorType, Type


@builder("fixed_point_multiply")
def fixed_point_multiply(data: Expr, multiplier: int, shift: int) -> Call:
    """Compute round(data * multiplier * 2 ** (shift - 31)) of int32."""
    return make_call("fixed_point_multiply", data, multiplier=multiplier, shift=shift)


@type_rule("fixed_point_multiply")
def infer_fixed_point_multiply(call: Inputs) -> Type:
    call.count(1)
    return _int32(call)


@type_rule("fixed_point_multiply_per_axis")
def infer_fixed_point_multiply_per_axis(call: Inputs) -> Type:
    """Infer from the data; multipliers and shifts have the sizes of the data along `axes`."""
    call.count(4)
    data = _int32(call)
    axes = [call.axis(axis, len(data.shape)) for axis in call.ints("axes")]
    if axes != sorted(set(axes)):
        raise call.error(f"axes={axes}", "axes in ascending order")
    sizes = [data.shape[axis] for axis in axes]
    for position in (1, 2, 3):
        call.expect(position, TensorType(sizes, "int32"))
    return data


def _int32(call: Inputs) -> TensorType:
    if call.tensor(0).dtype != "int32":
        raise call.error(f"a {call.tensor(0)}", "int32")
    return call.tensor(0)


@expansion("fixed_point_multiply")
def expand_fixed_point_multiply(call: Call, args: Sequence[Expr]) -> Expr:
    multiplier, shift = (np.int64(attrs_of(call)[name]) for name in ("multiplier", "shift"))
    return multiplied(args[0], np.asarray(multiplier), np.asarray(shift), "UPWARD")


@expansion("fixed_point_multiply_per_axis")
def expand_fixed_point_multiply_per_axis(call: Call, args: Sequence[Expr]) -> Expr:
    """Expand to (data * 2 ** left * multiplier + half) / 2 ** (31 + right) in 64 bits."""
    attrs, ndim = attrs_of(call), len(type_of(call, 0).shape)
    axes = [axis % ndim for axis in attrs["axes"]]
    sizes = [-1] if len(axes) == 1 else [type_of(call, 0).shape[axis] for axis in axes]
    shape = [sizes[axes.index(i)] if i in axes else 1 for i in range(ndim)]
    multiplier, left, right = (
        plain("reshape", plain("cast", arg, dtype="int64"), newshape=shape) for arg in args[1:]
    )
    product = plain("cast", args[0], dtype="int64")
    if attrs["is_lshift_required"]:
        product = plain("left_shift", product, left)
    product = plain("multiply", product, multiplier)
    one: Expr = const(1, "int64")
    total: Expr = const(31, "int64")
    half: Expr = const(1 << 30, "int64")
    if attrs["is_rshift_required"]:
        total = plain("add", right, total)
        half = plain("left_shift", one, plain("subtract", total, one))
    return plain("cast", plain("right_shift", plain("add", product, half), total), dtype="int32")
