"""Operators that rearrange elements or make new tensors."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from convoy.relay.ast import Constant
from convoy.relay.infer.rules import Inputs, broadcast, is_int, rule, same_dim, same_shape
from convoy.relay.types import Any, Dim, TensorType, TupleType, Type

# More results than any program has; keeps a mutated number from filling the memory.
_MAX_PARTS = 65536


def total_size(shape: Sequence[Dim]) -> Dim:
    """The number of elements."""
    total: Dim = 1
    for size in shape:
        if not isinstance(size, int) or not isinstance(total, int):
            return Any()
        total = total * size
    return total


def reshaped(shape: Sequence[Dim], newshape: Sequence[int], allowzero: bool) -> tuple[Dim, ...]:
    """The shape that `newshape` describes.

    0 copies a dimension, -1 is inferred, -2 copies all that remain, -3 merges two, and -4 splits
    one into the two values that follow, of which one may be -1.

    Raises:
        ValueError: the values do not fit the shape; the message says how.
    """
    out: list[Dim] = []
    at, i, unknown = 0, 0, -1

    def take() -> Dim:
        nonlocal at
        if at >= len(shape):
            raise ValueError("it copies more dimensions than there are")
        at += 1
        return shape[at - 1]

    while i < len(newshape):
        value = newshape[i]
        if value > 0 or (value == 0 and allowzero):
            out.append(value)
            at += 1
        elif value == 0:
            out.append(take())
        elif value == -1:
            if unknown >= 0:
                raise ValueError("-1 may stand once")
            unknown = len(out)
            out.append(1)
            at += 1
        elif value == -2:
            out.extend(shape[at:])
            at = len(shape)
        elif value == -3:
            first, second = take(), take()
            both = is_int(first, second)
            out.append(first * second if both else Any())  # type: ignore[operator]
        elif value == -4:
            out.extend(_split(take(), newshape[i + 1 : i + 3]))
            i += 2
        else:
            raise ValueError(f"{value} has no meaning")
        i += 1
    return _complete(shape, out, unknown)


def _split(size: Dim, parts: Sequence[int]) -> list[Dim]:
    if len(parts) != 2 or min(parts) < -1 or 0 in parts or max(parts) < 1:
        raise ValueError("-4 is followed by two sizes, of which one may be -1")
    if not isinstance(size, int):
        return [Any() if p == -1 else p for p in parts]
    known = parts[1] if parts[0] == -1 else parts[0]
    other = size // known
    if size % known or parts[0 if known == parts[1] else 1] not in (-1, other):
        raise ValueError(f"{size} does not split into {list(parts)}")
    return [other if p == -1 else p for p in parts]


def _complete(shape: Sequence[Dim], out: list[Dim], unknown: int) -> tuple[Dim, ...]:
    """Fill in the dimension that is inferred, and check the number of elements."""
    total, rest = total_size(shape), total_size(out)
    if not isinstance(total, int) or not isinstance(rest, int):
        if unknown >= 0:
            out[unknown] = Any()
        return tuple(out)
    if unknown >= 0:
        if rest == 0 or total % rest:
            raise ValueError(f"{total} elements do not divide by {rest}")
        out[unknown] = total // rest
    elif total != rest:
        raise ValueError(f"{total} elements do not fill {rest}")
    return tuple(out)


@rule("reshape")
def reshape(call: Inputs) -> Type:
    call.count(1)
    data = call.tensor(0)
    values = call.ints("newshape")
    try:
        return TensorType(reshaped(data.shape, values, call.attrs["allowzero"]), data.dtype)
    except ValueError as bad:
        raise call.error(f"newshape={list(values)} of {data}: {bad}") from None


@rule("contrib_reverse_reshape")
def reverse_reshape(call: Inputs) -> Type:
    """As reshape, with the special values read from the right."""
    call.count(1)
    data = call.tensor(0)
    values = call.ints("newshape")
    try:
        shape = reshaped(data.shape[::-1], values[::-1], False)
    except ValueError as bad:
        raise call.error(f"newshape={list(values)} of {data}: {bad}") from None
    return TensorType(shape[::-1], data.dtype)


@rule("reshape_like")
def reshape_like(call: Inputs) -> Type:
    call.count(2)
    data, like = call.tensor(0), call.tensor(1)
    left = _range(call, "lhs", len(data.shape))
    right = _range(call, "rhs", len(like.shape))
    shape = (*data.shape[: left[0]], *like.shape[slice(*right)], *data.shape[left[1] :])
    if not same_dim(total_size(data.shape), total_size(shape)):
        raise call.error(f"{data} as {TensorType(shape, data.dtype)}", "as many elements")
    return TensorType(shape, data.dtype)


def _range(call: Inputs, side: str, ndim: int) -> tuple[int, int]:
    begin, end = call.attrs.get_int(f"{side}_begin"), call.attrs[f"{side}_end"]
    end = ndim if end is None else int(end)
    return (begin + ndim if begin < 0 else begin), (end + ndim if end < 0 else end)


@rule("squeeze")
def squeeze(call: Inputs) -> Type:
    call.count(1)
    data = call.tensor(0)
    given = call.attrs["axis"]
    if given is None:
        return TensorType([d for d in data.shape if d != 1], data.dtype)
    axes = [call.axis(a, len(data.shape)) for a in call.ints("axis")]
    for axis in axes:
        if not same_dim(data.shape[axis], 1):
            raise call.error(f"axis {axis} of {data}", "an axis of size 1")
    return TensorType([d for i, d in enumerate(data.shape) if i not in axes], data.dtype)


@rule("expand_dims")
def expand_dims(call: Inputs) -> Type:
    call.count(1)
    data = call.tensor(0)
    axis, count = call.attrs.get_int("axis"), call.attrs.get_int("num_newaxis")
    ndim = len(data.shape)
    if not -ndim - 1 <= axis <= ndim or not 0 <= count <= 64:
        raise call.error(f"axis={axis}, num_newaxis={count} of {data}")
    at = axis + ndim + 1 if axis < 0 else axis
    return TensorType((*data.shape[:at], *(1,) * count, *data.shape[at:]), data.dtype)


@rule("transpose")
def transpose(call: Inputs) -> Type:
    call.count(1)
    data = call.tensor(0)
    ndim = len(data.shape)
    if not call.attrs["axes"]:
        return TensorType(data.shape[::-1], data.dtype)
    axes = [call.axis(a, ndim) for a in call.ints("axes", ndim)]
    if len(set(axes)) != ndim:
        raise call.error(f"axes={axes}", "each axis once")
    return TensorType([data.shape[a] for a in axes], data.dtype)


@rule("reverse")
def reverse(call: Inputs) -> Type:
    call.count(1)
    data = call.tensor(0)
    call.axis(call.attrs.get_int("axis"), len(data.shape))
    return data


@rule("layout_transform")
def layout_transform(call: Inputs) -> Type:
    call.count(1)
    data = call.tensor(0)
    source, target = call.attrs["src_layout"], call.attrs["dst_layout"]
    src = call.layout(source, "")
    dst = call.layout(target, "")
    if len(src.parts) != len(data.shape):
        raise call.error(f"{data} in layout {source}", f"{len(src.parts)} dimensions")
    if sorted(src.axes) != sorted(dst.axes):
        raise call.error(f"{source} to {target}", "the same axes")
    return TensorType(dst.from_axes(src.to_axes(data.shape, src.axes), src.axes), data.dtype)


def _joined(call: Inputs) -> list[TensorType]:
    call.count(1)
    fields = call.tensors(0)
    if not fields:
        raise call.error("an empty tuple", "at least one tensor")
    if any(f.dtype != fields[0].dtype for f in fields):
        raise call.error(f"tensors of dtypes {', '.join(f.dtype for f in fields)}", "one dtype")
    return fields


@rule("concatenate")
def concatenate(call: Inputs) -> Type:
    fields = _joined(call)
    first = fields[0]
    axis = call.axis(call.attrs.get_int("axis"), len(first.shape))
    total: Dim = 0
    for field in fields:
        rest = field.shape[:axis] + field.shape[axis + 1 :]
        if not same_shape(rest, first.shape[:axis] + first.shape[axis + 1 :]):
            raise call.error(
                f"{field} beside {first}", f"shapes that differ along axis {axis} only"
            )
        size = field.shape[axis]
        total = total + size if is_int(total, size) else Any()  # type: ignore[operator]
    return TensorType((*first.shape[:axis], total, *first.shape[axis + 1 :]), first.dtype)


@rule("stack")
def stack(call: Inputs) -> Type:
    fields = _joined(call)
    first = fields[0]
    if any(not same_shape(f.shape, first.shape) for f in fields):
        raise call.error(f"tensors {', '.join(map(str, fields[:4]))}", "one shape")
    axis = call.axis(call.attrs.get_int("axis"), len(first.shape) + 1)
    return TensorType((*first.shape[:axis], len(fields), *first.shape[axis:]), first.dtype)


def split_points(size: Dim, parts: int | Sequence[int]) -> list[Dim]:
    """The sizes of the parts along the axis.

    Raises:
        ValueError: parts that do not fit.
    """
    if isinstance(parts, int):
        if not 0 < parts <= _MAX_PARTS:
            raise ValueError(f"{parts} parts")
        if isinstance(size, int) and size % parts:
            raise ValueError(f"{size} elements in {parts} equal parts")
        return [size // parts if isinstance(size, int) else Any()] * parts
    edges = [0, *parts]
    if any(a > b for a, b in pairwise(edges)):
        raise ValueError(f"indices {list(parts)}, which do not ascend")
    if isinstance(size, int) and edges[-1] > size:
        raise ValueError(f"index {edges[-1]} of {size} elements")
    last = size - edges[-1] if isinstance(size, int) else Any()
    return [*(b - a for a, b in pairwise(edges)), last]


@rule("split")
def split(call: Inputs) -> Type:
    call.count(1)
    data = call.tensor(0)
    axis = call.axis(call.attrs.get_int("axis"), len(data.shape))
    try:
        sizes = split_points(data.shape[axis], call.attrs["indices_or_sections"])
    except ValueError as bad:
        raise call.error(f"{bad}, of {data} along axis {axis}") from None
    shapes = [(*data.shape[:axis], s, *data.shape[axis + 1 :]) for s in sizes]
    return TupleType([TensorType(s, data.dtype) for s in shapes])


@rule("broadcast_to", "full", "zeros", "ones")
def of_shape(call: Inputs) -> Type:
    """A tensor of the attribute's shape, from nothing, a scalar or a tensor that broadcasts."""
    call.count(0 if call.name in ("zeros", "ones") else 1)
    shape = call.ints("shape")
    if any(s < 0 for s in shape):
        raise call.error(f"shape={list(shape)}", "sizes of at least 0")
    dtype = call.attrs["dtype"]
    if call.name in ("zeros", "ones"):
        return TensorType(shape, dtype or "float32")
    data = call.tensor(0)
    if call.name == "full":
        if data.shape:
            raise call.error(f"a fill value of type {data}", "a scalar")
        return TensorType(shape, dtype or data.dtype)
    return TensorType(_fits(call, data, shape), data.dtype)


def _fits(call: Inputs, data: TensorType, shape: Sequence[Dim]) -> Sequence[Dim]:
    result = broadcast(data.shape, shape)
    if result is None or not same_shape(result, shape):
        raise call.error(
            f"{data} to {TensorType(shape, data.dtype)}", "a shape that it broadcasts to"
        )
    return shape


@rule("full_like")
def full_like(call: Inputs) -> Type:
    call.count(2)
    if call.tensor(1).shape:
        raise call.error(f"a fill value of type {call.tensor(1)}", "a scalar")
    return call.tensor(0)


@rule("broadcast_to_like")
def broadcast_to_like(call: Inputs) -> Type:
    call.count(2)
    data, like = call.tensor(0), call.tensor(1)
    return TensorType(_fits(call, data, like.shape), data.dtype)


@rule("collapse_sum_like")
def collapse_sum_like(call: Inputs) -> Type:
    """The inverse of broadcasting: sums `data` down to the other's shape."""
    call.count(2)
    data, like = call.tensor(0), call.tensor(1)
    _fits(call, like, data.shape)
    return TensorType(like.shape, data.dtype)


@rule("collapse_sum_to")
def collapse_sum_to(call: Inputs) -> Type:
    call.count(2)
    shape = constant_ints(call, 1)
    data = call.tensor(0)
    _fits(call, TensorType(shape, data.dtype), data.shape)
    return TensorType(shape, data.dtype)


def constant_ints(call: Inputs, index: int) -> tuple[int, ...]:
    """The numbers of an argument that must be a constant of integers."""
    value = call.call.args[index]
    if not isinstance(value, Constant) or value.value.dtype.kind not in "iu":
        raise call.error(f"argument {index}, which is no constant", "a constant of integers")
    return tuple(int(v) for v in value.value.reshape(-1))


@rule("tile")
def tile(call: Inputs) -> Type:
    call.count(1)
    data, reps = call.tensor(0), call.ints("reps")
    if any(r <= 0 for r in reps):
        raise call.error(f"reps={list(reps)}", "values over zero")
    n = max(len(reps), len(data.shape))
    shape = (1,) * (n - len(data.shape)) + data.shape
    times = (1,) * (n - len(reps)) + reps
    out = [d * r if isinstance(d, int) else Any() for d, r in zip(shape, times, strict=False)]
    return TensorType(out, data.dtype)


@rule("repeat")
def repeat(call: Inputs) -> Type:
    call.count(1)
    data, times = call.tensor(0), call.attrs["repeats"]
    if times is None or times < 1:
        raise call.error(f"repeats={times}", "at least 1")
    if call.attrs["axis"] is None:
        size = total_size(data.shape)
        return TensorType((size * times if isinstance(size, int) else Any(),), data.dtype)
    axis = call.axis(call.attrs["axis"], len(data.shape))
    shape = list(data.shape)
    size = shape[axis]
    shape[axis] = size * times if isinstance(size, int) else Any()
    return TensorType(shape, data.dtype)


@rule("meshgrid")
def meshgrid(call: Inputs) -> Type:
    fields = _joined(call)
    sizes = [f.shape[0] if f.shape else 1 for f in fields]
    if any(len(f.shape) > 1 for f in fields):
        raise call.error("tensors of several dimensions", "vectors")
    if call.attrs["indexing"] == "xy" and len(sizes) > 1:
        sizes[:2] = sizes[1::-1]
    return TupleType([TensorType(sizes, fields[0].dtype)] * len(fields))
