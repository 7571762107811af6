"""Operators of a training step as GPU kernels that are built directly in TIR.

Registered legalizations (``ops/``) are loops for any target; the ones here replace them where the
target is CUDA: sums over rows read the activations once, and a max pool's gradient loads vectors.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from tvm import relax, tirx
from tvm.tirx import Expr

from ..graph.expr import attr_fields, dtype_of, ints, permute, shape_of
from ..graph.target import on_gpu
from ..ir.dtypes import FLOAT_DTYPES
from ..ops.activation_backward import through
from ..tir.channel_sums import ChannelSums, partial_shape
from ..tir.channel_sums_kernels import kernels
from ..tir.pool_gradient import MaxPool, maxima, scatter
from ..tir.row_norm_gradient import gradient_kernel
from ..tir.row_norms import LONGEST_ROW, RowNorm
from .default import default_legalize

#: One number of each input.
Values = Sequence[Expr]
#: A problem, its activations and its vectors.
Sums = tuple[ChannelSums, list[relax.Expr], list[relax.Expr]]


def batch_norm_stats(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """Sum batch statistics in one or two kernels; inference needs vectors alone, as loops."""
    if not (on_gpu() and attr_fields(call.attrs)["training"]):
        return default_legalize(builder, call)
    return emit_sums(builder, *_stats_sums(call))


def batch_norm_grad_stats(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    return emit_sums(builder, *_grad_sums(call)) if on_gpu() else default_legalize(builder, call)


def max_pool2d_backward(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    attrs, (dy, x, y) = attr_fields(call.attrs), call.args
    layout = str(attrs["layout"])
    to, back = ([a.index(letter) for letter in b] for a, b in ((layout, "NHWC"), ("NHWC", layout)))
    x_shape, y_shape = (permute(shape_of(e), tuple(to)) for e in (x, y))
    pool = pool_of(x_shape, y_shape, dtype_of(x), attrs) if on_gpu() else None
    if pool is None:
        return default_legalize(builder, call)
    if layout != "NHWC":
        dy, x, y = (builder.emit(relax.op.permute_dims(e, to)) for e in (dy, x, y))
    _, which = emit_maxima(builder, pool, x)
    dx = builder.emit(scattered(builder, pool, dy, which))
    return dx if layout == "NHWC" else builder.emit(relax.op.permute_dims(builder.emit(dx), back))


def layer_norm_backward(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """One kernel for rows that a block keeps in registers; loops for others."""
    dy, x, gamma = call.args
    *outer, columns = shape_of(x)
    dtypes = {dtype_of(dy), dtype_of(x)}
    fits = 1 < columns <= LONGEST_ROW and len(dtypes) == 1 and dtype_of(gamma) == "float32"
    if not on_gpu() or not fits:
        return default_legalize(builder, call)
    epsilon = float(attr_fields(call.attrs)["epsilon"])
    rows, dtype = math.prod(outer), dtype_of(x)
    norm = RowNorm("layer_norm_gradient", rows, columns, dtype, dtype, epsilon)
    callee = builder.add_func(gradient_kernel(norm), norm.kind)
    flat = [builder.emit(relax.op.reshape(value, norm.shape)) for value in (dy, x)]
    types = [relax.TensorType(norm.shape, dtype), *[relax.TensorType((rows,), "float32")] * 2]
    found = builder.emit(relax.op.call_tir(callee, [*flat, gamma], types))
    shapes = (shape_of(x), *[(*outer, 1)] * 2)
    results = [builder.emit(relax.TupleGetItem(found, i)) for i in range(3)]
    reshaped = map(relax.op.reshape, results, shapes)
    return relax.Tuple([builder.emit(result) for result in reshaped])


def emit_sums(
    builder: relax.BlockBuilder,
    sums: ChannelSums,
    data: list[relax.Expr],
    vectors: list[relax.Expr],
) -> relax.Expr:
    """Emit calls of the kernels of ``sums``.

    Args:
        data: Activations, reshaped to (rows, channels).
        vectors: Inputs of shape (channels,), float32.

    Returns:
        A tuple of the (channels,) results.
    """
    shape = sums.shape
    rows = [x if shape_of(x) == shape else builder.emit(relax.op.reshape(x, shape)) for x in data]
    results = [relax.TensorType((sums.channels,), "float32")] * sums.outputs
    first, *second = kernels(sums)
    callee = builder.add_func(first, sums.name)
    if not second:
        return relax.op.call_tir(callee, [*rows, *vectors], results)
    parts = relax.TensorType(partial_shape(sums), "float32")
    partial = builder.emit(relax.op.call_tir(callee, [*rows, *vectors], parts))
    combine = builder.add_func(second[0], f"{sums.name}_combine")
    return relax.op.call_tir(combine, [rows[0], *vectors, partial], results)


def _stats_sums(call: relax.Call) -> Sums:
    """Sum differences to the first row, and their squares."""
    attrs, (x, gamma, beta, *moving) = attr_fields(call.attrs), call.args
    rows, channels = _flat(x)
    epsilon, rate = float(attrs["epsilon"]), float(attrs["momentum"])

    def terms(x: Values, v: Values, first: Expr) -> tuple[Expr, Expr]:
        return x[0] - first, (x[0] - first) * (x[0] - first)

    def finish(sums: Values, v: Values, first: Expr) -> list[Expr]:
        offset = sums[0] * _const(1 / rows)
        var = tirx.max(sums[1] * _const(1 / rows) - offset * offset, _const(0.0))
        mean, rstd = first + offset, tirx.rsqrt(var + _const(epsilon))
        scale = rstd * v[0] if attrs["scale"] else rstd
        shift = (v[1] if attrs["center"] else _const(0.0)) - mean * scale
        new_mean = v[2] * _const(1 - rate) + mean * _const(rate)
        new_var = v[3] * _const(1 - rate) + var * _const(rate * attrs["unbiased"])
        return [scale, shift, mean, rstd, new_mean, new_var]

    sums = ChannelSums(
        "batch_norm_stats", rows, channels, (dtype_of(x),), 4, 6, terms, finish, True, str(attrs)
    )
    return sums, [x], [gamma, beta, *moving]


def _grad_sums(call: relax.Call) -> Sums:
    """Sum dy and dy * (x - mean), dy passed through the activation."""
    attrs, (dy, x, *vectors) = attr_fields(call.attrs), call.args
    rows, channels = _flat(x)
    per_row = 1 / rows if attrs["training"] else 0.0
    gamma, scale, shift, mean, rstd = range(5)

    def terms(x: Values, v: Values, first: Expr) -> tuple[Expr, Expr]:
        normal = x[1] * v[scale] + v[shift]
        gradient = through(x[0], normal, attrs["activation"], attrs["parameters"])
        return gradient, gradient * (x[1] - v[mean])

    def finish(sums: Values, v: Values, first: Expr) -> list[Expr]:
        dbeta, dgamma = sums[0], sums[1] * v[rstd]
        a = v[rstd] * v[gamma] if attrs["use_gamma"] else v[rstd]
        b = a * v[rstd] * dgamma * _const(-per_row)
        return [dgamma, dbeta, a, b, a * dbeta * _const(-per_row) - b * v[mean]]

    sums = ChannelSums(
        "batch_norm_grad_stats", rows, channels, (dtype_of(dy), dtype_of(x)), 5, 5, terms, finish,
        attributes=str(attrs),
    )  # fmt: skip
    return sums, [dy, x], vectors


def _flat(x: relax.Expr) -> tuple[int, int]:
    *rows, channels = shape_of(x)
    return math.prod(rows), channels


def _const(value: float) -> Expr:
    return tirx.const(value, "float32")


def pool_of(
    x_shape: Sequence[int], y_shape: Sequence[int], dtype: str, attrs: Mapping[str, object]
) -> MaxPool | None:
    """A max pool of (n, h, w, c) to (n, p, q, c); None for a window that kernels do not support."""
    window, stride, padding, dilation = (
        ints(attrs[name]) for name in ("pool_size", "strides", "padding", "dilation")
    )
    if dilation != (1, 1) or window[0] * window[1] > 256 or dtype not in FLOAT_DTYPES:
        return None
    (n, h, w, c), (_, p, q, _) = x_shape, y_shape
    return MaxPool(
        n, h, w, c, p, q, (window[0], window[1]), (stride[0], stride[1]), (padding[0], padding[1]),
        dtype,
    )  # fmt: skip


def emit_maxima(
    builder: relax.BlockBuilder, pool: MaxPool, x: relax.Expr
) -> tuple[relax.Expr, relax.Expr]:
    """The maxima of a pool, and which taps have them."""
    callee = builder.add_func(maxima(pool), "max_pool2d_taps")
    shape = (pool.n, pool.p, pool.q, pool.c)
    types = [relax.TensorType(shape, dtype) for dtype in (pool.dtype, "uint8")]
    both = builder.emit(relax.op.call_tir(callee, [x], types))
    y, which = (builder.emit(relax.TupleGetItem(both, i)) for i in range(2))
    return y, which


def scattered(
    builder: relax.BlockBuilder, pool: MaxPool, dy: relax.Expr, which: relax.Expr
) -> relax.Call:
    """The gradient of a pool from that of its maxima."""
    callee = builder.add_func(scatter(pool), "max_pool2d_backward")
    shape = (pool.n, pool.h, pool.w, pool.c)
    return relax.op.call_tir(callee, [dy, which], relax.TensorType(shape, pool.dtype))
