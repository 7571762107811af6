"""Scales and shifts behind relus and clips go into the weights and bounds in front of them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tvm import relax
from tvm.relax import op

from convoy.graph.expr import number, op_name
from convoy.graph.function import bindings_of
from convoy.normalize.normal_form import normalize
from convoy.normalize.scaled_activations import ScaleActivations
from convoy.partition.subgraphs import find_subgraphs

from ..helpers.evaluate import evaluate

ACTIVATIONS: dict[str, Any] = {
    "relu": op.nn.relu,
    "relu6": lambda y: op.clip(y, 0.0, 6.0),
    "clip": lambda y: op.clip(y, -0.25, 0.5),
    "leaky": lambda y: op.nn.leakyrelu(y, 0.1),
    "sigmoid": op.sigmoid,
}
#: Those that are bounds.
BOUNDS = ("relu", "relu6", "clip")
CHANNELS = 4


def network(
    activation: str,
    scale: Any = None,
    shift: Any = None,
    dtype: str = "float16",
    bias: bool = True,
    read: str = "",
    weights: bool = True,
) -> Any:
    """A linear layer, an activation, a scale and a shift. ``read`` is the value that others
    read, too; without constant ``weights`` they are an input."""
    rng = np.random.default_rng(0)
    x = relax.Var("x", relax.TensorType((30, 8), dtype))
    w = relax.Var("w", relax.TensorType((8, CHANNELS), dtype))
    bb = relax.BlockBuilder()

    def constant(value: Any) -> Any:
        return relax.const(np.asarray(value, dtype))

    with bb.function("main", [x] if weights else [x, w]):
        with bb.dataflow():
            matrix = constant(rng.uniform(-1, 1, (8, CHANNELS))) if weights else w
            values = {"product": bb.emit(op.matmul(x, matrix))}
            y = values["product"]
            if bias:
                y = bb.emit(op.add(y, constant(rng.uniform(-1, 1, CHANNELS))))
            values["activation"] = y = bb.emit(ACTIVATIONS[activation](y))
            if scale is not None:
                values["scaled"] = y = bb.emit(op.multiply(y, constant(scale)))
            if shift is not None:
                y = bb.emit(op.add(y, constant(shift)))
            gv = bb.emit_output(relax.Tuple([y, *([values[read]] if read else [])]))
        bb.emit_func_output(gv)
    return bb.get()


def names(mod: Any) -> list[str]:
    found = [op_name(binding.value) for binding in bindings_of(mod["main"])]
    return [name.removeprefix("relax.") for name in found if name]


def inputs(mod: Any) -> list[np.ndarray]:
    rng = np.random.default_rng(1)
    shapes = [tuple(map(int, param.ty.shape)) for param in mod["main"].params]
    return [rng.standard_normal(shape) for shape in shapes]


def check_same(changed: Any, mod: Any, data: list[np.ndarray] | None = None) -> None:
    data = data if data is not None else inputs(mod)
    for got, want in zip(evaluate(changed, data), evaluate(mod, data), strict=True):
        np.testing.assert_allclose(got, want, rtol=4e-3, atol=4e-3)  # weights in float16


number_ = st.floats(-3.0, 3.0, width=16).filter(lambda value: abs(value) > 0.05)


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(BOUNDS), st.none() | number_, st.none() | number_, st.booleans())
def test_numbers_become_weights_and_bounds(
    activation: str, scale: float | None, shift: float | None, bias: bool
) -> None:
    mod = network(activation, scale, shift, bias=bias)
    changed = ScaleActivations("float16")(mod)
    check_same(changed, mod)
    if scale is not None or shift is not None:
        assert names(changed)[-1] in ("clip", "nn.relu")
        assert names(changed).count("add") <= 1 and "multiply" not in names(changed)


@settings(max_examples=20, deadline=None)
@given(
    st.sampled_from(["relu", "leaky"]),
    st.lists(st.floats(0.125, 3.0, width=16), min_size=CHANNELS, max_size=CHANNELS),
)
def test_positive_scales_of_channels_pass(activation: str, scale: list[float]) -> None:
    for dtype in ("float16", "float32"):
        mod = network(activation, scale, dtype=dtype)
        changed = ScaleActivations(dtype)(mod)
        check_same(changed, mod)
        assert names(changed) == names(network(activation))


@pytest.mark.parametrize("read", ["product", "activation"])
def test_values_that_others_read_stay(read: str) -> None:
    mod = network("relu", 2.0, 0.5, bias=False, read=read)
    changed = ScaleActivations("float16")(mod)
    assert names(changed) == names(mod)
    check_same(changed, mod)


def test_a_scale_that_others_read_as_well() -> None:
    mod = network("relu", 2.0, 0.5, bias=False, read="scaled")
    changed = ScaleActivations("float16")(mod)
    assert names(changed) == ["matmul", "nn.relu", "add"]
    check_same(changed, mod)


@pytest.mark.parametrize(
    "how",
    [
        {"activation": "sigmoid", "scale": 2.0, "shift": 0.5},
        {"activation": "leaky", "scale": 2.0, "shift": 0.5},
        {"activation": "leaky", "scale": -2.0},
        {"activation": "relu", "scale": [1.0, 2.0, 3.0, -1.0]},
        {"activation": "relu", "scale": 2.0, "shift": [1.0, 2.0, 3.0, 4.0]},
        {"activation": "relu", "scale": 0.0, "shift": 1.0},
        {"activation": "relu", "scale": math.nan},
        {"activation": "relu", "scale": 2.0, "shift": math.inf},
        {"activation": "clip", "scale": [1.0, 2.0, 3.0, 4.0]},
        {"activation": "relu", "scale": 2.0, "shift": 0.5, "weights": False},
    ],
)
def test_others_stay(how: dict[str, Any]) -> None:
    mod = network(**how)
    assert names(ScaleActivations("float16")(mod)) == names(mod)


def test_infinity_is_a_bound_of_16_bit_floats_alone() -> None:
    mod = network("relu", 2.0, 0.5, dtype="float32")
    assert names(ScaleActivations("float32")(mod)) == names(mod)
    changed = ScaleActivations("float32")(network("relu6", 2.0, 0.5, dtype="float32"))
    values = [binding.value for binding in bindings_of(changed["main"])]
    (clip,) = [value for value in values if op_name(value) == "relax.clip"]
    assert [float(number(bound)) for bound in clip.args[1:]] == [0.5, 12.5]


@pytest.mark.parametrize("scale", [1.5, -1.5])
def test_nan_and_infinity(scale: float) -> None:
    mod = network("relu", scale, 0.25)
    data = inputs(mod)
    data[0][0, 0], data[0][1, 0], data[0][2, 0] = np.nan, np.inf, 1e5
    changed = ScaleActivations("float16")(mod)
    with np.errstate(all="ignore"):
        got, want = evaluate(changed, data)[0], evaluate(mod, data)[0]
    np.testing.assert_array_equal(np.isnan(got), np.isnan(want))
    np.testing.assert_allclose(got, want, rtol=4e-3, atol=4e-3)


@pytest.mark.parametrize("scale", [1.5, -1.5])
def test_they_are_an_epilogue(scale: float) -> None:
    module = normalize(network("relu", scale, 0.25), dtype="float16")
    epilogues = [s.require_workload().epilogue for s in find_subgraphs(module)]
    found = [epilogue for epilogue in epilogues if epilogue.activation == "clip"]
    assert len(found) == 1 and found[0].bias
    low, high = found[0].clip_min, found[0].clip_max
    assert (low, high > 1e38) == (0.25, True) if scale > 0 else (low < -1e38, high) == (True, 0.25)
