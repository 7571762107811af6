"""Slicing, gathering and scattering."""

from __future__ import annotations

from convoy.relay.ast import Constant
from convoy.relay.infer.rules import Inputs, rule, same_shape
from convoy.relay.types import Any, Dim, TensorType, Type


def slice_bounds(
    size: int, begin: int | None, end: int | None, stride: int
) -> tuple[int, int, int]:
    """Begin, end and stride of a slice, cut to the dimension as numpy does.

    Returns:
        begin, end (-1 for "before the first", with a negative stride) and the number of elements.
    """
    start, stop, step = slice(begin, end, stride).indices(size)
    return start, stop, len(range(start, stop, step))


@rule("strided_slice")
def strided_slice(call: Inputs) -> Type:
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
        shape[axis] = slice_bounds(size, b, e, s)[2] if isinstance(size, int) else Any()
    return TensorType(shape, data.dtype)


def slice_axes(call: Inputs, ndim: int) -> list[int]:
    """The axes that a strided_slice cuts."""
    if call.attrs["axes"]:
        return [call.axis(a, ndim) for a in call.ints("axes")]
    count = max(len(call.ints("begin")), len(call.ints("end")))
    if count > ndim:
        raise call.error(f"bounds of {count} axes", f"at most {ndim}")
    return list(range(count))


def slice_triples(
    begin: tuple[int, ...], end: tuple[int, ...], strides: tuple[int, ...], mode: str
) -> list[tuple[int | None, int | None, int]]:
    """Begin, end and stride per axis; None means from, or to, the border.

    In mode "size" `end` is a number of elements, -1 for all that remain.
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


@rule("slice_like")
def slice_like(call: Inputs) -> Type:
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


@rule("take")
def take(call: Inputs) -> Type:
    call.count(2)
    data, indices, attrs = call.tensor(0), call.tensor(1), call.attrs
    if attrs["mode"] not in ("clip", "wrap", "fast"):
        raise call.error(f"mode='{attrs['mode']}'", "'clip', 'wrap' or 'fast'")
    if attrs["axis"] is None:
        return TensorType(indices.shape, data.dtype)
    axis = call.axis(attrs["axis"], len(data.shape))
    batch = int(attrs["batch_dims"] or 0)
    batch = batch + len(indices.shape) if batch < 0 else batch
    if not 0 <= batch <= min(axis, len(indices.shape)):
        raise call.error(f"batch_dims={attrs['batch_dims']}", "at most axis")
    shape = (*data.shape[:axis], *indices.shape[batch:], *data.shape[axis + 1 :])
    return TensorType(shape, data.dtype)


@rule("gather")
def gather(call: Inputs) -> Type:
    call.count(2)
    data, indices = call.tensor(0), call.tensor(1, len(call.tensor(0).shape))
    call.axis(call.attrs.get_int("axis"), len(data.shape))
    return TensorType(indices.shape, data.dtype)


@rule("gather_nd")
def gather_nd(call: Inputs) -> Type:
    """Indices are (m, ...): m coordinates per element, as the first axis."""
    call.count(2)
    data, indices = call.tensor(0), call.tensor(1)
    batch = call.attrs.get_int("batch_dims")
    if not indices.shape or not isinstance(indices.shape[0], int):
        raise call.error(f"indices {indices}", "a known number of coordinates in front")
    used = batch + indices.shape[0]
    if used > len(data.shape):
        raise call.error(f"{indices.shape[0]} coordinates of {data}", "at most its dimensions")
    return TensorType((*indices.shape[1:], *data.shape[used:]), data.dtype)


@rule("scatter_elements", "scatter_nd")
def scatter(call: Inputs) -> Type:
    call.count(3)
    data = call.tensor(0)
    if call.tensor(2).dtype != data.dtype:
        raise call.error(f"updates {call.tensor(2)} into {data}", "one dtype")
    if call.name == "scatter_elements":
        if not same_shape(call.tensor(1).shape, call.tensor(2).shape):
            raise call.error(f"{call.tensor(1)} and {call.tensor(2)}", "indices and updates alike")
        call.axis(call.attrs.get_int("axis"), len(data.shape))
    return data


@rule("one_hot")
def one_hot(call: Inputs) -> Type:
    call.count(3)
    indices, attrs = call.tensor(0), call.attrs
    if attrs.get_int("depth") <= 0:
        raise call.error(f"depth={attrs['depth']}", "a value over zero")
    axis = call.axis(attrs.get_int("axis"), len(indices.shape) + 1)
    shape: tuple[Dim, ...] = (*indices.shape[:axis], attrs.get_int("depth"), *indices.shape[axis:])
    return TensorType(shape, attrs["dtype"])


@rule("arange")
def arange(call: Inputs) -> Type:
    """Bounds that are constants give the length; others leave it to run time."""
    call.count(3)
    dtype = call.attrs["dtype"]
    bounds = [
        a.value.item() for a in call.call.args if isinstance(a, Constant) and a.value.size == 1
    ]
    if len(bounds) < 3:
        return TensorType((Any(),), dtype)
    start, stop, step = bounds
    if step == 0:
        raise call.error("a step of 0", "another step")
    steps = (stop - start) / step
    if not abs(steps) < 2**40:
        raise call.error(f"{steps} elements", "fewer")
    return TensorType((max(0, int(-(-(stop - start) // step))),), dtype)


@rule("sequence_mask")
def sequence_mask(call: Inputs) -> Type:
    call.count(2)
    return call.tensor(0, None)


@rule("reverse_sequence")
def reverse_sequence(call: Inputs) -> Type:
    call.count(2)
    data = call.tensor(0)
    for field in ("seq_axis", "batch_axis"):
        call.axis(int(call.attrs[field]), len(data.shape))
    return data


@rule("trilu", "matrix_set_diag")
def of_data(call: Inputs) -> Type:
    call.count(2)
    return call.tensor(0)
