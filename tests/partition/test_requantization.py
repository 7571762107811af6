"""What makes int8 of the sums of a convolution is its epilogue, with the same values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tvm
from hypothesis import given, settings
from hypothesis import strategies as st
from tvm import relax
from tvm.relax import op

from convoy.graph.expr import as_numpy
from convoy.ir.workload import Workload
from convoy.measure import reference
from convoy.partition.subgraphs import Subgraph, find_subgraphs

from ..graph.nets import run_llvm

SHAPE, K = (1, 5, 4, 8), 12
Emit = Callable[[relax.Expr], relax.Expr]


def network(
    scale: Any = 1e-4, shift: Any = None, relu: bool = False, factor: Any = None, zero: Any = None,
    bounds: tuple[float, float] = (-128, 127), biases: int = 0, dtype: str = "int8",
    between: Callable[[relax.Expr], relax.Expr] | None = None, twice: bool = False,
) -> tvm.IRModule:  # fmt: skip
    """A convolution of int8 and the operators that requantize it, as the normal form has them."""
    rng, builder = np.random.default_rng(0), relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType(SHAPE, "int8"))
    w = relax.const(rng.integers(-128, 128, (K, 3, 3, SHAPE[3]), np.int8))

    def const(value: Any, dtype: str = "float32") -> relax.Expr:
        return relax.const(np.asarray(value, dtype))

    with builder.function("main", [x]):
        with builder.dataflow():
            layouts = {"data_layout": "NHWC", "kernel_layout": "OHWI"}
            y = builder.emit(op.nn.conv2d(x, w, padding=1, out_dtype="int32", **layouts))
            for _ in range(biases):
                bias = rng.integers(-5000, 5000, (1, 1, 1, K))
                y = builder.emit(op.add(y, const(bias, "int32")))
            y = rounded = builder.emit(op.astype(y, "float32"))
            y = builder.emit(op.multiply(y, const(scale)))
            if shift is not None:
                y = builder.emit(op.add(y, const(shift)))
            if relu:
                y = builder.emit(op.nn.relu(y))
            if factor is not None:
                y = builder.emit(op.multiply(y, const(factor)))
            if between is not None:
                y = builder.emit(between(y))
            y = builder.emit(op.round(y))
            if zero is not None:
                y = builder.emit(op.add(y, const(zero)))
            y = builder.emit(op.clip(y, *bounds))
            y = builder.emit_output(op.astype(y, dtype))
            results = [y, builder.emit_output(op.negative(rounded))] if twice else [y]
        builder.emit_func_output(relax.Tuple(results) if twice else y)
    return builder.get()


def longest(mod: tvm.IRModule) -> tuple[Subgraph, Workload]:
    found = max(find_subgraphs(mod), key=lambda subgraph: len(subgraph.ops))
    return found, found.require_workload()


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_values_are_those_of_the_network(data: st.DataObject) -> None:
    """By the reference of the workload, with its operands: bit for bit what the network says."""
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))

    def scales(low: float, high: float) -> Any:
        return rng.uniform(low, high, data.draw(st.sampled_from([(), (K,), (1, 1, 1, K)])))

    options: dict[str, Any] = {"scale": scales(1e-5, 1e-3), "biases": data.draw(st.integers(0, 2))}
    if data.draw(st.booleans()):
        options["shift"] = scales(-9, 9)
    if data.draw(st.booleans()):
        options |= {"factor": scales(0.1, 9), "relu": data.draw(st.booleans())}
    if data.draw(st.booleans()):
        options["zero"] = data.draw(st.integers(-128, 127))
    options["bounds"] = data.draw(st.sampled_from([(-128, 127), (-100, 127), (0, 127)]))
    mod = network(**options)
    subgraph, workload = longest(mod)
    assert workload.requantizes and workload.epilogue.activation == "clip"
    x = rng.integers(-128, 128, SHAPE, np.int8)
    _, w, rows = subgraph.inputs
    operands = {"x": x, "w": as_numpy(w), "bias": as_numpy(rows)}
    (want,) = run_llvm(mod, x)
    assert np.array_equal(reference.full(workload, operands)[0], want)


@pytest.mark.parametrize(
    "options",
    [
        {"dtype": "uint8", "bounds": (0, 255)},
        {"bounds": (-128, 100)},
        {"bounds": (-128.5, 127)},
        {"zero": 0.5},
        {"zero": 300.0},
        {"zero": np.arange(K)},
        {"factor": -1.0, "relu": True},
        {"scale": np.inf},
        {"between": op.tanh},
        {"twice": True},
    ],
)
def test_others_end_in_int32(options: dict[str, Any]) -> None:
    _, workload = longest(network(biases=1, **options))
    assert (workload.out_dtype, workload.epilogue.name) == ("int32", "bias")


def test_biases_add_up_with_wraparound() -> None:
    subgraph, workload = longest(network(biases=2, bounds=(-128, 100)))
    assert workload.epilogue.name == "bias" and len(subgraph.ops) == 3
    rng = np.random.default_rng(0)
    rng.integers(-128, 128, (K, 3, 3, SHAPE[3]), np.int8)
    drawn = [rng.integers(-5000, 5000, (1, 1, 1, K)) for _ in range(2)]
    assert np.array_equal(as_numpy(subgraph.inputs[2]), sum(drawn).reshape(-1))
