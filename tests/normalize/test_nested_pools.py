"""Maxima over large windows are those of maxima over smaller ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tvm import relax
from tvm.relax import op

from convoy.graph.expr import ints, op_name
from convoy.graph.function import bindings_of
from convoy.normalize.nested_pools import NestPools

from ..graph.nets import run_llvm

Window = tuple[int, int]


def pools(shape: tuple[int, ...], *windows: Window, **changed: Any) -> Any:
    """All maxima of one tensor in NHWC."""
    x = relax.Var("x", relax.TensorType(shape, "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            found = [builder.emit(pool(x, window, **changed)) for window in windows]
            result = builder.emit_output(relax.Tuple(found))
        builder.emit_func_output(result)
    return builder.get()


def pool(x: Any, window: Window, **changed: Any) -> Any:
    centred = {"padding": [w // 2 for w in window] * 2, "layout": "NHWC"}
    return op.nn.max_pool2d(x, list(window), **(centred | changed))


def windows_of(mod: Any) -> list[Window]:
    values = [binding.value for binding in bindings_of(mod["main"])]
    return [ints(v.attrs.pool_size) for v in values if op_name(v) == "relax.nn.max_pool2d"]


sizes = st.integers(0, 5).map(lambda half: 2 * half + 1)


@settings(max_examples=20, deadline=None)
@given(st.data())
def test_maxima_are_the_same(data: st.DataObject) -> None:
    shape = (data.draw(st.integers(1, 2)), *data.draw(st.tuples(*[st.integers(1, 9)] * 2)), 3)
    windows = data.draw(st.lists(st.tuples(sizes, sizes), min_size=2, max_size=4))
    mod = pools(shape, *windows)
    x = np.random.default_rng(0).standard_normal(shape).astype("float32")
    x[..., 0] -= 100  # zeros of a padding would be larger
    for got, want in zip(run_llvm(NestPools()(mod), x), run_llvm(mod, x), strict=True):
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("order", [(5, 9, 13), (13, 5, 9), (9, 5, 13, 5)])
def test_a_pyramid_is_a_chain(order: tuple[int, ...]) -> None:
    mod = pools((1, 20, 20, 8), *((k, k) for k in order))
    assert windows_of(NestPools()(mod)) == [(5, 5)] * 3


@pytest.mark.parametrize(
    "changed", [{"strides": [2, 2]}, {"dilation": [2, 2]}, {"padding": [1, 1, 1, 1]}]
)
def test_others_stay(changed: dict[str, list[int]]) -> None:
    mod = pools((1, 20, 20, 8), (3, 3), (5, 5), **changed)
    kept = windows_of(NestPools()(mod))
    assert sorted(kept) == [(3, 3), (5, 5)]


def test_windows_that_no_other_contains_stay() -> None:
    assert windows_of(NestPools()(pools((1, 9, 9, 8), (1, 5), (5, 1)))) == [(1, 5), (5, 1)]
