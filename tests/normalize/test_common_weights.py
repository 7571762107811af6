"""Sums of products with the same weights become a product of the sum."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tvm import relax
from tvm.relax import op

from convoy.graph.expr import dtype_of, op_name, shape_of
from convoy.graph.function import bindings_of
from convoy.normalize.common_weights import SumBeforeProducts

from ..helpers.evaluate import evaluate


def network(biases: tuple[bool, bool] = (False, False), **how: bool) -> Any:
    """``x w + y w``, with biases. ``how`` has the weights of the second product be ``other`` ones
    or an ``input``, its result be ``read`` by others, its data be the ``same`` or of another
    ``shape``, or of integers (``whole``)."""
    rng = np.random.default_rng(0)
    dtype = "int32" if how.get("whole") else "float32"
    x = relax.Var("x", relax.TensorType((4, 6), dtype))
    y = relax.Var("y", relax.TensorType((1 if how.get("shape") else 4, 6), dtype))
    w = relax.Var("w", relax.TensorType((6, 3), dtype))

    def constant(*shape: int) -> Any:
        return relax.const(rng.integers(-3, 4, shape).astype(dtype))

    weights = constant(6, 3)
    second = constant(6, 3) if how.get("other") else w if how.get("input") else weights
    bb = relax.BlockBuilder()
    with bb.function("main", [x, y, w]):
        with bb.dataflow():
            products = []
            for data, matrix, bias in ((x, weights, biases[0]), (y, second, biases[1])):
                data = x if how.get("same") else data
                product = bb.emit(op.matmul(data, matrix))
                products.append(bb.emit(op.add(product, constant(3))) if bias else product)
            total = bb.emit(op.add(*products))
            results = [total, *(products[1:] if how.get("read") else [])]
            gv = bb.emit_output(relax.Tuple(results))
        bb.emit_func_output(gv)
    return bb.get()


def products(mod: Any) -> int:
    return sum(op_name(b.value) == "relax.matmul" for b in bindings_of(mod["main"]))


def check_same(mod: Any) -> Any:
    changed = SumBeforeProducts()(mod)
    rng = np.random.default_rng(1)
    params = mod["main"].params
    data = [rng.integers(-4, 5, shape_of(p)).astype(dtype_of(p)) for p in params]
    for got, want in zip(evaluate(changed, data), evaluate(mod, data), strict=True):
        np.testing.assert_array_equal(got, want)  # whole numbers
    return changed


@settings(max_examples=8, deadline=None)
@given(st.tuples(st.booleans(), st.booleans()))
def test_they_become_one(biases: tuple[bool, bool]) -> None:
    assert products(check_same(network(biases))) == 1


@pytest.mark.parametrize("how", ["other", "input", "read", "same", "shape", "whole"])
def test_others_stay(how: str) -> None:
    assert products(check_same(network((True, False), **{how: True}))) == 2


def test_images_with_equal_weights() -> None:
    rng = np.random.default_rng(0)
    weights = rng.standard_normal((5, 6, 3, 3)).astype("float32")
    bb = relax.BlockBuilder()
    x, y = (relax.Var(name, relax.TensorType((2, 6, 7, 7), "float32")) for name in "xy")
    with bb.function("main", [x, y]):
        with bb.dataflow():
            convs = [
                bb.emit(op.nn.conv2d(data, relax.const(weights), padding=1)) for data in (x, y)
            ]
            gv = bb.emit_output(op.add(*convs))
        bb.emit_func_output(gv)
    mod = bb.get()
    changed = SumBeforeProducts()(mod)
    names = [op_name(binding.value) for binding in bindings_of(changed["main"])]
    assert names[:2] == ["relax.add", "relax.nn.conv2d"]
    data = [rng.standard_normal((2, 6, 7, 7)) for _ in range(2)]
    np.testing.assert_allclose(evaluate(changed, data)[0], evaluate(mod, data)[0], rtol=1e-6)
