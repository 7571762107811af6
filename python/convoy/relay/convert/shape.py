"""Operators that rearrange elements or make new tensors."""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import relax

from convoy.relay.convert.context import OpCall, RelaxExpr, constant, converter, is_const
from convoy.relay.convert.layouts import transform
from convoy.relay.types import TensorType


@converter("reshape", "contrib_reverse_reshape", "reshape_like")
def reshape(op: OpCall) -> RelaxExpr:
    if op.result.is_static:
        return op.reshape(op.args[0], op.result_shape())
    if op.name == "reshape_like":
        if op.attrs.get_int("lhs_begin") or op.attrs["lhs_end"] is not None:
            op.result_shape()  # raises
        return relax.op.reshape(op.args[0], op.args[1].ty.shape)
    values = [int(v) for v in op.attrs["newshape"]]
    if op.name != "reshape" or -4 in values or (0 in values and op.attrs["allowzero"]):
        op.result_shape()  # raises
    return relax.op.reshape(op.args[0], _sizes(op, values))


def _sizes(op: OpCall, values: list[int]) -> list[Any]:
    """The sizes of a reshape in which some are unknown: 0 keeps one, -3 multiplies two, -2 keeps
    the rest, -1 is left to Relax."""
    shape = op.args[0].ty.shape
    if shape is None or getattr(shape, "values", None) is None:
        raise op.unsupported("a shape of which nothing is known", "known sizes, but for some")
    rest = list(shape.values)
    sizes: list[Any] = []
    for value in values:
        if value == -2:
            sizes, rest = sizes + rest, []
        elif value == -3:
            sizes.append(rest.pop(0) * rest.pop(0))
        else:
            sizes.append(rest[0] if value == 0 else value)
            rest = rest[1:]
    return sizes


@converter("squeeze")
def squeeze(op: OpCall) -> RelaxExpr:
    given = op.attrs["axis"]
    return relax.op.squeeze(op.args[0], None if given is None else [int(a) for a in given])


@converter("expand_dims")
def expand_dims(op: OpCall) -> RelaxExpr:
    axis, count = op.attrs.get_int("axis"), op.attrs.get_int("num_newaxis")
    if count == 0:
        return op.args[0]
    first = axis + len(op.type(0).shape) + 1 if axis < 0 else axis
    return relax.op.expand_dims(op.args[0], list(range(first, first + count)))


@converter("transpose")
def transpose(op: OpCall) -> RelaxExpr:
    ndim = len(op.type(0).shape)
    axes = op.attrs["axes"] or range(ndim - 1, -1, -1)
    return op.permute(op.args[0], [int(a) % ndim for a in axes])


@converter("reverse")
def reverse(op: OpCall) -> RelaxExpr:
    return relax.op.flip(op.args[0], op.attrs.get_int("axis"))


@converter("layout_transform")
def layout_transform(op: OpCall) -> RelaxExpr:
    return transform(op, op.args[0], op.attrs["src_layout"], op.attrs["dst_layout"])


def fields_of(op: OpCall, index: int) -> list[RelaxExpr]:
    """The tensors of a tuple argument."""
    value = op.args[index]
    if isinstance(value, relax.Tuple):
        return list(value.fields)
    count = len(op.fields(index))
    return [op.emit(relax.TupleGetItem(value, i)) for i in range(count)]


@converter("concatenate")
def concatenate(op: OpCall) -> RelaxExpr:
    return relax.op.concat(fields_of(op, 0), axis=op.attrs.get_int("axis"))


@converter("stack")
def stack(op: OpCall) -> RelaxExpr:
    return relax.op.stack(fields_of(op, 0), axis=op.attrs.get_int("axis"))


@converter("split")
def split(op: OpCall) -> RelaxExpr:
    parts = op.attrs["indices_or_sections"]
    if parts == 1 or parts == ():
        return relax.Tuple([op.args[0]])
    parts = [int(p) for p in parts] if isinstance(parts, tuple) else int(parts)
    return relax.op.split(op.args[0], parts, axis=op.attrs.get_int("axis"))


@converter("broadcast_to", "broadcast_to_like")
def broadcast_to(op: OpCall) -> RelaxExpr:
    if not op.result.is_static and op.name == "broadcast_to_like":
        return relax.op.broadcast_to(op.args[0], op.args[1].ty.shape)
    return relax.op.broadcast_to(op.args[0], op.result_shape())


@converter("collapse_sum_like", "collapse_sum_to")
def collapse_sum(op: OpCall) -> RelaxExpr:
    return relax.op.collapse_sum_to(op.args[0], op.result_shape())


@converter("tile")
def tile(op: OpCall) -> RelaxExpr:
    return relax.op.tile(op.args[0], [int(r) for r in op.attrs["reps"]])


@converter("repeat")
def repeat(op: OpCall) -> RelaxExpr:
    axis = op.attrs["axis"]
    times = int(op.attrs["repeats"])
    return relax.op.repeat(op.args[0], times, None if axis is None else int(axis))


@converter("meshgrid")
def meshgrid(op: OpCall) -> RelaxExpr:
    return relax.op.meshgrid(fields_of(op, 0), op.attrs["indexing"])


@converter("zeros", "ones")
def filled(op: OpCall) -> RelaxExpr:
    make = relax.op.zeros if op.name == "zeros" else relax.op.ones
    return make(op.result_shape(), op.result.dtype)


@converter("zeros_like", "ones_like")
def filled_like(op: OpCall) -> RelaxExpr:
    make = relax.op.zeros_like if op.name == "zeros_like" else relax.op.ones_like
    return make(op.args[0])


@converter("full", "full_like")
def full(op: OpCall) -> RelaxExpr:
    result: TensorType = op.result
    fill = op.args[0 if op.name == "full" else 1]
    if is_const(fill):
        fill = constant(fill.value.numpy().reshape(()), result.dtype)
    else:
        fill = op.cast(op.reshape(fill, ()), result.dtype)
    if op.name == "full_like" and not result.is_static:
        return relax.op.full_like(op.args[0], fill)
    return relax.op.full(op.result_shape(), fill, result.dtype)


@converter("arange")
def arange(op: OpCall) -> RelaxExpr:
    """Bounds are constants; the result is one too."""
    if not op.result.is_static or not all(is_const(a) for a in op.args):
        raise op.unsupported("bounds that are computed", "constants")
    start, _, step = (a.value.numpy().reshape(()).item() for a in op.args)
    count = op.result_shape()[0]
    return constant(start + step * np.arange(count), op.result.dtype)


@converter("shape_of")
def shape_of(op: OpCall) -> RelaxExpr:
    if not op.type(0).is_static:
        sizes = op.emit(relax.op.shape_to_tensor(op.emit(relax.op.shape_of(op.args[0]))))
        return op.cast(sizes, op.result.dtype)
    return constant(np.array(op.shape(0)), op.result.dtype)


@converter("ndarray_size")
def ndarray_size(op: OpCall) -> RelaxExpr:
    return constant(np.array(int(np.prod(op.shape(0), dtype=np.int64))), op.result.dtype)
