"""Pooling and patches as PyTorch has them."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np
from tvm import relax
from tvm.relax import op

from ..errors import UnsupportedOp


def each(value: Any, rank: int) -> list[int]:
    """One integer for each of ``rank`` axes."""
    values = [value] if isinstance(value, int) else list(value)
    return [int(v) for v in (values * rank if len(values) == 1 else values)]


def _given(node: Any, values: list[Any], names: tuple[str, ...]) -> dict[str, Any]:
    return dict(zip(names, values, strict=False)) | node.kwargs


def _values_alone(node: Any) -> None:
    for user in node.users:
        if user.target is not operator.getitem or user.args[1] != 0:
            raise UnsupportedOp("max pooling whose indices are used", "its values alone")


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
        _values_alone(node)
        window = each(node.args[1], rank)
        names = ("stride", "padding", "dilation", "ceil_mode")
        given = _given(node, list(node.args[2:]), names)
        pool = op.nn.max_pool3d if rank == 3 else op.nn.max_pool2d
        y = pool(
            x,
            pool_size=window,
            strides=each(given.get("stride") or window, rank),
            padding=each(given.get("padding", 0), rank),
            dilation=each(given.get("dilation", 1), rank),
            ceil_mode=bool(given.get("ceil_mode", False)),
        )
        return relax.Tuple([emit(y)])

    return convert


def _adaptive_max_pool(rank: int) -> Callable[[Any, Any, Any], relax.Expr]:
    """(input, output size): element i of n of an axis of size s covers i*s/n to (i+1)*s/n, rounded
    outwards."""

    def convert(node: Any, x: Any, emit: Any) -> relax.Expr:
        _values_alone(node)
        for axis, count in enumerate(each(node.args[1], rank), start=2):
            size = int(x.ty.shape[axis])
            first = np.arange(count) * size // count
            last = -(-(np.arange(count) + 1) * size // count) - 1
            reach = np.arange(int((last - first).max()) + 1)
            # A shorter window has its last element again.
            places = np.minimum(first[:, None] + reach, last[:, None])
            windows = emit(op.take(x, relax.const(places, "int64"), axis=axis, mode="clip"))
            x = emit(op.max(windows, axis=[axis + 1]))
        return relax.Tuple([x])

    return convert


def _avg_pool2d(node: Any, x: Any, emit: Any) -> relax.Expr:
    """(input, window, stride, padding, ceil mode, count padding, divisor)."""
    window = each(node.args[1], 2)
    names = ("stride", "padding", "ceil_mode", "count_include_pad", "divisor_override")
    given = _given(node, list(node.args[2:]), names)
    divisor = given.get("divisor_override")
    y = emit(
        op.nn.avg_pool2d(
            x,
            pool_size=window,
            strides=each(given.get("stride") or window, 2),
            padding=each(given.get("padding", 0), 2),
            ceil_mode=bool(given.get("ceil_mode", False)),
            count_include_pad=bool(given.get("count_include_pad", True)) or bool(divisor),
        )
    )
    if not divisor:
        return y
    return emit(op.multiply(y, relax.const(math.prod(window) / divisor, str(x.ty.dtype))))


def _im2col(node: Any, x: Any, emit: Any) -> relax.Expr:
    """The patches (n, c * r * s, p * q) of an image (n, c, h, w)."""
    (r, s), (dr, ds), (ph, pw), (sh, sw) = (each(value, 2) for value in node.args[1:])
    if ph or pw:
        x = emit(op.nn.pad(x, [0, 0, 0, 0, ph, ph, pw, pw]))
    n, c, h, w = (int(size) for size in x.ty.shape)
    p, q = (h - dr * (r - 1) - 1) // sh + 1, (w - ds * (s - 1) - 1) // sw + 1
    taps = []
    for i in range(r):
        for j in range(s):
            top, left = i * dr, j * ds
            end = [top + (p - 1) * sh + 1, left + (q - 1) * sw + 1]
            tap = emit(op.strided_slice(x, [2, 3], [top, left], end, [sh, sw]))
            taps.append(emit(op.expand_dims(tap, 2)))
    return emit(op.reshape(emit(op.concat(taps, axis=2)), [n, c * r * s, p * q]))


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
    "avg_pool2d.default": _batched(_avg_pool2d, 2),
    "im2col.default": _batched(_im2col, 2),
    "col2im.default": _col2im,
}
