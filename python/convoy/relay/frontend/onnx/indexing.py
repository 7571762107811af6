"""Slices, gathers and scatters."""

from __future__ import annotations

import numpy as np

from convoy.relay.ast import Expr
from convoy.relay.frontend.common import cast, const, dims, rank, scalar_like, unsqueeze, value_of
from convoy.relay.frontend.indices import taken, wrapped
from convoy.relay.frontend.onnx.registry import Node, convert
from convoy.relay.op import tensor as R


@convert("Slice")
def convert_slice(node: Node) -> Expr:
    """Slice; bounds are attributes before opset 10."""
    starts, ends = node.ints_of("starts", 1), node.ints_of("ends", 2)
    assert starts is not None and ends is not None
    axes = node.ints_of("axes", 3) or list(range(len(starts)))
    steps = node.ints_of("steps", 4) or [1] * len(starts)
    shape = dims(node[0])
    data = node[0]
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        axis = node.axis(axis)
        size = shape[axis]
        if isinstance(size, int):
            start, end, step = slice(start, end, step).indices(size)
            if step < 0:
                places = np.arange(start, end, step)
                data = R.take(data, const(places.astype("int64")), axis=axis)
                continue
        end = min(end, 2**31 - 1)
        data = R.strided_slice(data, begin=[start], end=[end], strides=[step], axes=[axis])
    return data


@convert("Gather")
def gather(node: Node) -> Expr:
    axis = node.axis(node.attr("axis", 0))
    return taken(node[0], node[1], axis)


@convert("GatherElements")
def gather_elements(node: Node) -> Expr:
    axis = node.axis(node.attr("axis", 0))
    return R.gather(node[0], axis, wrapped(node[1], dims(node[0])[axis]))


@convert("GatherND")
def gather_nd(node: Node) -> Expr:
    """Gather by index tuples, which are the last axis of the indices (the first one in Relay)."""
    batch = node.attr("batch_dims", 0)
    depth = node.shape(1)[-1]
    sizes = node.shape()[batch : batch + depth]
    return R.gather_nd(node[0], _tuples_first(node[1], sizes), batch_dims=batch, index_rank=depth)


def _tuples_first(indices: Expr, sizes: tuple[int, ...]) -> Expr:
    """Move index tuples from the last axis to the first, negative ones counted from the end."""
    value = value_of(indices)
    bounds = np.asarray(sizes, "int64")
    if value is not None:
        value = np.where(value < 0, value + bounds, value)
        return const(np.ascontiguousarray(np.moveaxis(value, -1, 0)).astype("int64"))
    wide = cast(indices, "int64")
    fixed = R.where(R.less(wide, scalar_like(0, wide)), R.add(wide, const(bounds)), wide)
    axes = [rank(indices) - 1, *range(rank(indices) - 1)]
    return R.transpose(fixed, axes)


_MODES = {"none": "update", "add": "add", "mul": "mul", "min": "min", "max": "max"}


@convert("ScatterElements", "Scatter")
def scatter_elements(node: Node) -> Expr:
    axis = node.axis(node.attr("axis", 0))
    indices = wrapped(node[1], dims(node[0])[axis])
    mode = _MODES[node.attr("reduction", "none")]
    return R.scatter_elements(node[0], indices, node[2], axis, mode)


@convert("ScatterND")
def scatter_nd(node: Node) -> Expr:
    depth = node.shape(1)[-1]
    indices = _tuples_first(node[1], node.shape()[:depth])
    return R.scatter_nd(node[0], indices, node[2], _MODES[node.attr("reduction", "none")])


@convert("OneHot")
def one_hot(node: Node) -> Expr:
    """Make one-hot vectors along a new axis; values are (off, on)."""
    depth = int(node.value(1).reshape(-1)[0])
    axis = node.attr("axis", -1)
    axis = axis + node.rank() + 1 if axis < 0 else axis
    indices = wrapped(cast(node[0], "int64"), depth)
    off, on = (R.take(node[2], const(np.asarray(i, "int64")), axis=0) for i in (0, 1))
    value = value_of(node[2])
    if value is not None:
        off, on = (const(value[i]) for i in (0, 1))
        return R.one_hot(indices, on, off, depth, axis, node.dtype(2))
    places = R.arange(scalar_like(0, indices), scalar_like(depth, indices), dtype="int64")
    places = R.reshape(places, [depth if i == axis else 1 for i in range(node.rank() + 1)])
    return R.where(R.equal(unsqueeze(indices, [axis]), places), on, off)


@convert("Trilu")
def trilu(node: Node) -> Expr:
    k = int(node.number(1, 0))
    return R.trilu(node[0], const(np.asarray(k, "int32")), bool(node.attr("upper", 1)))


@convert("Compress")
def compress(node: Node) -> Expr:
    """Keep the slices of an axis for which a constant condition holds."""
    places = np.flatnonzero(node.value(1)).astype("int64")
    axis = node.attr("axis")
    if axis is None:
        return R.take(R.reshape(node[0], (-1,)), const(places), axis=0)
    return R.take(node[0], const(places), axis=node.axis(axis))


@convert("ReverseSequence")
def reverse_sequence(node: Node) -> Expr:
    return R.reverse_sequence(
        node[0], node[1], seq_axis=node.attr("time_axis", 0), batch_axis=node.attr("batch_axis", 1)
    )


@convert("NonZero")
def nonzero(node: Node) -> Expr:
    """Return the places of values that are not zero, as far as Relay has `argwhere`.

    Raises:
        UnsupportedOp: Relay here has none.
    """
    argwhere = getattr(R, "argwhere", None)
    if argwhere is None:
        raise node.error("a result whose shape depends on values", "a constant input")
    return R.transpose(cast(argwhere(node[0]), "int64"), (1, 0))
