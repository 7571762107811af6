"""Gradients of reductions, softmax and losses."""

from __future__ import annotations

import math

from convoy.relay import ast
from convoy.relay.ast import Expr
from convoy.relay.gradient.common import (
    call,
    const,
    like,
    reduced_axes,
    restored,
    scaled,
    spread,
    type_of,
)
from convoy.relay.gradient.registry import rule


def _count(node: ast.Call) -> int:
    """Return how many elements of the data make one of the result."""
    shape = type_of(node.args[0]).concrete_shape
    return math.prod(shape[a] for a in reduced_axes(node))


@rule("sum")
def sum_(node: ast.Call, grad: Expr) -> list[Expr | None]:
    return [spread(grad, node)]


@rule("mean")
def mean(node: ast.Call, grad: Expr) -> list[Expr | None]:
    return [scaled(spread(grad, node), 1 / max(_count(node), 1), type_of(node).dtype)]


@rule("max", "min")
def extreme(node: ast.Call, grad: Expr) -> list[Expr | None]:
    """The elements that are largest share the gradient."""
    x = node.args[0]
    chosen = call("cast", call("equal", x, restored(node, node)), dtype=type_of(x).dtype)
    axes = list(reduced_axes(node))
    number = call("sum", chosen, axis=axes, keepdims=True)
    return [call("divide", call("multiply", chosen, restored(grad, node)), number)]


@rule("prod")
def prod(node: ast.Call, grad: Expr) -> list[Expr | None]:
    """The product over an element: the data may not be 0."""
    over = call("divide", restored(node, node), node.args[0])
    return [call("multiply", restored(grad, node), over)]


@rule("variance")
def variance(node: ast.Call, grad: Expr) -> list[Expr | None]:
    assert node.attrs is not None
    x, center = node.args
    count = _count(node) - bool(node.attrs["unbiased"])
    factor = scaled(restored(grad, node), 2 / max(count, 1), type_of(x).dtype)
    dx = call("multiply", factor, call("subtract", x, center))
    return [dx, like(call("negative", dx), center)]


@rule("cumsum")
def cumsum(node: ast.Call, grad: Expr) -> list[Expr | None]:
    assert node.attrs is not None
    x = node.args[0]
    axis, flat = node.attrs["axis"], grad
    number = 0 if axis is None else int(axis)
    turned = call("reverse", flat, axis=number)
    summed = call("cumsum", turned, axis=number, exclusive=node.attrs["exclusive"])
    return [call("reshape_like", call("reverse", summed, axis=number), x)]


# ---- softmax


@rule("nn.softmax", "nn.fast_softmax")
def softmax(node: ast.Call, grad: Expr) -> list[Expr | None]:
    assert node.attrs is not None
    product = call("multiply", grad, node)
    total = call("sum", product, axis=[int(node.attrs["axis"])], keepdims=True)
    return [call("multiply", call("subtract", grad, total), node)]


@rule("nn.log_softmax")
def log_softmax(node: ast.Call, grad: Expr) -> list[Expr | None]:
    assert node.attrs is not None
    total = call("sum", grad, axis=[int(node.attrs["axis"])], keepdims=True)
    return [call("subtract", grad, call("multiply", call("exp", node), total))]


# ---- losses: means over the batch


@rule("nn.cross_entropy")
def cross_entropy(node: ast.Call, grad: Expr) -> list[Expr | None]:
    """-sum(y * log(x)) / n."""
    x, y = node.args
    per = scaled(grad, -1 / type_of(x).concrete_shape[0], type_of(x).dtype)
    return [
        call("multiply", per, call("divide", y, x)),
        call("multiply", per, call("log", x)),
    ]


@rule("nn.cross_entropy_with_logits")
def cross_entropy_with_logits(node: ast.Call, grad: Expr) -> list[Expr | None]:
    """-sum(y * x) / n."""
    x, y = node.args
    per = scaled(grad, -1 / type_of(x).concrete_shape[0], type_of(x).dtype)
    return [call("multiply", per, y), call("multiply", per, x)]


@rule("nn.l2_normalize")
def l2_normalize(node: ast.Call, grad: Expr) -> list[Expr | None]:
    """x * r with r = rsqrt(max(sum(x^2), eps)): dx is r * (grad - y * sum(grad * y))."""
    assert node.attrs is not None
    x = node.args[0]
    dtype, axes = type_of(x).dtype, [int(a) for a in node.attrs["axis"]]
    squares = call("sum", call("multiply", x, x), axis=axes, keepdims=True)
    eps = const(node.attrs["eps"], dtype)
    root = call("rsqrt", call("maximum", squares, eps))
    along = call("sum", call("multiply", grad, node), axis=axes, keepdims=True)
    is_free = call("cast", call("greater", squares, eps), dtype=dtype)
    along = call("multiply", along, is_free)
    return [call("multiply", root, call("subtract", grad, call("multiply", node, along)))]
