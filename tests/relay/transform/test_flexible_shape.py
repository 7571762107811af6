"""FlexibleShapeDispatch: each size gets the values of the network of that size."""

from __future__ import annotations

import numpy as np
import pytest

from convoy import relay
from convoy.errors import InvalidOption
from convoy.relay import tvm018 as tvm


def run(mod: relay.IRModule, *arrays: np.ndarray) -> list[np.ndarray]:
    machine = relay.vm.VirtualMachine(relay.vm.compile(mod, "llvm"), tvm.cpu())
    found = machine.invoke("main", *arrays)
    return [t.numpy() for t in found] if isinstance(found, list) else [found.numpy()]


def drawn(*shape: int) -> np.ndarray:
    return np.random.default_rng(shape).standard_normal(shape).astype("float32")


@pytest.mark.parametrize("size", [1, 3, 4, 6])
def test_padded_sizes_give_the_rows_of_the_exact_one(size: int) -> None:
    x, weight = relay.var("x", shape=(2, 5)), drawn(3, 5)
    dense = relay.nn.dense(x, relay.const(weight))
    mod = relay.IRModule.from_expr(relay.Tuple([relay.nn.relu(dense), dense]))
    dispatch = relay.transform.FlexibleShapeDispatch(buckets=[1, 4, 6], auto_pad=True)
    data = drawn(size, 5)
    relu, plain = run(dispatch(mod), data)
    expected = data.astype("float64") @ weight.T.astype("float64")
    np.testing.assert_allclose(plain, expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(relu, np.maximum(expected, 0), rtol=1e-5, atol=1e-5)


def test_an_axis_that_the_result_does_not_have() -> None:
    x, w = relay.var("x", shape=(4, 8)), relay.var("w", shape=(3, 8))
    mod = relay.IRModule.from_expr(relay.nn.dense(x, w))
    dispatch = relay.transform.FlexibleShapeDispatch(
        buckets=[5, 7], axis=1, input_indices=[0, 1], affects_output=False
    )
    mod = dispatch(mod)
    for size in (5, 7):
        a, b = drawn(4, size), drawn(3, size)
        np.testing.assert_allclose(run(mod, a, b)[0], a @ b.T, rtol=1e-4, atol=1e-5)


def test_unknown_inputs_are_refused() -> None:
    mod = relay.IRModule.from_expr(relay.nn.relu(relay.var("x", shape=(2, 2))))
    with pytest.raises(InvalidOption, match="input_indices"):
        relay.transform.FlexibleShapeDispatch(buckets=[1], input_indices=[1])(mod)
    with pytest.raises(InvalidOption, match="buckets"):
        relay.transform.FlexibleShapeDispatch(buckets=[])
