"""LazyGradientInit keeps values and types, and leaves no neutral tensor."""

from __future__ import annotations

import numpy as np
import pytest

from convoy import relay
from convoy.relay.testing import count_ops


def run(function: relay.Function, *args: np.ndarray) -> list[np.ndarray]:
    mod = relay.IRModule.from_expr(function)
    found = relay.create_executor("debug", mod=mod).evaluate()(*args)
    return [t.numpy() for t in found] if isinstance(found, list) else [found.numpy()]


@pytest.mark.parametrize("shape", [(3, 4), (1, 4), (4,)])
def test_sums_and_products(shape: tuple[int, ...]) -> None:
    x, wide = relay.var("x", shape=shape), relay.zeros((3, 4), "float32")
    terms = [
        x + relay.zeros_like(x),
        relay.ones_like(x) * x,
        wide + x,
        x * relay.ones((1,), "float32"),
    ]
    function = relay.Function([x], relay.Tuple(terms))
    mod = relay.transform.LazyGradientInit()(relay.IRModule.from_expr(function))
    value = np.random.default_rng(1).standard_normal(shape).astype("float32")
    for found, expected in zip(run(mod["main"], value), run(function, value), strict=True):
        np.testing.assert_array_equal(found, expected)
    counts = count_ops(mod["main"])
    assert counts["add"] == (0 if shape == (3, 4) else 1)  # the one that broadcasts x
    assert counts["multiply"] == 0


def test_gradients() -> None:
    x = relay.var("x", shape=(3, 4))
    y = relay.var("y", shape=(4,))
    function = relay.testing.run_infer_type(relay.Function([x, y], relay.tanh(x * y) + x))
    backward = relay.transform.gradient(function)
    mod = relay.transform.LazyGradientInit()(relay.IRModule.from_expr(backward))
    rng = np.random.default_rng(2)
    values = [rng.standard_normal(s).astype("float32") for s in ((3, 4), (4,))]
    machine = relay.create_executor("debug", mod=mod).evaluate()
    _, (dx, dy) = machine(*values)
    a, b = (v.astype("float64") for v in values)
    slope = 1 - np.tanh(a * b) ** 2
    np.testing.assert_allclose(dx.numpy(), slope * b + 1, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(dy.numpy(), (slope * a).sum(0), rtol=1e-4, atol=1e-5)
