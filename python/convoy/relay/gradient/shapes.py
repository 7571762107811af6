"""Gradients of operators that move elements: shapes, joins, slices, gathers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from convoy.errors import UnsupportedOp
from convoy.relay import ast
from convoy.relay.ast import Expr
from convoy.relay.gradient.common import call, const, like, size, type_of
from convoy.relay.gradient.registry import rule
from convoy.relay.types import TensorType, TupleType


@rule(
    "reshape", "squeeze", "expand_dims", "nn.batch_flatten", "contrib_reverse_reshape",
    "dyn.reshape", "dyn.squeeze", "dyn.expand_dims", "reshape_like",
)  # fmt: skip
def reshape(node: ast.Call, grad: Expr) -> list[Expr | None]:
    return [call("reshape_like", grad, node.args[0]), *[None] * (len(node.args) - 1)]


@rule("transpose")
def transpose(node: ast.Call, grad: Expr) -> list[Expr | None]:
    assert node.attrs is not None
    axes = node.attrs["axes"]
    if axes is not None:
        rank = len(axes)
        axes = np.argsort([a % rank for a in axes]).tolist()
    return [call("transpose", grad, axes=axes)]


@rule("layout_transform")
def layout_transform(node: ast.Call, grad: Expr) -> list[Expr | None]:
    assert node.attrs is not None
    src, dst = node.attrs["src_layout"], node.attrs["dst_layout"]
    return [call("layout_transform", grad, src_layout=dst, dst_layout=src)]


@rule("broadcast_to", "broadcast_to_like", "dyn.broadcast_to")
def broadcast_to(node: ast.Call, grad: Expr) -> list[Expr | None]:
    return [like(grad, node.args[0]), *[None] * (len(node.args) - 1)]


@rule("collapse_sum_like", "collapse_sum_to")
def collapse_sum(node: ast.Call, grad: Expr) -> list[Expr | None]:
    return [call("broadcast_to_like", grad, node.args[0]), None]


@rule("reverse")
def reverse(node: ast.Call, grad: Expr) -> list[Expr | None]:
    assert node.attrs is not None
    return [call("reverse", grad, axis=node.attrs["axis"])]


@rule("reverse_sequence")
def reverse_sequence(node: ast.Call, grad: Expr) -> list[Expr | None]:
    return [ast.Call(node.op, [grad, node.args[1]], node.attrs), None]


@rule("sequence_mask")
def sequence_mask(node: ast.Call, grad: Expr) -> list[Expr | None]:
    assert node.attrs is not None
    kept = call("sequence_mask", grad, node.args[1], mask_value=0.0, axis=int(node.attrs["axis"]))
    return [kept, None]


@rule("nn.depth_to_space", "nn.space_to_depth")
def depth_and_space(node: ast.Call, grad: Expr) -> list[Expr | None]:
    assert isinstance(node.op, ast.Op) and node.attrs is not None
    if node.attrs.get("mode", "DCR") != "DCR":
        raise UnsupportedOp(f"the gradient of {node.op.name} in mode {node.attrs['mode']}", "DCR")
    back = {"nn.depth_to_space": "nn.space_to_depth", "nn.space_to_depth": "nn.depth_to_space"}
    kept = {"block_size": node.attrs["block_size"], "layout": node.attrs["layout"]}
    return [call(back[node.op.name], grad, **kept)]


# ---- joining and splitting


@rule("concatenate")
def concatenate(node: ast.Call, grad: Expr) -> list[Expr | None]:
    assert node.attrs is not None
    found = node.args[0].checked_type
    assert isinstance(found, TupleType)
    shapes = [f.concrete_shape for f in found.fields if isinstance(f, TensorType)]
    axis = int(node.attrs["axis"]) % len(shapes[0])
    begin, parts = 0, []
    for shape in shapes:
        parts.append(_cut(grad, axis, begin, begin + shape[axis]))
        begin += shape[axis]
    return [ast.Tuple(parts)]


def _cut(expr: Expr, axis: int, begin: int, end: int) -> Expr:
    return call(
        "strided_slice", expr, begin=[begin], end=[end], strides=[1], axes=[axis], slice_mode="end"
    )


@rule("stack")
def stack(node: ast.Call, grad: Expr) -> list[Expr | None]:
    assert node.attrs is not None
    found = node.args[0].checked_type
    assert isinstance(found, TupleType)
    axis = int(node.attrs["axis"])
    axis = axis % len(type_of(node).shape)
    pieces = [_cut(grad, axis, i, i + 1) for i in range(len(found.fields))]
    return [ast.Tuple([call("squeeze", piece, axis=[axis]) for piece in pieces])]


@rule("split")
def split(node: ast.Call, grad: Expr) -> list[Expr | None]:
    assert node.attrs is not None
    found = node.checked_type
    assert isinstance(found, TupleType)
    fields = [ast.TupleGetItem(grad, i) for i in range(len(found.fields))]
    return [call("concatenate", ast.Tuple(fields), axis=int(node.attrs["axis"]))]


@rule("tile")
def tile(node: ast.Call, grad: Expr) -> list[Expr | None]:
    """Give each axis the repetitions as an axis of its own, and sum over these."""
    assert node.attrs is not None
    shape = type_of(node.args[0]).concrete_shape
    reps = [int(r) for r in node.attrs["reps"]]
    rank = max(len(shape), len(reps))
    sizes = [1] * (rank - len(shape)) + list(shape)
    reps = [1] * (rank - len(reps)) + reps
    apart = [n for pair in zip(reps, sizes, strict=True) for n in pair]
    summed = call("sum", call("reshape", grad, newshape=apart), axis=list(range(0, 2 * rank, 2)))
    return [call("reshape_like", summed, node.args[0])]


@rule("repeat")
def repeat(node: ast.Call, grad: Expr) -> list[Expr | None]:
    assert node.attrs is not None
    shape = list(type_of(node.args[0]).concrete_shape)
    axis = int(node.attrs["axis"]) % len(shape)
    apart = [*shape[: axis + 1], int(node.attrs["repeats"]), *shape[axis + 1 :]]
    return [call("sum", call("reshape", grad, newshape=apart), axis=[axis + 1])]


# ---- slices and padding


@rule("nn.pad")
def pad(node: ast.Call, grad: Expr) -> list[Expr | None]:
    assert node.attrs is not None
    if node.attrs["pad_mode"] != "constant":
        mode = node.attrs["pad_mode"]
        raise UnsupportedOp(f"the gradient of nn.pad with pad_mode='{mode}'", "'constant'")
    shape = type_of(node.args[0]).concrete_shape
    before = [int(w[0]) for w in node.attrs["pad_width"]]
    end = [b + n for b, n in zip(before, shape, strict=True)]
    inner = _slice(grad, before, end)
    return [inner, call("subtract", call("sum", grad), call("sum", inner))]


def _slice(expr: Expr, begin: Sequence[int], end: Sequence[int]) -> Expr:
    ones = [1] * len(begin)
    return call(
        "strided_slice", expr, begin=begin, end=end, strides=ones, axes=None, slice_mode="end"
    )


@rule("strided_slice")
def strided_slice(node: ast.Call, grad: Expr) -> list[Expr | None]:
    """Put the elements back to their places, zeros in between."""
    assert node.attrs is not None
    x = node.args[0]
    shape = type_of(x).concrete_shape
    ranges = _ranges(node.attrs, shape)
    taken = [len(r) for r in ranges]
    widths = []
    strides = [abs(r.step) for r in ranges]
    for axis, (r, n) in enumerate(zip(ranges, shape, strict=True)):
        first = min(r[0], r[-1]) if len(r) else 0
        last = max(r[0], r[-1]) if len(r) else -1
        widths.append((first, n - 1 - last))
        if r.step < 0:
            grad = call("reverse", grad, axis=axis)
    if 0 in taken:
        return [call("zeros_like", x)]
    if any(s > 1 for s in strides):
        grad = call("nn.dilate", grad, strides=strides)
    zero = const(0, type_of(x).dtype)
    return [call("nn.pad", grad, zero, pad_width=widths, pad_mode="constant")]


def _ranges(attrs: Any, shape: Sequence[int]) -> list[range]:
    """Return the elements that a slice takes, by axis."""
    axes = attrs["axes"]
    axes = range(len(attrs["begin"])) if axes is None else [a % len(shape) for a in axes]
    found = [range(n) for n in shape]
    strides = list(attrs["strides"] or ())
    for i, axis in enumerate(axes):
        n = shape[axis]
        begin = int(attrs["begin"][i])
        end = attrs["end"][i] if i < len(attrs["end"]) else None
        if attrs["slice_mode"] == "size":
            begin = begin + n if begin < 0 else begin
            length = n - begin if end is None or end < 0 else int(end)
            found[axis] = range(n)[begin : begin + length]
        else:
            step = int(strides[i if len(strides) > 1 else 0]) if strides else 1
            found[axis] = range(n)[slice(begin, None if end is None else int(end), step)]
    return found


@rule("slice_like")
def slice_like(node: ast.Call, grad: Expr) -> list[Expr | None]:
    x = node.args[0]
    shape, taken = type_of(x).concrete_shape, type_of(node).concrete_shape
    widths = [(0, n - t) for n, t in zip(shape, taken, strict=True)]
    zero = const(0, type_of(x).dtype)
    return [call("nn.pad", grad, zero, pad_width=widths, pad_mode="constant"), None]


# ---- gathers


@rule("take")
def take(node: ast.Call, grad: Expr) -> list[Expr | None]:
    """Add the gradient up at the indices, along the first axis."""
    assert node.attrs is not None
    x, indices = node.args
    if int(node.attrs["batch_dims"] or 0):
        raise UnsupportedOp("the gradient of take with batch_dims", "batch_dims=0")
    shape = type_of(x).concrete_shape
    rank = len(type_of(indices).shape)
    axis = node.attrs["axis"]
    if axis is None:
        updates = call("reshape", grad, newshape=[-1])
        zeros = call("reshape", call("zeros_like", x), newshape=[size(type_of(x))])
        order = None
    else:
        axis = int(axis) % len(shape)
        others = [i for i in range(len(shape)) if i != axis]
        order = [axis, *others]
        front = [
            *range(axis, axis + rank),
            *range(axis),
            *range(axis + rank, len(shape) - 1 + rank),
        ]
        moved = call("transpose", grad, axes=front)
        updates = call("reshape", moved, newshape=[-1, *(shape[i] for i in others)])
        zeros = call("transpose", call("zeros_like", x), axes=order)
    limit = size(type_of(x)) if axis is None else shape[axis]
    flat = _in_range(call("reshape", indices, newshape=[1, -1]), limit, node.attrs["mode"], indices)
    added = call("scatter_nd", zeros, flat, updates, mode="add")
    if order is None:
        return [call("reshape_like", added, x), None]
    return [call("transpose", added, axes=np.argsort(order).tolist()), None]


def _in_range(indices: Expr, limit: int, mode: str, like_: Expr) -> Expr:
    """Bring indices into the range, as `take` does."""
    dtype = type_of(like_).dtype
    if mode == "wrap":
        return call("floor_mod", indices, const(limit, dtype))
    if mode == "clip":
        return call("clip", indices, a_min=0.0, a_max=float(limit - 1))
    return indices


@rule("gather")
def gather(node: ast.Call, grad: Expr) -> list[Expr | None]:
    assert node.attrs is not None
    x, indices = node.args
    zeros = call("zeros_like", x)
    axis = int(node.attrs["axis"])
    return [call("scatter_elements", zeros, indices, grad, axis=axis, reduction="add"), None]


@rule("gather_nd")
def gather_nd(node: ast.Call, grad: Expr) -> list[Expr | None]:
    assert node.attrs is not None
    if int(node.attrs["batch_dims"]):
        raise UnsupportedOp("the gradient of gather_nd with batch_dims", "batch_dims=0")
    x, indices = node.args
    return [call("scatter_nd", call("zeros_like", x), indices, grad, mode="add"), None]


@rule("one_hot")
def one_hot(node: ast.Call, grad: Expr) -> list[Expr | None]:
    indices, on, off = node.args
    assert node.attrs is not None
    dtype = type_of(node).dtype
    kept = {"depth": node.attrs["depth"], "axis": node.attrs["axis"], "dtype": "float32"}
    mask = call("one_hot", indices, const(1, "float32"), const(0, "float32"), **kept)
    mask = call("cast", mask, dtype=dtype)
    hot = call("sum", call("multiply", grad, mask))
    cold = call("subtract", call("sum", grad), hot)
    wide = [call("cast", g, dtype=type_of(a).dtype) for g, a in ((hot, on), (cold, off))]
    return [None, *wide]


@rule("arange")
def arange(node: ast.Call, grad: Expr) -> list[Expr | None]:
    """start + i * step: the stop decides the length alone."""
    start, _, step = node.args
    dtype = type_of(node).dtype
    ones = call("ones_like", grad)
    steps = call("cumsum", ones, axis=0, exclusive=True)
    total = call("sum", grad)
    weighted = call("sum", call("multiply", grad, steps))
    return [
        call("cast", total, dtype=type_of(start).dtype) if dtype else total,
        None,
        call("cast", weighted, dtype=type_of(step).dtype),
    ]
