"""Gradient rules: the expressions that ``relax.transform.Gradient`` emits for each operator.

TVM's own rules are replaced where they are missing, wrong or slow: convolutions (NCHW only, wrong
output sizes with dilation), batch norm (none), rectifiers (keep the input), pools (no NHWC kernel).
The rules work in any plain layout; normalization brings what they emit to NHWC with the rest.
They are registered for the whole process when :mod:`convoy.ops` is imported.
"""

from __future__ import annotations

from collections.abc import Callable

from tvm import relax
from tvm.relax.op.base import register_gradient
from tvm.relax.op.grad import no_grad

from ..errors import UnsupportedOp
from ..graph.expr import dtype_of, ints, padding4, shape_of
from .batch_norm import batch_norm_backward
from .conv_attrs import ConvOptions
from .conv_backward import conv2d_dgrad, conv2d_wgrad
from .elementwise import relu_backward
from .pool_backward import avg_pool2d_backward, max_pool2d_backward

#: TVM registers its own rules at level 10.
_LEVEL = 11

Rule = Callable[[relax.Var, relax.Call, relax.Var, relax.BlockBuilder], "list[relax.Expr]"]


def rule_for(name: str) -> Callable[[Rule], Rule]:
    """A decorator that makes a function the rule of a Relax operator."""

    def register(rule: Rule) -> Rule:
        register_gradient(f"relax.{name}", rule, level=_LEVEL)
        return rule

    return register


def ordered(expr: relax.Expr, layout: str, wanted: str) -> relax.Expr:
    """``expr``, whose axes are the letters of a layout, in the order of the wanted one."""
    if layout == wanted:
        return expr
    return relax.op.permute_dims(expr, [layout.index(letter) for letter in wanted])


@rule_for("nn.conv2d")
def conv2d_gradients(
    y: relax.Var, call: relax.Call, dy: relax.Var, ctx: relax.BlockBuilder
) -> list[relax.Expr]:
    attrs, (x, w) = call.attrs, call.args
    data, kernel = str(attrs.data_layout), str(attrs.kernel_layout)
    dy = ctx.normalize(ordered(dy, str(attrs.out_layout or data), data))
    x_shape, w_shape = shape_of(x), shape_of(w)
    size = [x_shape[data.index(letter)] for letter in "HW"]
    taps = [w_shape[kernel.index(letter)] for letter in "HW"]
    return [
        conv2d_dgrad(dy, w, size, **_options(call, kernel, dtype_of(x))),
        conv2d_wgrad(dy, x, taps, **_options(call, kernel, dtype_of(w))),
    ]


def _options(call: relax.Call, kernel_layout: str, out_dtype: str) -> ConvOptions:
    attrs = call.attrs
    return {
        "strides": ints(attrs.strides),
        "padding": padding4(attrs.padding),
        "dilation": ints(attrs.dilation),
        "groups": int(attrs.groups),
        "data_layout": str(attrs.data_layout),
        "kernel_layout": kernel_layout,
        "out_dtype": out_dtype,
    }


@rule_for("nn.conv2d_transpose")
def conv2d_transpose_gradients(
    y: relax.Var, call: relax.Call, dy: relax.Var, ctx: relax.BlockBuilder
) -> list[relax.Expr]:
    """The input's gradient is the forward convolution; the filter's swaps x and dy."""
    attrs, (x, w) = call.attrs, call.args
    data, kernel = str(attrs.data_layout), str(attrs.kernel_layout)
    dy = ctx.normalize(ordered(dy, str(attrs.out_layout or data), data))
    # The kernel's I counts the channels of x, which are the output channels of that convolution.
    forward = kernel.translate(str.maketrans("IO", "OI"))
    taps = [shape_of(w)[kernel.index(letter)] for letter in "HW"]
    return [
        relax.op.nn.conv2d(dy, w, **_options(call, forward, dtype_of(x))),
        conv2d_wgrad(x, dy, taps, **_options(call, forward, dtype_of(w))),
    ]


@rule_for("nn.batch_norm")
def _batch_norm(
    y: relax.Var, call: relax.Call, dy: relax.Var, ctx: relax.BlockBuilder
) -> list[relax.Expr]:
    attrs, (x, gamma, beta, mean, var) = call.attrs, call.args
    grads = ctx.emit(
        batch_norm_backward(
            relax.TupleGetItem(dy, 0), x, gamma, mean, var, int(attrs.axis), float(attrs.epsilon),
            bool(attrs.scale), bool(attrs.training),
        )
    )  # fmt: skip
    dx, dgamma, dbeta = (relax.TupleGetItem(grads, i) for i in range(3))
    return [
        dx,
        dgamma if attrs.scale else relax.op.zeros_like(gamma),
        dbeta if attrs.center else relax.op.zeros_like(beta),
        no_grad(mean),
        no_grad(var),
    ]


@rule_for("nn.relu")
def _relu(
    y: relax.Var, call: relax.Call, dy: relax.Var, ctx: relax.BlockBuilder
) -> list[relax.Expr]:
    return [relu_backward(dy, y)]


@rule_for("nn.max_pool2d")
def _max_pool2d(
    y: relax.Var, call: relax.Call, dy: relax.Var, ctx: relax.BlockBuilder
) -> list[relax.Expr]:
    attrs, layout = call.attrs, str(call.attrs.layout)
    out = str(attrs.out_layout or layout)
    dy, y = (ctx.normalize(ordered(e, out, layout)) for e in (dy, y))
    return [
        max_pool2d_backward(
            dy, call.args[0], y, ints(attrs.pool_size), ints(attrs.strides),
            padding4(attrs.padding), ints(attrs.dilation), layout,
        )
    ]  # fmt: skip


@rule_for("nn.avg_pool2d")
def _avg_pool2d(
    y: relax.Var, call: relax.Call, dy: relax.Var, ctx: relax.BlockBuilder
) -> list[relax.Expr]:
    attrs, layout = call.attrs, str(call.attrs.layout)
    if ints(attrs.dilation) != (1, 1):
        raise UnsupportedOp("the gradient of a dilated nn.avg_pool2d", "dilation 1")
    dy = ctx.normalize(ordered(dy, str(attrs.out_layout or layout), layout))
    return [
        avg_pool2d_backward(
            dy, call.args[0], ints(attrs.pool_size), ints(attrs.strides),
            padding4(attrs.padding), bool(attrs.count_include_pad), layout,
        )
    ]  # fmt: skip


@rule_for("flatten")
@rule_for("squeeze")
@rule_for("nn.batch_flatten")
def _reshaped(
    y: relax.Var, call: relax.Call, dy: relax.Var, ctx: relax.BlockBuilder
) -> list[relax.Expr]:
    return [relax.op.reshape(dy, shape_of(call.args[0]))]


@rule_for("nn.dropout")
def _dropout(
    y: relax.Var, call: relax.Call, dy: relax.Var, ctx: relax.BlockBuilder
) -> list[relax.Expr]:
    """Normalization makes dropout the identity, so its gradient is one too."""
    return [relax.TupleGetItem(dy, 0)]
