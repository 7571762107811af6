"""``convoy.max_pool2d_backward`` and ``convoy.avg_pool2d_backward``: pooling gradients as gathers.

Each input pixel reads the few windows that contain it. A maximum's gradient goes to the first pixel
of the window that has it, in row order, as in PyTorch.
"""

from __future__ import annotations

from collections.abc import Sequence

from tvm import relax

from ..graph.expr import Ints, attr_fields, ints, padding4
from .pool_loops import averaged, first_maximum, scattered
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


def _window(pool_size: Ints, strides: Ints, padding: Ints) -> dict[str, list[int]]:
    size, stride = ints(pool_size), ints(strides)
    return {
        "pool_size": [size[0], size[-1]],
        "strides": [stride[0], stride[-1]],
        "padding": list(padding4(padding)),
    }


def _infer(call: relax.Call, _builder: relax.BlockBuilder | None = None) -> relax.TensorType:
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
        which = builder.emit(
            builder.call_te(first_maximum, x, y, **attrs, primfunc_name_hint="max_pool2d_argmax")
        )
        dx = builder.call_te(
            scattered, dy, which, size=x.ty.shape, **attrs,
            primfunc_name_hint="max_pool2d_backward", primfunc_attrs={"op_pattern": 4},
        )  # fmt: skip
    else:
        dx = builder.call_te(
            averaged, *args, **attrs, primfunc_name_hint="avg_pool2d_backward",
            primfunc_attrs={"op_pattern": 4},
        )  # fmt: skip
    if layout == "NHWC":
        return dx
    return builder.emit(relax.op.permute_dims(builder.emit(dx), back))


register_op(
    "max_pool2d_backward", "Gradient of max pooling.", _infer, _legalize, max_pool2d_backward
)
register_op(
    "avg_pool2d_backward", "Gradient of average pooling.", _infer, _legalize, avg_pool2d_backward
)
