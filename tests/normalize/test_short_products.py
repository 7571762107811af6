"""Linear layers over a few heads of attention are element-wise sums."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tvm import relax
from tvm.relax import op

from convoy.graph.expr import shape_of

from ..graph.nets import Net, count_ops
from .test_normalize import check_same

HEADS, QUERIES, KEYS = 4, 5, 7


def linear(net: Net, x: relax.Expr, k: int) -> relax.Expr:
    y = net.emit(op.matmul(x, net.const(shape_of(x)[-1], k)))
    return net.emit(op.add(y, net.const(k)))


def moved(net: Net, x: relax.Expr, *axes: int) -> relax.Expr:
    return net.emit(op.permute_dims(x, list(axes)))


def mixed(net: Net, scores: relax.Expr) -> relax.Expr:
    """Before and behind the softmax over the keys, which is not over the last axis."""
    y = linear(net, moved(net, scores, 0, 2, 3, 1), 6)
    y = linear(net, net.emit(op.nn.softmax(y, 2)), HEADS)
    return moved(net, y, 0, 3, 1, 2)


def of_pixels(net: Net, scores: relax.Expr) -> relax.Expr:
    return net.bias(net.conv(net.emit(op.nn.softmax(scores, 3)), HEADS, r=1))


def transposed(net: Net, scores: relax.Expr) -> relax.Expr:
    """Another order of the other axes, and no way back."""
    return linear(net, moved(net, scores, 3, 0, 2, 1), 3)


@pytest.mark.parametrize(("body", "moves"), [(mixed, 0), (of_pixels, 0), (transposed, 1)])
def test_mixed_heads_stay_where_they_are(
    body: Callable[[Net, relax.Expr], relax.Expr], moves: int
) -> None:
    net = Net((2, HEADS, QUERIES, KEYS))
    normal = check_same(net.finish(body(net, net.emit(op.tanh(net.x)))))
    counts = count_ops(normal)
    assert not {"relax.matmul", "relax.nn.conv2d"} & set(counts)
    assert counts.get("relax.permute_dims", 0) == moves


def last(net: Net) -> relax.Expr:
    return linear(net, net.emit(op.tanh(net.x)), 6)


def many(net: Net) -> relax.Expr:
    return linear(net, moved(net, net.emit(op.tanh(net.x)), 0, 2, 3, 1), 17)


def of_an_input(net: Net) -> relax.Expr:
    return linear(net, moved(net, net.x, 0, 2, 3, 1), 6)


@pytest.mark.parametrize("body", [last, many, of_an_input])
def test_other_products_stay(body: Callable[[Net], relax.Expr]) -> None:
    net = Net((2, HEADS, QUERIES, KEYS))
    assert count_ops(check_same(net.finish(body(net))))["relax.matmul"] == 1
