"""Gradients of pooling."""

from __future__ import annotations

from convoy.errors import UnsupportedOp
from convoy.relay import ast
from convoy.relay.ast import Expr
from convoy.relay.gradient.common import call, scaled, type_of
from convoy.relay.gradient.registry import rule
from convoy.relay.schema import op_schema


@rule("nn.max_pool2d", "nn.avg_pool2d")
def pool2d(node: ast.Call, grad: Expr) -> list[Expr | None]:
    assert isinstance(node.op, ast.Op) and node.attrs is not None
    attrs = dict(node.attrs)
    dilation = attrs.pop("dilation")
    if any(int(d) != 1 for d in dilation):
        raise UnsupportedOp(f"the gradient of {node.op.name} with dilation {dilation}", "1")
    name, layout = f"{node.op.name}_grad", str(attrs["layout"])
    if layout == "NCHW":
        return [call(name, grad, node.args[0], **_known(node.op.name, attrs))]
    plain = [
        call("layout_transform", e, src_layout=layout, dst_layout="NCHW")
        for e in (grad, node.args[0])
    ]
    attrs.update(layout="NCHW", out_layout="")
    back = call(name, *plain, **_known(node.op.name, attrs))
    return [call("layout_transform", back, src_layout="NCHW", dst_layout=layout)]


def _known(name: str, attrs: dict[str, object]) -> dict[str, object]:
    """Return the attributes that the gradient's operator has too."""
    cls = op_schema(f"{name}_grad").attrs
    assert cls is not None
    return {key: value for key, value in attrs.items() if key in cls.field_names}


@rule("nn.max_pool1d", "nn.avg_pool1d")
def pool1d(node: ast.Call, grad: Expr) -> list[Expr | None]:
    """Pool over two axes, the first of size 1."""
    assert isinstance(node.op, ast.Op) and node.attrs is not None
    attrs = dict(node.attrs)
    layout = str(attrs["layout"])
    axis = layout.index("W")
    flat = [call("expand_dims", e, axis=axis, num_newaxis=1) for e in (grad, node.args[0])]
    padding = list(attrs["padding"])
    before, after = padding[0], padding[-1]
    wide = {
        **attrs,
        "layout": layout.replace("W", "HW"),
        "pool_size": [1, *attrs["pool_size"]],
        "strides": [1, *attrs["strides"]],
        "padding": [0, before, 0, after],
        "out_layout": "",
    }
    name = node.op.name.replace("1d", "2d")
    if any(int(d) != 1 for d in attrs["dilation"]):
        raise UnsupportedOp(f"the gradient of {node.op.name} with dilation", "1")
    back = call(f"{name}_grad", *flat, **_known(name, wide))
    return [call("squeeze", back, axis=[axis])]


def _spatial(node: ast.Call) -> list[int]:
    assert node.attrs is not None
    return [i for i, letter in enumerate(node.attrs["layout"]) if letter in "DHW"]


@rule("nn.global_avg_pool2d")
def global_avg_pool2d(node: ast.Call, grad: Expr) -> list[Expr | None]:
    x = node.args[0]
    shape = type_of(x).concrete_shape
    count = 1
    for axis in _spatial(node):
        count *= shape[axis]
    wide = call("broadcast_to_like", grad, x)
    return [scaled(wide, 1 / count, type_of(x).dtype)]


@rule("nn.global_max_pool2d")
def global_max_pool2d(node: ast.Call, grad: Expr) -> list[Expr | None]:
    x = node.args[0]
    chosen = call("cast", call("equal", x, node), dtype=type_of(x).dtype)
    number = call("sum", chosen, axis=_spatial(node), keepdims=True)
    return [call("divide", call("multiply", chosen, grad), number)]


@rule("nn.adaptive_avg_pool2d")
def adaptive_avg_pool2d(node: ast.Call, grad: Expr) -> list[Expr | None]:
    """With a result that divides the data, each window is a block of its own."""
    x = node.args[0]
    shape, out = type_of(x).concrete_shape, type_of(node).concrete_shape
    if any(n % m for n, m in zip(shape, out, strict=True)):
        raise UnsupportedOp(
            f"the gradient of nn.adaptive_avg_pool2d from {shape} to {out}", "sizes that divide"
        )
    count = 1
    for axis, (n, m) in enumerate(zip(shape, out, strict=True)):
        if n != m:
            count *= n // m
            grad = call("repeat", grad, repeats=n // m, axis=axis)
    return [scaled(grad, 1 / count, type_of(x).dtype)]
