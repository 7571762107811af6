"""recast: operators computed in another dtype between casts."""

from __future__ import annotations

import numpy as np
import pytest

from convoy import relay
from convoy.relay.testing import count_ops
from convoy.relay.visit import post_order


def network() -> relay.Function:
    x, y = relay.var("x", shape=(1, 2, 5, 5)), relay.var("y", shape=(1, 2, 5, 5))
    w = relay.var("w", shape=(4, 4, 3, 3))
    joined = relay.concatenate([x, y], axis=1)
    first = relay.nn.conv2d(joined, w, padding=(1, 1))
    return relay.Function([x, y, w], relay.nn.conv2d(first, w, padding=(1, 1)))


@pytest.mark.parametrize(
    ("skip", "dtypes"),
    [((), ["float16"] * 2), ((0,), ["float32", "float16"]), ((-1,), ["float16", "float32"])],
)
def test_calls_that_are_skipped_keep_their_dtype(skip: tuple[int, ...], dtypes: list[str]) -> None:
    found = relay.transform.recast(network(), "float16", "float16", skip_layers=skip)
    calls = [
        node.checked_type.dtype
        for node in post_order(found)
        if isinstance(node, relay.Call) and node.op.name == "nn.conv2d"
    ]
    assert calls == dtypes
    assert found.checked_type.ret_type == relay.TensorType((1, 4, 5, 5))


def test_values_of_tuples_and_integers() -> None:
    function = network()
    found = relay.transform.recast(function, "int8", "int32", ops=["nn.conv2d", "concatenate"])
    assert count_ops(found)["cast"] == 2 + 1 + 2 * 2 + 2
    rng = np.random.default_rng(5)
    shapes = [p.type_annotation.concrete_shape for p in function.params]
    values = [rng.integers(-2, 3, s).astype("float32") for s in shapes]
    values[2][:] = rng.integers(0, 2, shapes[2]) * (rng.random(shapes[2]) < 0.1)
    results = [
        relay.create_executor("graph", relay.IRModule.from_expr(f)).evaluate()(*values).numpy()
        for f in (function, found)
    ]
    np.testing.assert_array_equal(*results)
