"""Gradients of convolutions over one and three dimensions, transposed ones too.

Over one dimension they are those of images of height 1. Over three, with channels last, each tap of
a filter along the depth has the filter gradient of a convolution over two dimensions, whose images
are the frames that the tap reads.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import relax
from tvm.relax import op

from ..graph.expr import dtype_of, ints, padding_of, shape_of
from .conv_backward import conv2d_wgrad, conv3d_dgrad
from .gradient import Rule, conv2d_gradients, conv2d_transpose_gradients, ordered, rule_for

_Emit = Callable[[relax.Expr], relax.Var]
_DATA, _FILTER = "NDHWC", "ODHWI"


@rule_for("nn.conv1d")
def _conv1d(
    y: relax.Var, call: relax.Call, dy: relax.Var, ctx: relax.BlockBuilder
) -> list[relax.Expr]:
    return _of_images(ctx, call, dy, op.nn.conv2d, conv2d_gradients)


@rule_for("nn.conv1d_transpose")
def _conv1d_transpose(
    y: relax.Var, call: relax.Call, dy: relax.Var, ctx: relax.BlockBuilder
) -> list[relax.Expr]:
    padding = [0, *ints(call.attrs.output_padding)]
    forward = op.nn.conv2d_transpose
    return _of_images(ctx, call, dy, forward, conv2d_transpose_gradients, output_padding=padding)


def _of_images(
    ctx: relax.BlockBuilder,
    call: relax.Call,
    dy: relax.Expr,
    forward: Callable[..., relax.Expr],
    rule: Rule,
    **options: Any,
) -> list[relax.Expr]:
    """The gradients of a convolution over images of height 1, by ``rule``."""
    attrs, data, kernel = call.attrs, str(call.attrs.data_layout), str(call.attrs.kernel_layout)
    out, (before, *_, after) = str(attrs.out_layout or data), 2 * ints(attrs.padding)
    images = []
    for value, layout in (*zip(call.args, (data, kernel), strict=True), (dy, out)):
        shape = list(shape_of(value))
        shape.insert(layout.index("W"), 1)
        images.append(ctx.emit(op.reshape(value, shape)))
    *operands, dy = images
    layouts = {"data_layout": data, "kernel_layout": kernel, "out_layout": out}
    made = forward(
        *operands, strides=[1, *ints(attrs.strides)], padding=[0, before, 0, after],
        dilation=[1, *ints(attrs.dilation)], groups=int(attrs.groups),
        **{name: layout.replace("W", "HW") for name, layout in layouts.items()}, **options,
    )  # fmt: skip
    found = rule(dy, ctx.normalize(made), dy, ctx)
    shapes = map(shape_of, call.args)
    return [op.reshape(ctx.emit(g), shape) for g, shape in zip(found, shapes, strict=True)]


@rule_for("nn.conv3d")
def _conv3d(
    y: relax.Var, call: relax.Call, dy: relax.Var, ctx: relax.BlockBuilder
) -> list[relax.Expr]:
    x, w, dy = _channels_last(call, dy, ctx.emit, _FILTER)
    dx = conv3d_dgrad(dy, w, shape_of(x)[1:4], **_options(call), out_dtype=dtype_of(x))
    dw = _filter_gradient(ctx.emit, dy, x, shape_of(w)[1:4], call)
    return _as_given(call, dx, dw, ctx.emit, _FILTER)


@rule_for("nn.conv3d_transpose")
def _conv3d_transpose(
    y: relax.Var, call: relax.Call, dy: relax.Var, ctx: relax.BlockBuilder
) -> list[relax.Expr]:
    """The forward convolution of dy, and its filter gradient with x in place of dy."""
    filters = _FILTER.translate(str.maketrans("IO", "OI"))  # I counts what that convolution gives
    x, w, dy = _channels_last(call, dy, ctx.emit, filters)
    layouts = {"data_layout": _DATA, "kernel_layout": _FILTER, "out_layout": _DATA}
    dx = op.nn.conv3d(dy, w, **_options(call), **layouts)
    dw = _filter_gradient(ctx.emit, x, dy, shape_of(w)[1:4], call)
    return _as_given(call, dx, dw, ctx.emit, filters)


def _options(call: relax.Call) -> dict[str, Any]:
    attrs = call.attrs
    strides, dilation = (ints(v) * (3 // len(ints(v))) for v in (attrs.strides, attrs.dilation))
    padding = padding_of(attrs.padding, 3)
    return {
        "strides": strides, "padding": padding, "dilation": dilation, "groups": int(attrs.groups),
    }  # fmt: skip


def _filter_gradient(
    emit: _Emit, dy: relax.Expr, x: relax.Expr, taps: tuple[int, ...], call: relax.Call
) -> relax.Expr:
    """dw (k, taps, c / groups) of dy (n, o, p, q, k) and x (n, d, h, w, c)."""
    options = _options(call)
    (stride, *strides), (dilation, *dilations) = options["strides"], options["dilation"]
    front, top, left, _, bottom, right = options["padding"]
    images = emit(op.reshape(dy, (-1, *shape_of(dy)[2:])))
    found = []
    for tap in range(taps[0]):
        frames = _frames(emit, x, tap * dilation - front, stride, shape_of(dy)[1])
        gradient = conv2d_wgrad(
            images, emit(op.reshape(frames, (-1, *shape_of(x)[2:]))), taps[1:], strides=strides,
            padding=(top, left, bottom, right), dilation=dilations, groups=options["groups"],
            out_dtype=dtype_of(x),
        )  # fmt: skip
        found.append(emit(op.expand_dims(emit(gradient), 1)))
    return op.concat(found, 1)


def _frames(emit: _Emit, x: relax.Expr, first: int, stride: int, count: int) -> relax.Expr:
    """``count`` frames of x (n, d, ...) from ``first`` on, zeros where it has none."""
    depth = shape_of(x)[1]
    begin = min(count, max(0, -(first // stride)))
    end = max(begin, min(count, (depth - 1 - first) // stride + 1))
    if begin == end:
        return emit(op.zeros((shape_of(x)[0], count, *shape_of(x)[2:]), dtype_of(x)))
    start, stop = first + begin * stride, first + (end - 1) * stride + 1
    if (start, stop, stride) != (0, depth, 1):
        x = emit(op.strided_slice(x, [1], [start], [stop], [stride]))
    missing = (begin, count - end)
    return emit(op.nn.pad(x, [0, 0, *missing, *[0] * 6])) if any(missing) else x


def _channels_last(
    call: relax.Call, dy: relax.Expr, emit: _Emit, filters: str
) -> tuple[relax.Expr, relax.Expr, relax.Expr]:
    """x, w and dy with channels last; ``filters`` are the axes of w."""
    attrs, (x, w) = call.attrs, call.args
    data, kernel = str(attrs.data_layout), str(attrs.kernel_layout)
    return (
        emit(ordered(x, data, _DATA)),
        emit(ordered(w, kernel, filters)),
        emit(ordered(dy, str(attrs.out_layout or data), _DATA)),
    )


def _as_given(
    call: relax.Call, dx: relax.Expr, dw: relax.Expr, emit: _Emit, filters: str
) -> list[relax.Expr]:
    """Gradients in the layouts and dtypes of a call's operands."""
    attrs, (x, w) = call.attrs, call.args
    return [
        op.astype(emit(ordered(emit(dx), _DATA, str(attrs.data_layout))), dtype_of(x)),
        op.astype(emit(ordered(emit(dw), filters, str(attrs.kernel_layout))), dtype_of(w)),
    ]
