"""Shapes: reshaping, permuting, broadcasting, padding."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from convoy.relay.ast import Expr
from convoy.relay.frontend.common import (
    broadcast_shape,
    const,
    dims,
    reshape,
    squeeze,
    transpose,
    unsqueeze,
    value_of,
)
from convoy.relay.frontend.onnx.registry import Node, convert
from convoy.relay.frontend.windows import pad
from convoy.relay.op import nn
from convoy.relay.op import tensor as R
from convoy.relay.types import Any as AnyDim


@convert("Reshape")
def convert_reshape(node: Node) -> Expr:
    """Reshape; 0 keeps the size in its place unless `allowzero`."""
    wanted = node.ints_of("shape", 1)
    assert wanted is not None
    shape = dims(node[0])
    if not node.attr("allowzero", 0):
        wanted = [
            shape[i] if w == 0 and i < len(shape) and isinstance(shape[i], int) else w
            for i, w in enumerate(wanted)
        ]
        if 0 in wanted and not any(d == 0 for d in shape):
            return R.reshape(node[0], wanted)  # Relay's 0 copies the unknown size
    if -1 in wanted and all(isinstance(d, int) for d in shape):
        known = math.prod(w for w in wanted if w != -1)
        if known:
            wanted[wanted.index(-1)] = math.prod(shape) // known
    if -1 in wanted:
        return R.reshape(node[0], wanted)
    return reshape(node[0], wanted)


@convert("Transpose")
def convert_transpose(node: Node) -> Expr:
    return transpose(node[0], node.attr("perm") or tuple(reversed(range(node.rank()))))


@convert("Flatten")
def flatten(node: Node) -> Expr:
    axis = node.attr("axis", 1)
    axis = axis + node.rank() if axis < 0 else axis
    shape = dims(node[0])
    if axis == 1 and not all(isinstance(d, int) for d in shape):
        return nn.batch_flatten(node[0])
    shape = node.shape()
    return reshape(node[0], (math.prod(shape[:axis]), math.prod(shape[axis:])))


@convert("Squeeze")
def convert_squeeze(node: Node) -> Expr:
    axes = node.ints_of("axes", 1)
    if axes is None:
        axes = [i for i, d in enumerate(dims(node[0])) if d == 1]
    return squeeze(node[0], [node.axis(a) for a in axes])


@convert("Unsqueeze")
def convert_unsqueeze(node: Node) -> Expr:
    axes = node.ints_of("axes", 1)
    assert axes is not None
    return unsqueeze(node[0], axes)


@convert("Expand")
def expand(node: Node) -> Expr:
    """Broadcast with a shape, in which 1 keeps a size."""
    shape = broadcast_shape(dims(node[0]), node.ints(1))
    return node[0] if shape == dims(node[0]) else R.broadcast_to(node[0], shape)


@convert("Shape")
def shape_of(node: Node) -> Expr:
    """Return the shape, or its part from `start` to `end`; a constant where sizes are known."""
    shape = dims(node[0])
    part = slice(node.attr("start", 0), node.attr("end"))
    if all(isinstance(d, int) for d in shape[part]):
        return const(np.asarray(shape[part], "int64").reshape(-1))
    begin, end, _ = part.indices(len(shape))
    return R.strided_slice(R.shape_of(node[0], dtype="int64"), begin=[begin], end=[end])


@convert("Size")
def size(node: Node) -> Expr:
    shape = dims(node[0])
    if any(isinstance(d, AnyDim) for d in shape):
        return R.ndarray_size(node[0], dtype="int64")
    return const(np.asarray(math.prod(shape), "int64"))


@convert("Tile")
def tile(node: Node) -> Expr:
    return R.tile(node[0], tuple(node.ints(1)))


_PAD_MODES = {"constant": "constant", "edge": "edge", "reflect": "reflect"}


@convert("Pad")
def convert_pad(node: Node) -> Expr:
    """Pad or crop; widths, value and axes are inputs since opset 11."""
    mode = node.attr("mode", "constant")
    widths = node.ints_of("pads" if "pads" in node.attrs else "paddings", 1)
    assert widths is not None
    axes = [node.axis(a) for a in node.ints(3)] if node.get(3) is not None else None
    axes = list(range(node.rank())) if axes is None else axes
    before, after = [0] * node.rank(), [0] * node.rank()
    for place, axis in enumerate(axes):
        before[axis], after[axis] = widths[place], widths[place + len(axes)]
    value: Any = node.attr("value", 0.0)
    if node.get(2) is not None:
        found = value_of(node[2])
        if found is None:
            return _pad_with(node, before, after)
        value = found.reshape(-1)[0].item() if found.size else 0
    if mode == "wrap":
        return _wrap(node, before, after)
    if mode not in _PAD_MODES:
        raise node.error(f"mode '{mode}'", ", ".join((*_PAD_MODES, "wrap")))
    return pad(node[0], before, after, value, _PAD_MODES[mode])


def _pad_with(node: Node, before: list[int], after: list[int]) -> Expr:
    """Pad with a value that is computed."""
    ones = pad(R.ones_like(node[0]), before, after)
    padded = pad(node[0], before, after)
    value = reshape(node[2], ())
    return R.where(R.equal(ones, R.zeros_like(ones)), value, padded)


def _wrap(node: Node, before: list[int], after: list[int]) -> Expr:
    """Pad with what comes at the other end, by an index along each axis."""
    data = node[0]
    for axis, size in enumerate(node.shape()):
        if before[axis] or after[axis]:
            places = np.arange(-before[axis], size + after[axis]) % size
            data = R.take(data, const(places.astype("int64")), axis=axis)
    return data


@convert("DepthToSpace")
def depth_to_space(node: Node) -> Expr:
    mode = {"DCR": "DCR", "CRD": "CDR"}[node.attr("mode", "DCR")]  # one order, two spellings
    return nn.depth_to_space(node[0], node.attrs["blocksize"], mode=mode)


@convert("SpaceToDepth")
def space_to_depth(node: Node) -> Expr:
    size = node.attrs["blocksize"]
    if node.attr("mode", "DCR") == "DCR":
        return nn.space_to_depth(node[0], size)
    n, c, h, w = node.shape()
    blocks = reshape(node[0], (n, c, h // size, size, w // size, size))
    moved = transpose(blocks, (0, 1, 3, 5, 2, 4))
    return reshape(moved, (n, c * size * size, h // size, w // size))
