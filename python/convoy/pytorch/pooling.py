"""Pooling and patches as PyTorch has them."""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import relax
from tvm.relax import op

from ..graph.expr import shape_of


def each(value: Any, rank: int) -> list[int]:
    """One integer for each of ``rank`` axes."""
    values = [value] if isinstance(value, int) else list(value)
    return [int(v) for v in (values * rank if len(values) == 1 else values)]


def _given(node: Any, values: list[Any], names: tuple[str, ...]) -> dict[str, Any]:
    return dict(zip(names, values, strict=False)) | node.kwargs


def _indices_used(node: Any) -> bool:
    return any(u.target is not operator.getitem or u.args[1] != 0 for u in node.users)


def _batched(convert: Callable[[Any, Any, Any], relax.Expr], rank: int) -> Any:
    """A converter of (node, x, emit) for inputs with and without a batch."""

    def converter(node: Any, importer: Any) -> relax.Expr:
        x, emit = importer.env[node.args[0]], importer.block_builder.emit
        if len(x.ty.shape) == rank + 2:
            return convert(node, x, emit)
        result = convert(node, emit(op.expand_dims(x, 0)), emit)
        if isinstance(result, relax.Tuple):
            return relax.Tuple([emit(op.squeeze(field, [0])) for field in result.fields])
        return emit(op.squeeze(result, [0]))

    return converter


def _max_pool(rank: int) -> Callable[[Any, Any, Any], relax.Expr]:
    """(input, window, stride, padding, dilation, ceil mode); the stride is the window unless
    given."""

    def convert(node: Any, x: Any, emit: Any) -> relax.Expr:
        window = each(node.args[1], rank)
        names = ("stride", "padding", "dilation", "ceil_mode")
        given = _given(node, list(node.args[2:]), names)
        strides = each(given.get("stride") or window, rank)
        padding = each(given.get("padding", 0), rank)
        dilation = each(given.get("dilation", 1), rank)
        if _indices_used(node):
            counts = [int(size) for size in node.meta["val"][0].shape[-rank:]]
            windows = _Windows(window, strides, padding, dilation, counts)
            return windows.largest(x, emit)
        pool = op.nn.max_pool3d if rank == 3 else op.nn.max_pool2d
        y = pool(
            x, pool_size=window, strides=strides, padding=padding, dilation=dilation,
            ceil_mode=bool(given.get("ceil_mode", False)),
        )  # fmt: skip
        return relax.Tuple([emit(y)])

    return convert


@dataclass(frozen=True)
class _Windows:
    """Windows over the spatial axes of (n, c, ...); one element of each is a tap.

    Attributes:
        counts: Windows along each axis.
    """

    window: Sequence[int]
    strides: Sequence[int]
    padding: Sequence[int]
    dilation: Sequence[int]
    counts: Sequence[int]

    def taps(self, x: relax.Expr, emit: Any, fill: float) -> relax.Expr:
        """(n, c, taps, ...), with a fill around ``x``."""
        axes, sizes = range(len(self.window)), list(shape_of(x)[2:])
        spans = [(self.counts[i] - 1) * self.strides[i] + 1 for i in axes]
        reach = [(self.window[i] - 1) * self.dilation[i] for i in axes]
        behind = [max(0, spans[i] + reach[i] - sizes[i] - self.padding[i]) for i in axes]
        around = [0, 0, 0, 0, *(n for i in axes for n in (self.padding[i], behind[i]))]
        if any(around):
            x = emit(op.nn.pad(x, around, pad_value=fill))
        taps = []
        for places in itertools.product(*map(range, self.window)):
            first = [place * self.dilation[i] for i, place in enumerate(places)]
            last = [first[i] + spans[i] for i in axes]
            tap = op.strided_slice(x, [i + 2 for i in axes], first, last, list(self.strides))
            taps.append(emit(op.expand_dims(emit(tap), 2)))
        return emit(op.concat(taps, axis=2))

    def largest(self, x: relax.Expr, emit: Any) -> relax.Expr:
        """The largest element of each window and its index in the flattened image."""
        dtype, sizes = str(x.ty.dtype), list(shape_of(x)[2:])
        floats = "float" in dtype
        taps = self.taps(x, emit, -math.inf if floats else float(np.iinfo(dtype).min))
        scale = [math.prod(sizes[i + 1 :]) for i in range(len(sizes))]
        places = np.indices(self.counts).T * self.strides - self.padding
        origins = np.ascontiguousarray((places @ scale).T)
        offsets = (np.indices(self.window).reshape(len(sizes), -1).T * self.dilation) @ scale
        tap = emit(op.argmax(taps, axis=2))
        offset = emit(op.take(relax.const(offsets, "int64"), tap, axis=0, mode="clip"))
        indices = emit(op.add(offset, relax.const(origins, "int64")))
        return relax.Tuple([emit(op.max(taps, axis=[2])), indices])


def _adaptive_max_pool(rank: int) -> Callable[[Any, Any, Any], relax.Expr]:
    """(input, output size): element i of n of an axis of size s covers i*s/n to (i+1)*s/n, rounded
    outwards."""

    def windows(x: Any, emit: Any, axis: int, count: int) -> relax.Expr:
        """Split an axis into windows and the elements of each."""
        shape = shape_of(x)
        size = shape[axis]
        if size % count == 0:
            even = (*shape[:axis], count, size // count, *shape[axis + 1 :])
            return emit(op.reshape(x, even))
        first = np.arange(count) * size // count
        last = -(-(np.arange(count) + 1) * size // count) - 1
        reach = np.arange(int((last - first).max()) + 1)
        # A shorter window has its last element again.
        places = np.minimum(first[:, None] + reach, last[:, None])
        return emit(op.take(x, relax.const(places, "int64"), axis=axis, mode="clip"))

    def convert(node: Any, x: Any, emit: Any) -> relax.Expr:
        shape, counts, places = shape_of(x), each(node.args[1], rank), None
        if _indices_used(node):
            grid = np.arange(math.prod(shape[2:])).reshape(1, 1, *shape[2:])
            places = emit(op.broadcast_to(relax.const(grid, "int64"), shape))
        # From the last axis on: of equal elements, the first one by rows is found.
        for axis, count in reversed([*enumerate(counts, start=2)]):
            taps = windows(x, emit, axis, count)
            if places is not None:
                found = emit(op.astype(emit(op.argmax(taps, axis + 1, True)), "int64"))
                held = windows(places, emit, axis, count)
                places = emit(op.gather_elements(held, found, axis + 1))
                places = emit(op.squeeze(places, [axis + 1]))
            x = emit(op.max(taps, axis=[axis + 1]))
        return relax.Tuple([x] if places is None else [x, places])

    return convert


def _avg_pool(rank: int) -> Callable[[Any, Any, Any], relax.Expr]:
    """(input, window, stride, padding, ceil mode, count padding, divisor)."""

    def convert(node: Any, x: Any, emit: Any) -> relax.Expr:
        window = each(node.args[1], rank)
        names = ("stride", "padding", "ceil_mode", "count_include_pad", "divisor_override")
        given = _given(node, list(node.args[2:]), names)
        strides = each(given.get("stride") or window, rank)
        padding = each(given.get("padding", 0), rank)
        if divisor := given.get("divisor_override"):
            counts = [int(size) for size in node.meta["val"].shape[-rank:]]
            taps = _Windows(window, strides, padding, [1] * rank, counts).taps(x, emit, 0.0)
            total = emit(op.sum(taps, axis=[2]))
            return emit(op.divide(total, relax.const(divisor, str(x.ty.dtype))))
        pool = op.nn.avg_pool3d if rank == 3 else op.nn.avg_pool2d
        return emit(
            pool(
                x, pool_size=window, strides=strides, padding=padding,
                ceil_mode=bool(given.get("ceil_mode", False)),
                count_include_pad=bool(given.get("count_include_pad", True)),
            )
        )  # fmt: skip

    return convert


def _im2col(node: Any, x: Any, emit: Any) -> relax.Expr:
    """The patches (n, c * r * s, p * q) of an image (n, c, h, w)."""
    window, dilation, padding, strides = (each(value, 2) for value in node.args[1:])
    n, c, *sizes = (int(size) for size in x.ty.shape)
    counts = [
        (sizes[i] + 2 * padding[i] - dilation[i] * (window[i] - 1) - 1) // strides[i] + 1
        for i in range(2)
    ]
    taps = _Windows(window, strides, padding, dilation, counts).taps(x, emit, 0.0)
    return emit(op.reshape(taps, [n, c * math.prod(window), math.prod(counts)]))


def _col2im(node: Any, importer: Any) -> relax.Expr:
    """The sums of patches (n, c * r * s, p * q) in an image (n, c, h, w), by a transposed
    convolution that moves each channel to the place of its tap."""
    x, size, *rest = importer.retrieve_args(node)
    (r, s), dilation, padding, stride = (each(value, 2) for value in rest)
    emit, size = importer.block_builder.emit, each(size, 2)
    single = len(x.ty.shape) == 2
    *batch, taps, _ = (int(d) for d in x.ty.shape)
    reach = [dilation[i] * ((r, s)[i] - 1) + 1 for i in range(2)]
    p, q = ((size[i] + 2 * padding[i] - reach[i]) // stride[i] + 1 for i in range(2))
    x = emit(op.reshape(x, [*(batch or [1]), taps, p, q]))
    move = np.tile(np.eye(r * s).reshape(r * s, 1, r, s), (taps // (r * s), 1, 1, 1))
    least = [((p, q)[i] - 1) * stride[i] + reach[i] - 2 * padding[i] for i in range(2)]
    y = emit(
        op.nn.conv2d_transpose(
            x,
            relax.const(move.astype(str(x.ty.dtype))),
            strides=stride,
            padding=padding,
            dilation=dilation,
            output_padding=[size[i] - least[i] for i in range(2)],
            groups=taps // (r * s),
        )
    )
    return emit(op.squeeze(y, [0])) if single else y


#: Converted as a whole; PyTorch would take them apart into gathers and scatters.
WHOLE = ("im2col", "col2im")

CONVERTERS = {
    "max_pool2d_with_indices.default": _batched(_max_pool(2), 2),
    "max_pool3d_with_indices.default": _batched(_max_pool(3), 3),
    "adaptive_max_pool2d.default": _batched(_adaptive_max_pool(2), 2),
    "adaptive_max_pool3d.default": _batched(_adaptive_max_pool(3), 3),
    "avg_pool2d.default": _batched(_avg_pool(2), 2),
    "avg_pool3d.default": _batched(_avg_pool(3), 3),
    "im2col.default": _batched(_im2col, 2),
    "col2im.default": _col2im,
}
