"""Reductions over one axis after the other become one reduction."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tvm import relax
from tvm.relax import op

from convoy.graph.expr import op_name, shape_of
from convoy.graph.function import bindings_of
from convoy.normalize.normal_form import normalize
from convoy.normalize.reductions import MergeReductions

from ..helpers.evaluate import evaluate

REDUCTIONS = {"max": op.max, "min": op.min, "sum": op.sum, "prod": op.prod, "mean": op.mean}


def names(mod: Any) -> list[str]:
    found = [op_name(binding.value) for binding in bindings_of(mod["main"])]
    return [name.removeprefix("relax.") for name in found if name]


def check_same(mod: Any, dtype: str = "float32") -> Any:
    changed = MergeReductions()(mod)
    rng = np.random.default_rng(0)
    shape = tuple(map(int, mod["main"].params[0].ty.shape))
    data = [(3 * rng.standard_normal(shape)).astype(dtype)]
    for got, want in zip(evaluate(changed, data), evaluate(mod, data), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-6)
    return changed


def network(shape: tuple[int, ...], steps: Any, dtype: str = "float32") -> Any:
    """A module of ``steps(emit, x)``, which gives its results."""
    bb = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType(shape, dtype))
    with bb.function("main", [x]):
        with bb.dataflow():
            gv = bb.emit_output(relax.Tuple(list(steps(bb.emit, x))))
        bb.emit_func_output(gv)
    return bb.get()


def with_ones(draw: Any, shape: list[int]) -> list[int]:
    """A shape with other axes of one element."""
    kept = [size for size in shape if size != 1]
    for _ in range(draw(st.integers(0, 2))):
        kept.insert(draw(st.integers(0, len(kept))), 1)
    return kept or [1]


@settings(max_examples=80, deadline=None)
@given(st.data(), st.sampled_from(sorted(REDUCTIONS)))
def test_results_are_the_same(data: Any, name: str) -> None:
    shape = tuple(data.draw(st.lists(st.sampled_from([1, 1, 2, 3, 4]), min_size=1, max_size=4)))
    count = data.draw(st.integers(1, 3))

    def steps(emit: Any, x: Any) -> Any:
        for _ in range(count):
            if data.draw(st.booleans()):
                x = emit(op.reshape(x, with_ones(data.draw, list(shape_of(x)))))
            axes = data.draw(st.sets(st.integers(0, len(shape_of(x)) - 1), max_size=2))
            keep = data.draw(st.booleans()) or len(axes) in (0, len(shape_of(x)))
            x = emit(REDUCTIONS[name](x, sorted(axes) or None, keepdims=keep))
        return [x]

    check_same(network(shape, steps))


def global_maximum(emit: Any, x: Any) -> Any:
    n, c, h, w = shape_of(x)
    rows = emit(op.max(emit(op.reshape(x, (n, c, h, 1, w))), axis=[4]))
    return emit(op.max(emit(op.reshape(rows, (n, c, 1, h, 1))), axis=[3]))


def test_a_global_maximum_is_one_reduction_without_a_copy() -> None:
    mod = network((2, 8, 5, 6), lambda emit, x: [global_maximum(emit, x)])
    changed = check_same(mod)
    assert names(changed) == ["max"]
    (found,) = [b.value for b in bindings_of(changed["main"]) if op_name(b.value)]
    assert [int(axis) for axis in found.attrs.axis] == [2, 3]


def test_a_global_maximum_of_an_image_behind_a_convolution_is_not_transposed() -> None:
    rng = np.random.default_rng(0)
    weights = relax.const(rng.standard_normal((8, 8, 3, 3)).astype("float32"))

    def steps(emit: Any, x: Any) -> Any:
        y = emit(op.nn.conv2d(x, weights, padding=1))
        return [global_maximum(emit, y), emit(op.nn.conv2d(y, weights))]

    found = normalize(network((2, 8, 16, 16), steps))
    values = [b.value for b in bindings_of(found["main"]) if op_name(b.value) == "relax.max"]
    assert [shape_of(value.args[0]) for value in values] == [(2, 16, 16, 8)]


@pytest.mark.parametrize("other", ["read", "kind", "cast", "merged axes"])
def test_others_stay(other: str) -> None:
    def steps(emit: Any, x: Any) -> Any:
        second = op.min if other == "kind" else op.max
        inner = emit(op.max(x, axis=[2]))
        y = emit(op.astype(inner, "float16")) if other == "cast" else inner
        y = emit(op.reshape(y, (12,))) if other == "merged axes" else y
        return [emit(second(y, axis=[0])), *([inner] if other == "read" else [])]

    mod = network((3, 4, 5), steps)
    assert names(check_same(mod)) == names(mod)


def test_integers() -> None:
    def steps(emit: Any, x: Any) -> Any:
        return [emit(op.sum(emit(op.sum(x, axis=[2], keepdims=True)), axis=[1]))]

    assert names(check_same(network((3, 4, 5), steps, "int32"), "int32"))[0] == "sum"
