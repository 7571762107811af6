"""Gradients of GEMMs and convolutions."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from convoy.errors import UnsupportedOp
from convoy.relay import ast
from convoy.relay.ast import Expr
from convoy.relay.gradient.common import call, like, type_of
from convoy.relay.gradient.registry import rule
from convoy.relay.ops import builders
from convoy.relay.ops.window import relax_padding

nn = SimpleNamespace(**builders("nn"))
_SWAP = str.maketrans("IO", "OI")


def _as(expr: Expr, grad_of: Expr, dtype: str) -> Expr:
    """Cast a gradient to the dtype of its argument."""
    wanted = type_of(grad_of).dtype
    return expr if dtype == wanted else call("cast", expr, dtype=wanted)


@rule("nn.bias_add")
def bias_add(node: ast.Call, grad: Expr) -> list[Expr | None]:
    assert node.attrs is not None
    return [grad, call("sum", grad, axis=[int(node.attrs["axis"])], exclude=True)]


@rule("nn.dense")
def dense(node: ast.Call, grad: Expr) -> list[Expr | None]:
    x, w = node.args
    dtype = type_of(node).dtype
    wide = [_as_dtype(e, dtype) for e in (x, w)]
    units, inner = type_of(w).shape
    dx = nn.dense(grad, call("transpose", wide[1], axes=None))
    flat_x = call("reshape", wide[0], newshape=[-1, inner])
    flat_grad = call("reshape", grad, newshape=[-1, units])
    dw = nn.dense(call("transpose", flat_grad, axes=None), call("transpose", flat_x, axes=None))
    return [_as(dx, x, dtype), _as(dw, w, dtype)]


def _as_dtype(expr: Expr, dtype: str) -> Expr:
    return expr if type_of(expr).dtype == dtype else call("cast", expr, dtype=dtype)


@rule("nn.matmul", "nn.batch_matmul")
def matmul(node: ast.Call, grad: Expr) -> list[Expr | None]:
    assert isinstance(node.op, ast.Op) and node.attrs is not None
    multiply = nn.matmul if node.op.name == "nn.matmul" else nn.batch_matmul
    a, b = node.args
    turned_a, turned_b = bool(node.attrs["transpose_a"]), bool(node.attrs["transpose_b"])
    dtype = type_of(node).dtype
    wide_a, wide_b = _as_dtype(a, dtype), _as_dtype(b, dtype)

    def product(left: Expr, right: Expr, turn_left: bool, turn_right: bool) -> Expr:
        return multiply(left, right, transpose_a=turn_left, transpose_b=turn_right)

    if turned_a:
        da = product(wide_b, grad, turned_b, True)
    else:
        da = product(grad, wide_b, False, not turned_b)
    if turned_b:
        db = product(grad, wide_a, True, turned_a)
    else:
        db = product(wide_a, grad, not turned_a, False)
    return [_as(_batched(da, a, b), a, dtype), _as(_batched(db, b, a), b, dtype)]


def _batched(grad: Expr, arg: Expr, other: Expr) -> Expr:
    """Sum over a batch that the argument was broadcast along."""
    mine, theirs = type_of(arg).shape, type_of(other).shape
    return grad if mine[:-2] == theirs[:-2] else like(grad, arg)


# ---- convolutions


@rule("nn.conv2d")
def conv2d(node: ast.Call, grad: Expr) -> list[Expr | None]:
    attrs = node.attrs
    assert attrs is not None
    x, w = node.args
    dtype, data_layout, kernel_layout = type_of(node).dtype, attrs.data_layout, attrs.kernel_layout
    if attrs.out_layout and attrs.out_layout != data_layout:
        grad = call("layout_transform", grad, src_layout=attrs.out_layout, dst_layout=data_layout)
    top, left, bottom, right = relax_padding(attrs.padding, 2)
    taps = [type_of(w).concrete_shape[kernel_layout.index(a)] for a in "HW"]
    sizes = [type_of(x).concrete_shape[data_layout.index(a)] for a in "HW"]
    channels = type_of(x).concrete_shape[data_layout.index("C")]
    out = _out_sizes(sizes, taps, attrs, (top + bottom, left + right))
    rest = [
        size - ((n - 1) * int(stride) + int(d) * (k - 1) + 1 - pad)
        for size, n, stride, d, k, pad in zip(
            sizes, out, attrs.strides, attrs.dilation, taps, (top + bottom, left + right),
            strict=True,
        )
    ]  # fmt: skip
    common: dict[str, Any] = {
        "strides": attrs.strides,
        "padding": (top, left, bottom, right),
        "dilation": attrs.dilation,
        "groups": attrs.groups,
        "kernel_size": taps,
    }
    dx = nn.conv2d_transpose(
        grad, _as_dtype(w, dtype), channels=channels, data_layout=data_layout,
        kernel_layout=kernel_layout.translate(_SWAP), output_padding=rest, **common,
    )  # fmt: skip
    dw = nn.conv2d_backward_weight(
        grad, _as_dtype(x, dtype), channels=attrs.channels, grad_layout=data_layout,
        data_layout=data_layout, kernel_layout=kernel_layout, **common,
    )  # fmt: skip
    return [_as(dx, x, dtype), _as(dw, w, dtype)]


def _out_sizes(sizes: list[int], taps: list[int], attrs: Any, pads: tuple[int, ...]) -> list[int]:
    return [
        (size + pad - int(d) * (k - 1) - 1) // int(stride) + 1
        for size, k, d, stride, pad in zip(
            sizes, taps, attrs.dilation, attrs.strides, pads, strict=True
        )
    ]


@rule("nn.conv2d_transpose")
def conv2d_transpose(node: ast.Call, grad: Expr) -> list[Expr | None]:
    """The data's gradient is the forward convolution; the weight's exchanges data and gradient."""
    attrs = node.attrs
    assert attrs is not None
    x, w = node.args
    dtype, layout = type_of(node).dtype, attrs.data_layout
    if attrs.out_layout and attrs.out_layout != layout:
        grad = call("layout_transform", grad, src_layout=attrs.out_layout, dst_layout=layout)
    forward = attrs.kernel_layout.translate(_SWAP)
    taps = [type_of(w).concrete_shape[forward.index(a)] for a in "HW"]
    common: dict[str, Any] = {
        "strides": attrs.strides,
        "padding": relax_padding(attrs.padding, 2),
        "dilation": attrs.dilation,
        "groups": attrs.groups,
        "kernel_size": taps,
    }
    channels = type_of(x).concrete_shape[layout.index("C")]
    dx = nn.conv2d(
        grad, _as_dtype(w, dtype), channels=channels, data_layout=layout, kernel_layout=forward,
        **common,
    )  # fmt: skip
    dw = nn.conv2d_backward_weight(
        _as_dtype(x, dtype), grad, grad_layout=layout, data_layout=layout, kernel_layout=forward,
        **common,
    )  # fmt: skip
    return [_as(dx, x, dtype), _as(dw, w, dtype)]


@rule("nn.conv3d")
def conv3d(node: ast.Call, grad: Expr) -> list[Expr | None]:
    """The weight's gradient is a convolution of the data with the gradient, batch for channels."""
    attrs = node.attrs
    assert attrs is not None
    if int(attrs.groups) != 1 or (attrs.data_layout, attrs.kernel_layout) != ("NCDHW", "OIDHW"):
        raise UnsupportedOp(
            f"the gradient of nn.conv3d with groups={attrs.groups} in {attrs.data_layout}",
            "groups=1 in NCDHW and OIDHW",
        )
    x, w = node.args
    taps, sizes = type_of(w).concrete_shape[2:], type_of(x).concrete_shape[2:]
    padding = relax_padding(attrs.padding, 3)
    out = type_of(node).concrete_shape[2:]
    strides, dilation = [int(s) for s in attrs.strides], [int(d) for d in attrs.dilation]
    rest = [
        sizes[i] + padding[i] + padding[i + 3]
        - ((out[i] - 1) * strides[i] + dilation[i] * (taps[i] - 1) + 1)
        for i in range(3)
    ]  # fmt: skip
    dx = nn.conv3d_transpose(
        grad, w, strides=strides, padding=padding, dilation=dilation, channels=type_of(x).shape[1],
        kernel_size=taps, kernel_layout="IODHW", output_padding=rest,
    )  # fmt: skip
    swapped = [call("transpose", e, axes=[1, 0, 2, 3, 4]) for e in (x, grad)]
    # The last elements of the data that no window covers would add taps: they are cut off.
    cut = [*padding[:3], *(p - r for p, r in zip(padding[3:], rest, strict=True))]
    crop = [max(0, -c) for c in cut[3:]]
    data: Expr = swapped[0]
    if any(crop):
        end = [
            type_of(x).shape[1],
            type_of(x).shape[0],
            *(s - c for s, c in zip(sizes, crop, strict=True)),
        ]
        data = call("strided_slice", data, begin=[0] * 5, end=end, strides=[1] * 5, axes=None)
    dw = nn.conv3d(
        data, swapped[1], strides=dilation, padding=[max(0, c) for c in cut], dilation=strides,
        channels=type_of(w).shape[0], kernel_size=out,
    )  # fmt: skip
    return [dx, call("transpose", dw, axes=[1, 0, 2, 3, 4])]
