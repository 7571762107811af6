"""Batch norm in training: batch statistics, and the gradient, as few passes over memory.

``convoy.batch_norm_backward`` is what differentiation emits. Normalisation takes it, and the
forward ``relax.nn.batch_norm``, apart into the operators below, in which channels are the last
axis. All per-channel vectors have shape (C,) and are float32 whatever the data:

======================  ============================================================================
batch_norm_stats        x, gamma, beta, moving mean, moving var -> scale, shift, mean, rstd,
                        new moving mean, new moving var
channel_affine          x, scale, shift -> ``x * scale + shift``
batch_norm_grad_stats   dy, x, gamma, scale, shift, mean, rstd -> dgamma, dbeta, a, b, c
batch_norm_grad_apply   dy, x, scale, shift, a, b, c -> ``dx = a * dy + b * x + c``
======================  ============================================================================

With M rows (all axes but the last), ``x_hat = (x - mean) * rstd``:
``dx = gamma * rstd * (dy - sum(dy) / M - x_hat * sum(dy * x_hat) / M)`` (Ioffe and Szegedy 2015),
which is linear in dy and x for each channel: the coefficients a, b and c. With ``relu`` the
gradient passes a rectifier behind the norm first: dy counts where ``x * scale + shift > 0``, so
that neither the rectified output nor the masked gradient is read or written.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import tvm
from tvm import relax, te, tirx, topi

from ..graph.expr import attr_fields, dtype_of, rank_of, shape_of
from ..tir.channel_sums import ChannelSums
from .gpu import Sums, emit_sums, on_gpu
from .registration import NAMESPACE, make_call, register_op

BACKWARD = NAMESPACE + "batch_norm_backward"
STATS = NAMESPACE + "batch_norm_stats"
AFFINE = NAMESPACE + "channel_affine"
GRAD_STATS = NAMESPACE + "batch_norm_grad_stats"
GRAD_APPLY = NAMESPACE + "batch_norm_grad_apply"

#: How many leading operands are activations; the others are per-channel vectors in float32.
DATA_OPERANDS = {STATS: 1, AFFINE: 1, GRAD_STATS: 2, GRAD_APPLY: 2}


def batch_norm_backward(
    dy: relax.Expr,
    x: relax.Expr,
    gamma: relax.Expr,
    mean: relax.Expr,
    var: relax.Expr,
    axis: int,
    epsilon: float = 1e-5,
    scale: bool = True,
    training: bool = True,
) -> relax.Call:
    """Gradients of ``relax.nn.batch_norm`` with respect to (x, gamma, beta), as a tuple.

    ``dy`` is that of the normalised output, the other operands are those of the forward call:
    ``mean`` and ``var`` are the moving statistics, which count only without ``training``.
    """
    return make_call(
        "batch_norm_backward", [dy, x, gamma, mean, var],
        axis=int(axis), epsilon=float(epsilon), scale=bool(scale), training=bool(training),
    )  # fmt: skip


def batch_norm_stats(
    x: relax.Expr,
    gamma: relax.Expr,
    beta: relax.Expr,
    moving_mean: relax.Expr,
    moving_var: relax.Expr,
    epsilon: float = 1e-5,
    momentum: float = 0.1,
    scale: bool = True,
    center: bool = True,
    training: bool = True,
) -> relax.Call:
    """(scale, shift, mean, rstd, new moving mean, new moving var) of x (..., C), each (C,)."""
    return make_call(
        "batch_norm_stats", [x, gamma, beta, moving_mean, moving_var],
        epsilon=float(epsilon), momentum=float(momentum), scale=bool(scale), center=bool(center),
        training=bool(training),
    )  # fmt: skip


def channel_affine(x: relax.Expr, scale: relax.Expr, shift: relax.Expr) -> relax.Call:
    """``x * scale + shift`` along the last axis, computed in float32, in the dtype of x."""
    return make_call("channel_affine", [x, scale, shift])


def batch_norm_grad_stats(
    dy: relax.Expr,
    x: relax.Expr,
    gamma: relax.Expr,
    scale: relax.Expr,
    shift: relax.Expr,
    mean: relax.Expr,
    rstd: relax.Expr,
    relu: bool = False,
    use_gamma: bool = True,
    training: bool = True,
) -> relax.Call:
    """(dgamma, dbeta, a, b, c), each (C,), of dy and x (..., C)."""
    return make_call(
        "batch_norm_grad_stats", [dy, x, gamma, scale, shift, mean, rstd],
        relu=bool(relu), use_gamma=bool(use_gamma), training=bool(training),
    )  # fmt: skip


def batch_norm_grad_apply(
    dy: relax.Expr,
    x: relax.Expr,
    scale: relax.Expr,
    shift: relax.Expr,
    a: relax.Expr,
    b: relax.Expr,
    c: relax.Expr,
    relu: bool = False,
) -> relax.Call:
    """``a * dy + b * x + c`` along the last axis, in the dtype of x."""
    return make_call("batch_norm_grad_apply", [dy, x, scale, shift, a, b, c], relu=bool(relu))


# -- types -------------------------------------------------------------------------------------


def _vectors(count: int, channels: Any, dtype: str = "float32") -> list[relax.TensorType]:
    return [relax.TensorType([channels], dtype) for _ in range(count)]


def _infer_backward(call: relax.Call, _builder: Any = None) -> tvm.ir.Type:
    _, x, gamma, _, _ = call.args
    return tvm.ir.TupleType([x.ty, gamma.ty, gamma.ty])


def _infer_stats(call: relax.Call, _builder: Any = None) -> tvm.ir.Type:
    return tvm.ir.TupleType(_vectors(6, shape_of(call.args[0])[-1]))


def _infer_grad_stats(call: relax.Call, _builder: Any = None) -> tvm.ir.Type:
    return tvm.ir.TupleType(_vectors(5, shape_of(call.args[1])[-1]))


def _infer_as_x(call: relax.Call, _builder: Any = None) -> tvm.ir.Type:
    return call.args[1 if call.op.name == GRAD_APPLY else 0].ty


# -- taking the pair apart ---------------------------------------------------------------------


def expand_backward(
    builder: relax.BlockBuilder, call: relax.Call, stats: list[relax.Expr], relu: bool
) -> list[relax.Expr]:
    """(dx, dgamma, dbeta) of a :func:`batch_norm_backward` over the last axis from the items of
    its :func:`batch_norm_stats`."""
    dy, x, gamma = call.args[:3]
    attrs = attr_fields(call.attrs)
    scale, shift, mean, rstd = stats[:4]
    sums = builder.emit(
        batch_norm_grad_stats(
            dy, x, gamma, scale, shift, mean, rstd, relu, attrs["scale"], attrs["training"]
        )
    )
    dgamma, dbeta, a, b, c = (builder.emit(relax.TupleGetItem(sums, i)) for i in range(5))
    dx = builder.emit(batch_norm_grad_apply(dy, x, scale, shift, a, b, c, relu))
    return [dx, dgamma, dbeta]


def _legalize_backward(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """For pipelines without convoy's normal form: channels are moved last and back."""
    attrs, (dy, x, gamma, mean, var) = attr_fields(call.attrs), call.args
    dtype, rank = dtype_of(x), rank_of(x)
    axis = int(attrs["axis"]) % rank
    order = [i for i in range(rank) if i != axis] + [axis]
    back = [order.index(i) for i in range(rank)]
    dy, x = (builder.emit(relax.op.permute_dims(e, order)) for e in (dy, x))
    gamma, mean, var = (
        e if dtype_of(e) == "float32" else builder.emit(relax.op.astype(e, "float32"))
        for e in (gamma, mean, var)
    )
    forward = builder.emit(
        batch_norm_stats(
            x, gamma, gamma, mean, var, attrs["epsilon"], 0.0, attrs["scale"], False,
            attrs["training"],
        )
    )  # fmt: skip
    items = [builder.emit(relax.TupleGetItem(forward, i)) for i in range(6)]
    inner = batch_norm_backward(dy, x, gamma, mean, var, rank - 1, attrs["epsilon"],
                                attrs["scale"], attrs["training"])  # fmt: skip
    dx, dgamma, dbeta = expand_backward(builder, inner, items, False)
    dx = builder.emit(relax.op.permute_dims(dx, back))
    wanted = dtype_of(call.args[2])
    dgamma, dbeta = (
        e if wanted == "float32" else builder.emit(relax.op.astype(e, wanted))
        for e in (dgamma, dbeta)
    )
    return relax.Tuple([dx, dgamma, dbeta]) if dtype else call


# -- loops -------------------------------------------------------------------------------------


def _rows(x: te.Tensor) -> list[tirx.IterVar]:
    return [te.reduce_axis((0, d), name=f"r{i}") for i, d in enumerate(x.shape[:-1])]


def _count(x: te.Tensor) -> int:
    count = 1
    for d in x.shape[:-1]:
        count *= int(d)
    return count


def _f32(value: Any) -> Any:
    return value.astype("float32")


def _channels(x: te.Tensor, function: Any, name: str) -> te.Tensor:
    return te.compute((x.shape[-1],), function, name=name)


def stats_loops(
    x: te.Tensor, gamma: te.Tensor, beta: te.Tensor, moving_mean: te.Tensor, moving_var: te.Tensor,
    epsilon: float, momentum: float, scale: bool, center: bool, training: bool,
) -> list[te.Tensor]:  # fmt: skip
    """The statistics as loops. Squares are summed of differences to the first row, since
    ``E[x^2] - E[x]^2`` cancels where the mean is large."""
    if bool(training):
        first = [0] * (len(x.shape) - 1)
        rows, again, count = _rows(x), _rows(x), float(_count(x))

        def shifted(axes, c):  # type: ignore[no-untyped-def]
            return _f32(x(*axes, c)) - _f32(x(*first, c))

        total = _channels(x, lambda c: te.sum(shifted(rows, c), axis=rows), "total")
        squares = _channels(
            x, lambda c: te.sum(shifted(again, c) * shifted(again, c), axis=again), "squares"
        )
        offset = _channels(x, lambda c: total[c] * tirx.const(1 / count, "float32"), "offset")
        mean = _channels(x, lambda c: _f32(x(*first, c)) + offset[c], "mean")
        var = _channels(
            x,
            lambda c: te.max(
                squares[c] * tirx.const(1 / count, "float32") - offset[c] * offset[c],
                tirx.const(0.0, "float32"),
            ),
            "var",
        )
    else:
        mean, var = moving_mean, moving_var
    rstd = _channels(
        x, lambda c: tirx.rsqrt(var[c] + tirx.const(float(epsilon), "float32")), "rstd"
    )
    factor = topi.identity(rstd)
    if bool(scale):
        factor = _channels(x, lambda c: rstd[c] * gamma[c], "scale")
    shift = _channels(
        x, lambda c: (beta[c] if bool(center) else 0.0) - mean[c] * factor[c], "shift"
    )
    keep = tirx.const(1 - float(momentum), "float32") if bool(training) else None

    def moved(old, new, name):  # type: ignore[no-untyped-def]
        if keep is None:
            return topi.identity(old)
        rate = tirx.const(float(momentum), "float32")
        return _channels(x, lambda c: old[c] * keep + new[c] * rate, name)

    mean_out = mean if bool(training) else topi.identity(mean)
    return [
        factor, shift, mean_out, rstd,
        moved(moving_mean, mean, "new_mean"), moved(moving_var, var, "new_var"),
    ]  # fmt: skip


def grad_stats_loops(dy, x, gamma, scale, shift, mean, rstd, relu, use_gamma, training):  # type: ignore[no-untyped-def]
    rows, again, count = _rows(x), _rows(x), float(_count(x))

    def gradient(axes, c):  # type: ignore[no-untyped-def]
        return _passed(_f32(dy(*axes, c)), _f32(x(*axes, c)), scale[c], shift[c], relu)

    dbeta = _channels(x, lambda c: te.sum(gradient(rows, c), axis=rows), "dbeta")
    product = _channels(
        x,
        lambda c: te.sum(gradient(again, c) * (_f32(x(*again, c)) - mean[c]), axis=again),
        "product",
    )
    dgamma = _channels(x, lambda c: product[c] * rstd[c], "dgamma")
    a = _channels(x, lambda c: rstd[c] * (gamma[c] if bool(use_gamma) else 1.0), "a")
    per_row = tirx.const(1 / count if bool(training) else 0.0, "float32")
    b = _channels(x, lambda c: -a[c] * rstd[c] * dgamma[c] * per_row, "b")
    c_ = _channels(x, lambda c: -a[c] * dbeta[c] * per_row - b[c] * mean[c], "c")
    return [dgamma, dbeta, a, b, c_]


def _passed(dy, x, scale, shift, relu):  # type: ignore[no-untyped-def]
    """dy behind a rectifier of the normalised value."""
    zero = tirx.const(0.0, "float32")
    return tirx.Select(x * scale + shift > zero, dy, zero) if bool(relu) else dy


def affine_loops(x, scale, shift):  # type: ignore[no-untyped-def]
    dtype = str(x.dtype)
    return te.compute(
        x.shape, lambda *i: (_f32(x(*i)) * scale[i[-1]] + shift[i[-1]]).astype(dtype), name="affine"
    )


def grad_apply_loops(dy, x, scale, shift, a, b, c, relu):  # type: ignore[no-untyped-def]
    dtype = str(x.dtype)

    def element(*i):  # type: ignore[no-untyped-def]
        channel, value = i[-1], _f32(x(*i))
        gradient = _passed(_f32(dy(*i)), value, scale[channel], shift[channel], relu)
        return (a[channel] * gradient + b[channel] * value + c[channel]).astype(dtype)

    return te.compute(x.shape, element, name="dx")


def _legalize(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    name = call.op.name
    if name in _SUMS and on_gpu():
        sums, data, vectors = _SUMS[name](call)
        if sums is not None:
            return emit_sums(builder, sums, data, vectors)
    function, pattern = {
        STATS: (stats_loops, 8),  # opaque
        GRAD_STATS: (grad_stats_loops, 8),
        AFFINE: (affine_loops, 1),  # broadcasting
        GRAD_APPLY: (grad_apply_loops, 1),
    }[name]
    return builder.call_te(
        function, *call.args, **attr_fields(call.attrs),
        primfunc_name_hint=name.rpartition(".")[2],
        primfunc_attrs={"op_pattern": pattern},
    )  # fmt: skip


# -- sums on a GPU -----------------------------------------------------------------------------


def _stats_sums(call: relax.Call) -> Sums:
    """Sums of differences to the first row and of their squares."""
    attrs, (x, gamma, beta, *moving) = attr_fields(call.attrs), call.args
    if not attrs["training"]:
        return None, [], []
    rows, channels = _flat(x)
    epsilon, rate = float(attrs["epsilon"]), float(attrs["momentum"])

    def terms(x: Any, v: Any, first: Any) -> tuple[Any, Any]:
        return x[0] - first, (x[0] - first) * (x[0] - first)

    def finish(sums: Any, v: Any, first: Any) -> list[Any]:
        offset = sums[0] * _const(1 / rows)
        var = tirx.max(sums[1] * _const(1 / rows) - offset * offset, _const(0.0))
        mean, rstd = first + offset, tirx.rsqrt(var + _const(epsilon))
        scale = rstd * v[0] if attrs["scale"] else rstd
        shift = (v[1] if attrs["center"] else _const(0.0)) - mean * scale
        moved = [
            v[2 + i] * _const(1 - rate) + new * _const(rate) for i, new in enumerate((mean, var))
        ]
        return [scale, shift, mean, rstd, *moved]

    sums = ChannelSums(
        "batch_norm_stats", rows, channels, (dtype_of(x),), 4, 6, terms, finish, True
    )
    return sums, [x], [gamma, beta, *moving]


def _grad_sums(call: relax.Call) -> Sums:
    """Sums of dy and of dy * (x - mean), dy behind the rectifier."""
    attrs, (dy, x, *vectors) = attr_fields(call.attrs), call.args
    rows, channels = _flat(x)
    per_row = 1 / rows if attrs["training"] else 0.0
    gamma, scale, shift, mean, rstd = range(5)

    def terms(x: Any, v: Any, first: Any) -> tuple[Any, Any]:
        gradient = _passed(x[0], x[1], v[scale], v[shift], attrs["relu"])
        return gradient, gradient * (x[1] - v[mean])

    def finish(sums: Any, v: Any, first: Any) -> list[Any]:
        dbeta, dgamma = sums[0], sums[1] * v[rstd]
        a = v[rstd] * v[gamma] if attrs["use_gamma"] else v[rstd]
        b = a * v[rstd] * dgamma * _const(-per_row)
        return [dgamma, dbeta, a, b, a * dbeta * _const(-per_row) - b * v[mean]]

    sums = ChannelSums(
        "batch_norm_grad_stats", rows, channels, (dtype_of(dy), dtype_of(x)), 5, 5, terms, finish
    )
    return sums, [dy, x], vectors


def _flat(x: relax.Expr) -> tuple[int, int]:
    *rows, channels = shape_of(x)
    return math.prod(rows), channels


def _const(value: float) -> Any:
    return tirx.const(value, "float32")


_SUMS: dict[str, Callable[[relax.Call], Sums]] = {STATS: _stats_sums, GRAD_STATS: _grad_sums}


register_op(
    "batch_norm_backward", "Gradients of batch norm.", _infer_backward, _legalize_backward,
    batch_norm_backward,
)  # fmt: skip
register_op("batch_norm_stats", "Batch statistics.", _infer_stats, _legalize, batch_norm_stats)
register_op(
    "batch_norm_grad_stats", "Sums of batch norm's gradient.", _infer_grad_stats, _legalize,
    batch_norm_grad_stats,
)  # fmt: skip
register_op(
    "channel_affine", "Scale and shift of channels.", _infer_as_x, _legalize, channel_affine
)
register_op(
    "batch_norm_grad_apply", "Input gradient of batch norm.", _infer_as_x, _legalize,
    batch_norm_grad_apply,
)  # fmt: skip
