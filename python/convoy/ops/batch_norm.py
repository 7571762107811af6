"""Batch norm in training: batch statistics, and the gradient, as few passes over memory.

``convoy.batch_norm_backward`` is what differentiation emits. Normalization takes it, and the
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
which is linear in dy and x for each channel: the coefficients a, b and c. With an ``activation``
(of ``activation_backward``) the gradient passes one behind the norm first, whose input is
``x * scale + shift``: neither the norm's output nor the gradient between both is read or written.
"""

from __future__ import annotations

from collections.abc import Sequence

import tvm
from tvm import relax

from ..graph.expr import attr_fields, dtype_of, rank_of, shape_of
from .batch_norm_loops import affine_loops, grad_apply_loops, grad_stats_loops, stats_loops
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

    ``dy`` is that of the normalized output, the other operands are those of the forward call:
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
    unbiased: float = 1.0,
) -> relax.Call:
    """(scale, shift, mean, rstd, new moving mean, new moving var) of x (..., C), each (C,).

    The moving var moves towards ``unbiased`` times that of the batch.
    """
    return make_call(
        "batch_norm_stats", [x, gamma, beta, moving_mean, moving_var],
        epsilon=float(epsilon), momentum=float(momentum), scale=bool(scale), center=bool(center),
        training=bool(training), unbiased=float(unbiased),
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
    activation: str = "",
    parameters: Sequence[float] = (),
    use_gamma: bool = True,
    training: bool = True,
) -> relax.Call:
    """(dgamma, dbeta, a, b, c), each (C,), of dy and x (..., C)."""
    return make_call(
        "batch_norm_grad_stats", [dy, x, gamma, scale, shift, mean, rstd],
        activation=activation, parameters=[float(value) for value in parameters],
        use_gamma=bool(use_gamma), training=bool(training),
    )  # fmt: skip


def batch_norm_grad_apply(
    dy: relax.Expr,
    x: relax.Expr,
    scale: relax.Expr,
    shift: relax.Expr,
    a: relax.Expr,
    b: relax.Expr,
    c: relax.Expr,
    activation: str = "",
    parameters: Sequence[float] = (),
) -> relax.Call:
    """``a * dy + b * x + c`` along the last axis, in the dtype of x."""
    return make_call(
        "batch_norm_grad_apply", [dy, x, scale, shift, a, b, c],
        activation=activation, parameters=[float(value) for value in parameters],
    )  # fmt: skip


# -- types -------------------------------------------------------------------------------------


def _vectors(
    count: int, channels: relax.Expr | int, dtype: str = "float32"
) -> list[relax.TensorType]:
    return [relax.TensorType([channels], dtype) for _ in range(count)]


def _infer_backward(call: relax.Call, _builder: relax.BlockBuilder | None = None) -> tvm.ir.Type:
    _, x, gamma, _, _ = call.args
    return tvm.ir.TupleType([x.ty, gamma.ty, gamma.ty])


def _infer_stats(call: relax.Call, _builder: relax.BlockBuilder | None = None) -> tvm.ir.Type:
    return tvm.ir.TupleType(_vectors(6, shape_of(call.args[0])[-1]))


def _infer_grad_stats(call: relax.Call, _builder: relax.BlockBuilder | None = None) -> tvm.ir.Type:
    return tvm.ir.TupleType(_vectors(5, shape_of(call.args[1])[-1]))


def _infer_as_x(call: relax.Call, _builder: relax.BlockBuilder | None = None) -> tvm.ir.Type:
    return call.args[1 if call.op.name == GRAD_APPLY else 0].ty


# -- taking the pair apart ---------------------------------------------------------------------


def expand_backward(
    builder: relax.BlockBuilder,
    call: relax.Call,
    stats: list[relax.Expr],
    activation: tuple[str, Sequence[float]] = ("", ()),
) -> list[relax.Expr]:
    """(dx, dgamma, dbeta) of a :func:`batch_norm_backward` over the last axis from the items of
    its :func:`batch_norm_stats`."""
    dy, x, gamma = call.args[:3]
    attrs = attr_fields(call.attrs)
    scale, shift, mean, rstd = stats[:4]
    sums = builder.emit(
        batch_norm_grad_stats(
            dy, x, gamma, scale, shift, mean, rstd, *activation, attrs["scale"], attrs["training"]
        )
    )
    dgamma, dbeta, a, b, c = (builder.emit(relax.TupleGetItem(sums, i)) for i in range(5))
    dx = builder.emit(batch_norm_grad_apply(dy, x, scale, shift, a, b, c, *activation))
    return [dx, dgamma, dbeta]


def _legalize_backward(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """Legalize outside of Convoy's normal form: move channels last and back."""
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
    dx, dgamma, dbeta = expand_backward(builder, inner, items)
    dx = builder.emit(relax.op.permute_dims(dx, back))
    wanted = dtype_of(call.args[2])
    dgamma, dbeta = (
        e if wanted == "float32" else builder.emit(relax.op.astype(e, wanted))
        for e in (dgamma, dbeta)
    )
    return relax.Tuple([dx, dgamma, dbeta]) if dtype else call


# -- legalization -------------------------------------------------------------------------------


def _legalize(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    name = call.op.name
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
