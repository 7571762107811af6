"""Slices and windows."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest

import numpy as np

from convoy.errors import RelayTypeError
from convoy.relay.ast import Call, Expr
from convoy.relay.builder import const
from convoy.relay.lazy import relax, te, tirx, topi
from convoy.relay.ops.arguments import Sizes, known, listed, make_call
from convoy.relay.ops.registry import builder, converter, shape_arguments, type_rule
from convoy.relay.ops.relax_call import OpCall, RelaxExpr, ints, is_const
from convoy.relay.ops.type_inputs import Inputs
from convoy.relay.types import Any as DynamicDim
from convoy.relay.types import Dim, TensorType, Type


@builder("strided_slice")
def strided_slice(
    data: Expr,
    begin: Sizes,
    end: Sizes,
    strides: Sizes = None,
    axes: Sequence[int] | None = None,
    slice_mode: str = "end",
) -> Call:
    """Slice from `begin` to `end`.

    Args:
        begin, end, strides: Values for each axis, or for those in `axes`; out of range is clipped.
        axes: The axes; None for the first ones.
        slice_mode: "end", or "size" where `end` has numbers of elements, -1 for all that remain.
    """
    bounds = [known(b) for b in (begin, end, [1] if strides is None else strides)]
    if not any(isinstance(b, Expr) for b in bounds):
        attrs = dict(zip(("begin", "end", "strides"), map(listed, bounds), strict=True))
        return make_call("strided_slice", data, **attrs, slice_mode=slice_mode, axes=axes)
    if axes is not None:
        raise RelayTypeError("strided_slice with computed bounds and axes", "bounds of all axes")
    args = [b if isinstance(b, Expr) else const(np.array(b, "int64")) for b in bounds]
    unset = dict.fromkeys(("begin", "end", "strides", "axes"))
    return make_call("dyn.strided_slice", data, *args, slice_mode=slice_mode, **unset)


@type_rule("strided_slice")
def infer_strided_slice(call: Inputs) -> Type:
    call.count(1)
    data, attrs = call.tensor(0), call.attrs
    axes = slice_axes(call, len(data.shape))
    begin, end = call.ints("begin"), call.ints("end")
    strides = call.ints("strides") if attrs["strides"] else (1,)
    if attrs["slice_mode"] not in ("end", "size"):
        raise call.error(f"slice_mode='{attrs['slice_mode']}'", "'end' or 'size'")
    shape = list(data.shape)
    for axis, (b, e, s) in zip(
        axes, slice_triples(begin, end, strides, attrs["slice_mode"]), strict=False
    ):
        size = shape[axis]
        if s == 0:
            raise call.error("a stride of 0", "another stride")
        shape[axis] = slice_bounds(size, b, e, s)[2] if isinstance(size, int) else DynamicDim()
    return TensorType(shape, data.dtype)


@converter("strided_slice")
def convert_strided_slice(op: OpCall) -> RelaxExpr:
    """Emit a slice with bounds clipped to the shape."""
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


def slice_axes(call: Inputs, ndim: int) -> list[int]:
    """Return the axes that a strided_slice applies to."""
    if call.attrs["axes"]:
        return [call.axis(a, ndim) for a in call.ints("axes")]
    count = max(len(call.ints("begin")), len(call.ints("end")))
    if count > ndim:
        raise call.error(f"bounds of {count} axes", f"at most {ndim}")
    return list(range(count))


def slice_triples(
    begin: tuple[int, ...], end: tuple[int, ...], strides: tuple[int, ...], mode: str
) -> list[tuple[int | None, int | None, int]]:
    """Return begin, end and stride for each axis; None is the border.

    Args:
        mode: The attribute `slice_mode`.
    """
    count = max(len(begin), len(end))
    triples: list[tuple[int | None, int | None, int]] = []
    for i in range(count):
        b = begin[i] if i < len(begin) else None
        e = end[i] if i < len(end) else None
        if mode == "size":
            e = None if e is None or e < 0 else (b or 0) + e
            triples.append((b, e, 1))
        else:
            triples.append(
                (b, e, strides[i] if i < len(strides) else strides[-1] if len(strides) == 1 else 1)
            )
    return triples


def slice_bounds(
    size: int, begin: int | None, end: int | None, stride: int
) -> tuple[int, int, int]:
    """Clip a slice to a dimension, as numpy does.

    Returns:
        begin, end (-1 for "before the first", with a negative stride), number of elements.
    """
    start, stop, step = slice(begin, end, stride).indices(size)
    return start, stop, len(range(start, stop, step))


@builder("slice_like")
def slice_like(data: Expr, shape_like: Expr, axes: Sequence[int] | None = None) -> Call:
    """Slice to the shape of another tensor, along all axes or those given."""
    return make_call("slice_like", data, shape_like, axes=axes)


@type_rule("slice_like")
def infer_slice_like(call: Inputs) -> Type:
    call.count(2)
    data, like = call.tensor(0), call.tensor(1)
    axes = call.attrs["axes"] or range(min(len(data.shape), len(like.shape)))
    shape = list(data.shape)
    for axis in axes:
        at = call.axis(axis, len(shape))
        size, wanted = shape[at], like.shape[call.axis(axis, len(like.shape))]
        if isinstance(size, int) and isinstance(wanted, int) and wanted > size:
            raise call.error(f"{wanted} of {size} elements along axis {at}", f"at most {size}")
        shape[at] = wanted
    return TensorType(shape, data.dtype)


@converter("slice_like")
def convert_slice_like(op: OpCall) -> RelaxExpr:
    result, data = op.result_shape(), op.shape(0)
    axes = [i for i, (a, b) in enumerate(zip(data, result, strict=False)) if a != b]
    if not axes:
        return op.args[0]
    ends = [result[a] for a in axes]
    return relax.op.strided_slice(op.args[0], axes=axes, begin=[0] * len(axes), end=ends)


@builder("strided_set")
def strided_set(data: Expr, v: Expr, begin: Sizes, end: Sizes, strides: Sizes = None) -> Call:
    """Replace the slice from `begin` to `end` by `v`; see `strided_slice`."""
    bounds = [b if isinstance(b, Expr) else const(list(b)) for b in (begin, end, strides or [1])]
    return make_call("strided_set", data, v, *bounds)


shape_arguments("strided_set", 2, 3, 4)  # no shape, but the slice


@type_rule("strided_set")
def infer_strided_set(call: Inputs) -> Type:
    call.count(5)
    return call.tensor(0)


@converter("strided_set")
def convert_strided_set(op: OpCall) -> RelaxExpr:
    if not all(is_const(a) for a in op.args[2:]):
        raise op.unsupported("bounds that are computed", "constants")
    shape, part = op.shape(0), op.shape(1)
    bounds = zip_longest(*(ints(a.value.numpy().reshape(-1)) for a in op.args[2:]))
    ranges = [range(*slice(*b).indices(size)) for b, size in zip(bounds, shape, strict=False)]
    ranges += [range(size) for size in shape[len(ranges) :]]
    if list(part) != [len(r) for r in ranges]:
        raise op.unsupported(f"a part of shape {list(part)}", f"{[len(r) for r in ranges]}")
    return op.te(lambda data, part: _with_part(data, part, ranges), *op.args[:2])


def _with_part(data, part, ranges):  # type: ignore[no-untyped-def]
    """Replace the elements at `ranges` by those of `part`, as a tensor expression."""

    def at(*index):  # type: ignore[no-untyped-def]
        inside, where = [tirx.const(1, "bool")], []
        for i, taken in zip(index, ranges, strict=True):
            # TVM 0.27 divides `constant - i` wrongly, so that negative steps count from below.
            step, count = abs(taken.step), len(taken)
            offset = i - min(taken[0], taken[-1]) if count else i
            inside += [offset >= 0, offset < step * count, tirx.floormod(offset, step) == 0]
            row = tirx.floordiv(offset, step)
            where.append(row if taken.step > 0 else count - 1 - row)
        return tirx.if_then_else(tirx.all(*inside), part(*where), data(*index))

    return te.compute(data.shape, at, name="strided_set")


@builder("sliding_window")
def sliding_window(
    data: Expr, axis: int, window_shape: Sequence[int], strides: Sequence[int]
) -> Call:
    """Gather all windows over the axes from `axis` on.

    Returns:
        (axes before `axis`, number of windows along each axis, window).
    """
    attrs = {"window_shape": tuple(window_shape), "strides": tuple(strides)}
    return make_call("sliding_window", data, axis=axis, **attrs)


@type_rule("sliding_window")
def infer_sliding_window(call: Inputs) -> Type:
    call.count(1)
    data = call.tensor(0)
    axis = call.axis(call.attrs.get_int("axis"), len(data.shape))
    rest = data.shape[axis:]
    window, strides = (call.positive(f, len(rest)) for f in ("window_shape", "strides"))
    counts: list[Dim] = []
    for dim, size, stride in zip(rest, window, strides, strict=True):
        if isinstance(dim, int) and dim < size:
            raise call.error(f"a window of {size} in {dim} elements")
        counts.append((dim - size) // stride + 1 if isinstance(dim, int) else DynamicDim())
    return TensorType((*data.shape[:axis], *counts, *window), data.dtype)


@converter("sliding_window")
def convert_sliding_window(op: OpCall) -> RelaxExpr:
    attrs, axis = op.attrs, op.attrs.get_int("axis") % len(op.type(0).shape)
    window, strides = ints(attrs["window_shape"]), ints(attrs["strides"])
    return op.te(topi.sliding_window, op.args[0], axis, window, strides)
