"""Shapes: views, permutations, joining, padding."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from convoy.relay.ast import Expr
from convoy.relay.frontend.common import (
    broadcast_to,
    cast,
    concatenate,
    const,
    dims,
    dtype_of,
    infer_shape,
    rank,
    reshape,
    slice_axis,
    squeeze,
    swap,
    transpose,
    unsqueeze,
)
from convoy.relay.frontend.pytorch.registry import Call, convert, result_dtype
from convoy.relay.frontend.windows import pad
from convoy.relay.op import nn
from convoy.relay.op import tensor as R


def reshaped(call: Call, data: Expr, wanted: Sequence[int]) -> Expr:
    """Reshape to sizes of which one may be -1; an unknown size of the data needs that one."""
    shape = dims(data)
    wanted = list(wanted)
    if -1 in wanted and all(isinstance(d, int) for d in shape):
        known = math.prod(w for w in wanted if w != -1)
        wanted[wanted.index(-1)] = math.prod(shape) // known if known else 0
    return R.reshape(data, wanted) if -1 in wanted else reshape(data, wanted)


@convert("_shape_as_tensor")
def shape_as_tensor(call: Call) -> Expr:
    shape = dims(call["self"])
    if all(isinstance(size, int) for size in shape):
        return const(np.array(shape, "int64"))
    return R.shape_of(call["self"], "int64")


@convert("view", "reshape", "_unsafe_view", "_reshape_copy", "view_copy")
def view(call: Call) -> Expr:
    """Reshape; of `view(dtype)` only the dtype changes."""
    if call.get("dtype") is not None:
        dtype = call.dtype()
        return (
            call["self"] if dtype == dtype_of(call["self"]) else R.reinterpret(call["self"], dtype)
        )
    return reshaped(call, call["self"], call.ints("size" if "size" in call.args else "shape") or [])


@convert("view_as", "reshape_as")
def view_as(call: Call) -> Expr:
    return reshape(call["self"], infer_shape(call["other"]))


@convert("flatten")
def flatten(call: Call) -> Expr:
    data = call["self"]
    shape, ndim = dims(data), rank(data)
    start, end = call.get("start_dim", 0) % max(ndim, 1), call.get("end_dim", -1) % max(ndim, 1)
    if start == 1 and end == ndim - 1 and not isinstance(shape[0], int):
        return nn.batch_flatten(data)
    if not ndim:
        return reshape(data, (1,))
    shape = infer_shape(data)
    return reshape(data, (*shape[:start], math.prod(shape[start : end + 1]), *shape[end + 1 :]))


@convert("unflatten")
def unflatten(call: Call) -> Expr:
    axis, shape = call.axis(), infer_shape(call["self"])
    sizes = call.ints("sizes") or []
    return reshaped(call, call["self"], [*shape[:axis], *sizes, *shape[axis + 1 :]])


@convert("permute", "permute_copy")
def permute(call: Call) -> Expr:
    return transpose(call["self"], call.axes("dims"))


@convert("transpose", "swapaxes", "swapdims", "transpose_copy")
def convert_transpose(call: Call) -> Expr:
    names = ("dim0", "dim1") if "dim0" in call.args else ("axis0", "axis1")
    return swap(call["self"], call.axis(names[0]), call.axis(names[1]))


@convert("t", "mT", "adjoint", "t_copy")
def convert_t(call: Call) -> Expr:
    data = call["self"]
    return swap(data, -1, -2) if rank(data) > 1 else data


@convert("numpy_T")
def numpy_t(call: Call) -> Expr:
    """Reverse all axes."""
    return transpose(call["self"], range(rank(call["self"]))[::-1])


@convert("movedim", "moveaxis")
def movedim(call: Call) -> Expr:
    ndim = rank(call["self"])
    source = [a % ndim for a in call.ints("source") or []]
    target = [a % ndim for a in call.ints("destination") or []]
    rest = iter([a for a in range(ndim) if a not in source])
    places = dict(zip(target, source, strict=True))
    return transpose(call["self"], [places[a] if a in places else next(rest) for a in range(ndim)])


@convert("squeeze", "squeeze_copy")
def convert_squeeze(call: Call) -> Expr:
    data = call["self"]
    axes = call.axes() if call.get("dim") is not None else range(rank(data))
    return squeeze(data, [a for a in axes if dims(data)[a] == 1])


@convert("unsqueeze", "unsqueeze_copy")
def convert_unsqueeze(call: Call) -> Expr:
    return unsqueeze(call["self"], [call.whole(call.get("dim", 0))])


@convert("expand", "broadcast_to", "expand_copy")
def expand(call: Call) -> Expr:
    """Broadcast; -1 keeps a size."""
    wanted = call.ints("size") or []
    shape = (1,) * (len(wanted) - rank(call["self"])) + dims(call["self"])
    sizes = [s if w == -1 else w for w, s in zip(wanted, shape, strict=True)]
    return broadcast_to(call["self"], sizes)


@convert("expand_as")
def expand_as(call: Call) -> Expr:
    return broadcast_to(call["self"], infer_shape(call["other"]))


@convert("repeat", "tile")
def repeat(call: Call) -> Expr:
    return R.tile(
        call["self"], tuple(call.ints("repeats" if "repeats" in call.args else "dims") or ())
    )


@convert("repeat_interleave")
def repeat_interleave(call: Call) -> Expr:
    """Repeat each element a number of times, or each its own constant number."""
    data, repeats = call["self"], call.get("repeats")
    axis = call.get("dim")
    if axis is None:
        data, axis = R.reshape(data, (-1,)), 0
    axis %= rank(data)
    if isinstance(repeats, Expr):
        counts = [call.whole(repeats)] if not rank(repeats) else None
        if counts is None:
            from convoy.relay.frontend.common import value_of

            found = value_of(repeats)
            if found is None:
                raise call.error("counts that are computed", "constants")
            places = np.repeat(np.arange(infer_shape(data)[axis]), found)
            return R.take(data, const(places), axis=axis)
        repeats = counts[0]
    return R.repeat(data, call.whole(repeats), axis=axis)


@convert("cat", "concat", "concatenate", "hstack", "vstack")
def cat(call: Call) -> Expr:
    """Join, in the dtype that PyTorch promotes to; empty vectors are left out."""
    values = [call.tensor(t) for t in call.get("tensors")]
    parts = [p for p in values if dims(p) != (0,)] or values[:1]
    dtype = result_dtype(parts, call)
    axis = call.get("dim", 0)
    if call.short in ("hstack", "vstack"):
        axis = 1 if call.short == "hstack" and rank(parts[0]) > 1 else 0
        if call.short == "vstack" and rank(parts[0]) == 1:
            parts = [unsqueeze(p, [0]) for p in parts]
    return concatenate([cast(p, dtype) for p in parts], axis)


@convert("stack")
def stack(call: Call) -> Expr:
    parts = [call.tensor(t) for t in call.get("tensors")]
    axis = call.get("dim", 0) % (rank(parts[0]) + 1)
    dtype = result_dtype(parts, call)
    return concatenate([unsqueeze(cast(p, dtype), [axis]) for p in parts], axis)


@convert("constant_pad_nd", "pad", "reflection_pad1d", "reflection_pad2d", "reflection_pad3d",
         "replication_pad1d", "replication_pad2d", "replication_pad3d")  # fmt: skip
def convert_pad(call: Call) -> Expr:
    """Pad; widths are given for the last axis first."""
    widths = call.ints("pad" if "pad" in call.args else "padding") or []
    mode = call.get("mode", "constant")
    if "reflection" in call.short:
        mode = "reflect"
    elif "replication" in call.short:
        mode = "replicate"
    ndim = rank(call["self"])
    before, after = [0] * ndim, [0] * ndim
    for place in range(len(widths) // 2):
        before[ndim - 1 - place], after[ndim - 1 - place] = widths[2 * place : 2 * place + 2]
    if mode == "circular":
        return _circular(call["self"], before, after)
    if mode not in ("constant", "reflect", "replicate"):
        raise call.error(f"mode '{mode}'", "constant, reflect, replicate or circular")
    kind = {"replicate": "edge"}.get(mode, mode)
    return pad(call["self"], before, after, call.get("value", 0) or 0, kind)


def _circular(data: Expr, before: Sequence[int], after: Sequence[int]) -> Expr:
    for axis, size in enumerate(infer_shape(data)):
        if before[axis] or after[axis]:
            places = np.arange(-before[axis], size + after[axis]) % size
            data = R.take(data, const(places.astype("int64")), axis=axis)
    return data


@convert("flip")
def flip(call: Call) -> Expr:
    data = call["self"]
    for axis in call.axes("dims"):
        data = R.reverse(data, axis=axis)
    return data


@convert("roll")
def roll(call: Call) -> Expr:
    """Shift circularly: two slices, joined the other way round."""
    data, shifts, axes = call["self"], call.ints("shifts") or [], call.ints("dims") or []
    shape = infer_shape(data)
    if not axes:
        flat = R.reshape(data, (-1,))
        return reshape(_rolled(flat, 0, shifts[0], math.prod(shape)), shape)
    for shift, axis in zip(shifts, axes, strict=True):
        data = _rolled(data, axis % len(shape), shift, shape[axis % len(shape)])
    return data


def _rolled(data: Expr, axis: int, shift: int, size: int) -> Expr:
    shift %= size
    if not shift:
        return data
    parts = [slice_axis(data, axis, size - shift, size), slice_axis(data, axis, 0, size - shift)]
    return concatenate(parts, axis)


@convert("pixel_shuffle")
def pixel_shuffle(call: Call) -> Expr:
    return nn.depth_to_space(call["self"], call.get("upscale_factor"), mode="CDR")


@convert("pixel_unshuffle")
def pixel_unshuffle(call: Call) -> Expr:
    data, r = call["self"], call.get("downscale_factor")
    n, c, h, w = infer_shape(data)
    parts = reshape(data, (n, c, h // r, r, w // r, r))
    return reshape(transpose(parts, (0, 1, 3, 5, 2, 4)), (n, c * r * r, h // r, w // r))


@convert("channel_shuffle", "native_channel_shuffle")
def channel_shuffle(call: Call) -> Expr:
    data, groups = call["self"], call.get("groups")
    n, c, *rest = infer_shape(data)
    return reshape(swap(reshape(data, (n, groups, c // groups, *rest)), 1, 2), (n, c, *rest))


@convert("unfold")
def unfold(call: Call) -> Expr:
    """Take windows along an axis, which become the last one."""
    axis, size, step = call.axis("dimension"), call.get("size"), call.get("step")
    total = infer_shape(call["self"])[axis]
    places = np.arange(0, total - size + 1, step)[:, None] + np.arange(size)
    windows = R.take(call["self"], const(places.astype("int64")), axis=axis)
    ndim = rank(windows)
    order = [a for a in range(ndim) if a != axis + 1] + [axis + 1]
    return transpose(windows, order)


@convert("im2col")
def im2col(call: Call) -> Expr:
    """Take the blocks of an image as columns."""
    kernel, dilation = call.ints("kernel_size") or [], call.ints("dilation") or [1, 1]
    padding, strides = call.ints("padding") or [0, 0], call.ints("stride") or [1, 1]
    data = pad(call["self"], [0, 0, *padding], [0, 0, *padding])
    n, c, *sizes = infer_shape(data)
    for place, axis in enumerate((2, 4)):
        extent = (kernel[place] - 1) * dilation[place] + 1
        starts = np.arange(0, sizes[place] - extent + 1, strides[place])
        places = np.arange(kernel[place])[:, None] * dilation[place] + starts
        data = R.take(data, const(places.astype("int64")), axis=axis)
    # (n, c, kernel_h, out_h, kernel_w, out_w)
    shape = infer_shape(data)
    data = transpose(data, (0, 1, 2, 4, 3, 5))
    return reshape(data, (n, c * shape[2] * shape[4], shape[3] * shape[5]))


@convert("meshgrid")
def meshgrid(call: Call) -> Any:
    return list(
        R.meshgrid([call.tensor(t) for t in call.get("tensors")], call.get("indexing", "ij"))
    )


@convert(
    "contiguous", "clone", "detach", "alias", "lift_fresh", "lift_fresh_copy", "detach_copy",
    "requires_grad", "cpu", "cuda", "resolve_conj", "resolve_neg", "alias_copy", "data",
    "_assert_tensor_metadata", "pin_memory", "lift", "real",
)  # fmt: skip
def same(call: Call) -> Any:
    return next(iter(call.args.values()))
