"""Which external functions may read their weights before their predecessor has ended."""

from __future__ import annotations

import numpy as np
import tvm
from tvm import relax

from convoy.partition.rewrite import with_constant_weights

TYPE = relax.TensorType((4, 4), "float32")


def module(*calls: tuple[str, bool]) -> tvm.IRModule:
    """Calls of external functions one after the other; weights are a constant or a parameter."""
    builder = relax.BlockBuilder()
    x, w = relax.Var("x", TYPE), relax.Var("w", TYPE)
    with builder.function("main", [x, w]):
        with builder.dataflow():
            y: relax.Expr = x
            for symbol, constant in calls:
                weights = relax.const(np.ones((4, 4), "float32")) if constant else w
                y = builder.emit(relax.op.call_dps_packed(symbol, [y, weights], out_ty=TYPE))
            result = builder.emit_output(y)
        builder.emit_func_output(result)
    return builder.get()


def test_constants_in_every_call() -> None:
    found = with_constant_weights(module(("a", True), ("b", False), ("c", True), ("a", True)), {})
    assert found == {"a", "c"}


def test_one_parameter_is_enough_to_wait() -> None:
    assert with_constant_weights(module(("a", True), ("a", False), ("a", True)), {}) == set()
