"""FoldScaleAxis: scales of channels go into weights, and values stay."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from convoy import relay
from convoy.relay import transform
from convoy.relay import tvm018 as tvm
from convoy.relay.visit import post_order

SHAPE = (2, 4, 6, 6)
RNG = np.random.default_rng(11)


def const(*shape: int, low: float = -1.0) -> relay.Constant:
    return relay.const(RNG.uniform(low, 1.5, shape), "float32")


def products(mod: Any) -> int:
    nodes = post_order(mod["main"])
    return sum(isinstance(n, relay.Call) and n.op == relay.op.get("multiply") for n in nodes)


def after(x: relay.Expr) -> relay.Expr:
    """Products behind a convolution, a bias and a relu, and behind a sum of two convolutions."""
    y = relay.nn.conv2d(x, const(6, 4, 3, 3), padding=(1, 1))
    y = relay.nn.relu(relay.nn.bias_add(y, const(6))) * const(6, 1, 1, low=0.5)
    a = relay.nn.conv2d(y, const(5, 6, 1, 1)) + const(5, 1, 1)
    b = relay.nn.conv2d(y, const(5, 6, 1, 1))
    return relay.subtract(a, b) * const(1, 5, 1, 1)


def before(x: relay.Expr) -> relay.Expr:
    """Products that a convolution for each channel, and two users, take."""
    y = const(4, 1, 1, low=0.5) * x
    y = relay.nn.leaky_relu(relay.subtract(y, const(4, 1, 1)), 0.2)
    a = relay.nn.conv2d(y, const(4, 1, 3, 3), groups=4, padding=(1, 1))
    return a + relay.nn.conv2d(y, const(4, 4, 1, 1))


def dense(x: relay.Expr) -> relay.Expr:
    y = relay.nn.batch_flatten(x) * const(144)
    return relay.nn.dense(y, const(7, 144)) * relay.const(0.25)


@pytest.mark.parametrize(("network", "left"), [(after, 0), (before, 0), (dense, 0)])
def test_products_vanish(network: Callable[[relay.Expr], relay.Expr], left: int) -> None:
    x = relay.var("x", shape=SHAPE)
    mod = tvm.IRModule.from_expr(network(x))
    with tvm.transform.PassContext(opt_level=3):
        folded = transform.FoldScaleAxis()(mod)
    assert products(folded) == left
    data = np.random.default_rng(1).standard_normal(SHAPE).astype("float32")
    results = [
        relay.create_executor("vm", m, target="llvm").evaluate()(data).numpy()
        for m in (mod, folded)
    ]
    np.testing.assert_allclose(results[1], results[0], rtol=1e-4, atol=1e-4)


def test_what_stays() -> None:
    """A negative scale before relu, a value that others use, and groups."""
    x = relay.var("x", shape=SHAPE)
    y = relay.nn.conv2d(x, const(4, 4, 1, 1))
    negative = relay.nn.relu(y) * relay.const(-np.ones((4, 1, 1)), "float32")
    shared = relay.Tuple([y * const(4, 1, 1), relay.exp(y)])
    groups = relay.nn.conv2d(x * const(4, 1, 1), const(6, 2, 1, 1), groups=2)
    along_rows = relay.nn.conv2d(x * const(1, 6, 1), const(4, 4, 1, 1))
    for body in (negative, shared, groups, along_rows):
        mod = transform.InferType()(tvm.IRModule.from_expr(body))
        for step in (transform.BackwardFoldScaleAxis(), transform.ForwardFoldScaleAxis()):
            assert relay.structural_equal(step(mod), mod)
