"""Slicing, gathering and scattering."""

from __future__ import annotations

import numpy as np
from tvm import relax, topi

from convoy.relay.convert.context import OpCall, RelaxExpr, converter
from convoy.relay.infer.indexing import slice_bounds, slice_triples


@converter("strided_slice")
def strided_slice(op: OpCall) -> RelaxExpr:
    """Bounds are cut to the dimensions here, so that every slice is within them."""
    attrs, shape = op.attrs, op.type(0).shape
    begin = tuple(int(b) for b in attrs["begin"])
    end = tuple(int(e) for e in attrs["end"])
    strides = tuple(int(s) for s in attrs["strides"] or (1,))
    triples = slice_triples(begin, end, strides, attrs["slice_mode"])
    axes = [int(a) % len(shape) for a in attrs["axes"] or range(len(triples))]
    starts, stops, steps, cut = [], [], [], []
    for axis, (b, e, s) in zip(axes, triples, strict=False):
        size = shape[axis]
        if not isinstance(size, int):
            if (b in (None, 0)) and (e is None or e >= 2**31 - 1) and s == 1:
                continue
            op.static(op.type(0))
        start, stop, count = slice_bounds(int(size), b, e, s)  # type: ignore[arg-type]
        if s < 0 and stop < 0:
            stop = -int(size) - 1  # type: ignore[arg-type]
        if count == 0:
            start = stop = 0
            s = 1
        starts.append(start)
        stops.append(stop)
        steps.append(s)
        cut.append(axis)
    if not cut:
        return op.args[0]
    return relax.op.strided_slice(op.args[0], axes=cut, begin=starts, end=stops, strides=steps)


@converter("slice_like")
def slice_like(op: OpCall) -> RelaxExpr:
    result, data = op.result_shape(), op.shape(0)
    axes = [i for i, (a, b) in enumerate(zip(data, result, strict=False)) if a != b]
    if not axes:
        return op.args[0]
    ends = [result[a] for a in axes]
    return relax.op.strided_slice(op.args[0], axes=axes, begin=[0] * len(axes), end=ends)


@converter("take")
def take(op: OpCall) -> RelaxExpr:
    """Indices outside are cut to the border ("clip") or wrapped around ("wrap")."""
    attrs = op.attrs
    if int(attrs["batch_dims"] or 0):
        return op.te(
            topi.take,
            op.args[0],
            op.args[1],
            axis=int(attrs["axis"]),
            batch_dims=int(attrs["batch_dims"]),
            mode=attrs["mode"],
        )
    axis = attrs["axis"]
    data = op.args[0]
    if axis is None:
        data, axis = op.reshape(data, [-1]), 0
    return op.te(topi.take, data, op.args[1], axis=int(axis), mode=attrs["mode"])


@converter("gather")
def gather(op: OpCall) -> RelaxExpr:
    return relax.op.gather_elements(op.args[0], op.args[1], axis=op.attrs.get_int("axis"))


@converter("gather_nd")
def gather_nd(op: OpCall) -> RelaxExpr:
    batch = op.attrs.get_int("batch_dims")
    return op.te(topi.gather_nd, op.args[0], op.args[1], batch_dims=batch)


@converter("scatter_elements")
def scatter_elements(op: OpCall) -> RelaxExpr:
    reduction = op.attrs["reduction"]
    return relax.op.scatter_elements(*op.args, op.attrs.get_int("axis"), reduction)


@converter("scatter_nd")
def scatter_nd(op: OpCall) -> RelaxExpr:
    """Relay's coordinates stand along the first axis, Relax's along the last."""
    ndim = len(op.type(1).shape)
    indices = op.permute(op.args[1], [*range(1, ndim), 0])
    return relax.op.scatter_nd(op.args[0], indices, op.args[2], op.attrs["mode"])


@converter("one_hot")
def one_hot(op: OpCall) -> RelaxExpr:
    attrs, indices = op.attrs, op.args[0]
    axis = attrs.get_int("axis") % (len(op.type(0).shape) + 1)
    depth, dtype = attrs.get_int("depth"), op.type(0).dtype
    spread = op.emit(relax.op.expand_dims(indices, axis))
    shape = [depth if i == axis else 1 for i in range(len(op.type(0).shape) + 1)]
    counter = op.const(np.arange(depth).reshape(shape), dtype)
    hit = op.emit(relax.op.equal(spread, counter))
    on, off = (op.cast(a, attrs["dtype"]) for a in op.args[1:])
    return relax.op.where(hit, on, off)


@converter("sequence_mask")
def sequence_mask(op: OpCall) -> RelaxExpr:
    return op.te(
        topi.sequence_mask,
        op.args[0],
        op.args[1],
        mask_value=op.attrs["mask_value"],
        axis=op.attrs.get_int("axis"),
    )


@converter("reverse_sequence")
def reverse_sequence(op: OpCall) -> RelaxExpr:
    attrs = op.attrs
    return op.te(
        topi.reverse_sequence,
        op.args[0],
        op.args[1],
        int(attrs["seq_axis"]),
        int(attrs["batch_axis"]),
    )
