"""``convoy.max_pool2d_backward`` and ``convoy.avg_pool2d_backward``: pooling gradients as gathers.

Each input pixel looks at the few windows that contain it. A maximum's gradient goes to the first
pixel of a window that has it, in row order, as in PyTorch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import relax, te, tirx

from ..graph.expr import FLOAT_DTYPES, attr_fields, dtype_of, ints, padding4, shape_of
from ..tir import pool_gradient
from ..tir.pool_gradient import MaxPool
from .gpu import on_gpu
from .registration import NAMESPACE, make_call, register_op

MAX_POOL = NAMESPACE + "max_pool2d_backward"
AVG_POOL = NAMESPACE + "avg_pool2d_backward"


def max_pool2d_backward(
    dy: relax.Expr,
    x: relax.Expr,
    y: relax.Expr,
    pool_size: Sequence[int],
    strides: Sequence[int] = (1, 1),
    padding: Sequence[int] = (0, 0),
    dilation: Sequence[int] = (1, 1),
    layout: str = "NHWC",
) -> relax.Call:
    """Gradient of ``relax.nn.max_pool2d`` with respect to its input.

    ``dy`` and ``y`` (N, P, Q, C) are the gradient of its output and the output, ``x``
    (N, H, W, C) its input; ``layout`` is that of all of them.
    """
    return make_call(
        "max_pool2d_backward", [dy, x, y], **_window(pool_size, strides, padding),
        dilation=list(ints(dilation)) * (2 // len(ints(dilation))), layout=str(layout),
    )  # fmt: skip


def avg_pool2d_backward(
    dy: relax.Expr,
    x: relax.Expr,
    pool_size: Sequence[int],
    strides: Sequence[int] = (1, 1),
    padding: Sequence[int] = (0, 0),
    count_include_pad: bool = False,
    layout: str = "NHWC",
) -> relax.Call:
    """Gradient of ``relax.nn.avg_pool2d`` with respect to its input ``x`` (N, H, W, C), of which
    only the shape counts; ``dy`` is (N, P, Q, C)."""
    return make_call(
        "avg_pool2d_backward", [dy, x], **_window(pool_size, strides, padding),
        count_include_pad=bool(count_include_pad), layout=str(layout),
    )  # fmt: skip


def _window(pool_size: Any, strides: Any, padding: Any) -> dict[str, list[int]]:
    size, stride = ints(pool_size), ints(strides)
    return {
        "pool_size": [size[0], size[-1]],
        "strides": [stride[0], stride[-1]],
        "padding": list(padding4(padding)),
    }


def _infer(call: relax.Call, _builder: Any = None) -> relax.TensorType:
    return call.args[1].ty


def _legalize(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    attrs = attr_fields(call.attrs)
    layout = str(attrs.pop("layout"))
    to, back = ([a.index(letter) for letter in b] for a, b in ((layout, "NHWC"), ("NHWC", layout)))
    args = list(call.args)
    if layout != "NHWC":
        args = [builder.emit(relax.op.permute_dims(arg, to)) for arg in args]
    if call.op.name == MAX_POOL:
        dy, x, y = args
        if on_gpu() and (kernels := _kernels(x, y, attrs)) is not None:
            dx = _called(builder, kernels, dy, x, y)
            return dx if layout == "NHWC" else builder.emit(relax.op.permute_dims(dx, back))
        which = builder.emit(
            builder.call_te(_first, x, y, **attrs, primfunc_name_hint="max_pool2d_argmax")
        )
        dx = builder.call_te(
            _scattered, dy, which, size=x.ty.shape, **attrs,
            primfunc_name_hint="max_pool2d_backward", primfunc_attrs={"op_pattern": 4},
        )  # fmt: skip
    else:
        dx = builder.call_te(
            _averaged, *args, **attrs, primfunc_name_hint="avg_pool2d_backward",
            primfunc_attrs={"op_pattern": 4},
        )  # fmt: skip
    if layout == "NHWC":
        return dx
    return builder.emit(relax.op.permute_dims(builder.emit(dx), back))


def _kernels(
    x: relax.Expr, y: relax.Expr, attrs: dict[str, Any]
) -> tuple[tirx.PrimFunc, tirx.PrimFunc] | None:
    """The two GPU kernels of a max pool's gradient; None where they do not serve."""
    window, stride, padding, dilation = _tuples(
        attrs["pool_size"], attrs["strides"], attrs["padding"], attrs["dilation"]
    )
    if dilation != (1, 1) or window[0] * window[1] > 256 or dtype_of(x) not in FLOAT_DTYPES:
        return None
    (n, h, w, c), (_, p, q, _) = shape_of(x), shape_of(y)
    pool = MaxPool(
        n, h, w, c, p, q, (window[0], window[1]), (stride[0], stride[1]), (padding[0], padding[1]),
        dtype_of(x),
    )  # fmt: skip
    return pool_gradient.first_maximum(pool), pool_gradient.scatter(pool)


def _called(
    builder: relax.BlockBuilder,
    kernels: tuple[tirx.PrimFunc, tirx.PrimFunc],
    dy: relax.Expr,
    x: relax.Expr,
    y: relax.Expr,
) -> relax.Expr:
    first = builder.add_func(kernels[0], "max_pool2d_argmax")
    second = builder.add_func(kernels[1], "max_pool2d_backward")
    taps = relax.TensorType(shape_of(y), "uint8")
    which = builder.emit(relax.op.call_tir(first, [x, y], taps))
    return builder.emit(relax.op.call_tir(second, [dy, which], x.ty))


def _first(x, y, pool_size, strides, padding, dilation):  # type: ignore[no-untyped-def]
    """The number (row by row) of the first tap of each window that equals its maximum."""
    size, stride, padding, dilation = _tuples(pool_size, strides, padding, dilation)
    _, h, w, _ = (int(d) for d in x.shape)

    def element(n, p, q, c):  # type: ignore[no-untyped-def]
        found = tirx.const(size[0] * size[1] - 1, "int32")
        for tap in reversed(range(size[0] * size[1] - 1)):
            row = p * stride[0] - padding[0] + tap // size[1] * dilation[0]
            column = q * stride[1] - padding[1] + tap % size[1] * dilation[1]
            inside = te.all(row >= 0, row < h, column >= 0, column < w)
            value = tirx.if_then_else(inside, x[n, row, column, c], tirx.min_value(str(x.dtype)))
            found = tirx.Select(
                tirx.all(value == y[n, p, q, c], inside), tirx.const(tap, "int32"), found
            )
        return found.astype("uint8" if size[0] * size[1] <= 256 else "int32")

    return te.compute(y.shape, element, name="argmax")


def _windows(size, stride, padding, dilation, shape, rows, columns):  # type: ignore[no-untyped-def]
    """For a pixel (h, w): reduction axes over the windows near it, and of each the position
    (p, q), its tap there, and whether there is such a window."""
    if dilation == (1, 1):  # windows whose first row is at most a window's height above
        count = [-(-size[i] // stride[i]) for i in range(2)]
        axes = [te.reduce_axis((0, count[i]), name="ab"[i]) for i in range(2)]

        def near(i, at, axis, limit):  # type: ignore[no-untyped-def]
            position = te.indexdiv(at + padding[i], stride[i]) - axis
            tap = at + padding[i] - position * stride[i]
            return position, tap, [position >= 0, position < limit, tap < size[i]]
    else:
        axes = [te.reduce_axis((0, size[i]), name="ab"[i]) for i in range(2)]

        def near(i, at, axis, limit):  # type: ignore[no-untyped-def]
            start = at + padding[i] - axis * dilation[i]
            position = te.indexdiv(start, stride[i])
            whole = te.indexmod(start, stride[i]) == 0
            return position, axis, [start >= 0, whole, position < limit]

    def at(h, w):  # type: ignore[no-untyped-def]
        p, r, first = near(0, h, axes[0], rows)
        q, s, second = near(1, w, axes[1], columns)
        return p, q, r, s, te.all(*first, *second)

    return axes, at


def _scattered(dy, which, size, pool_size, strides, padding, dilation):  # type: ignore[no-untyped-def]
    taps, stride, padding, dilation = _tuples(pool_size, strides, padding, dilation)
    n, h, w, c = (int(d) for d in size)
    rows, columns = int(dy.shape[1]), int(dy.shape[2])
    axes, at = _windows(taps, stride, padding, dilation, (h, w), rows, columns)
    dtype = str(dy.dtype)
    acc = "float32" if dtype in ("float16", "bfloat16") else dtype

    def element(b, i, j, ch):  # type: ignore[no-untyped-def]
        p, q, r, s, inside = at(i, j)
        tap = (r * taps[1] + s).astype("int32")
        zero = tirx.const(0.0, acc)
        chosen = which[b, p, q, ch].astype("int32") == tap
        value = tirx.Select(chosen, dy[b, p, q, ch].astype(acc), zero)
        return te.sum(tirx.if_then_else(inside, value, zero), axis=axes)

    return _rounded(te.compute((n, h, w, c), element, name="scattered"), dtype)


def _averaged(dy, x, pool_size, strides, padding, count_include_pad):  # type: ignore[no-untyped-def]
    taps, stride, padding = _tuples(pool_size, strides, padding)
    h, w = int(x.shape[1]), int(x.shape[2])
    rows, columns = int(dy.shape[1]), int(dy.shape[2])
    axes, at = _windows(taps, stride, padding, (1, 1), (h, w), rows, columns)
    dtype = str(dy.dtype)
    acc = "float32" if dtype in ("float16", "bfloat16") else dtype

    def length(i, position, size):  # type: ignore[no-untyped-def]
        start = position * stride[i] - padding[i]
        low, high = (-padding[i], size + padding[i + 2]) if bool(count_include_pad) else (0, size)
        return te.min(start + taps[i], high) - te.max(start, low)

    def element(b, i, j, ch):  # type: ignore[no-untyped-def]
        p, q, _, _, inside = at(i, j)
        area = (length(0, p, h) * length(1, q, w)).astype(acc)
        value = dy[b, p, q, ch].astype(acc) / area
        return te.sum(tirx.if_then_else(inside, value, tirx.const(0.0, acc)), axis=axes)

    return _rounded(te.compute(x.shape, element, name="averaged"), dtype)


def _tuples(*values: Sequence[int]) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(int(v) for v in value) for value in values)


def _rounded(value: te.Tensor, dtype: str) -> te.Tensor:
    if str(value.dtype) == dtype:
        return value
    return te.compute(value.shape, lambda *i: value(*i).astype(dtype), name="rounded")


register_op(
    "max_pool2d_backward", "Gradient of max pooling.", _infer, _legalize, max_pool2d_backward
)
register_op(
    "avg_pool2d_backward", "Gradient of average pooling.", _infer, _legalize, avg_pool2d_backward
)
