"""Constant indices are counted from the end once, and what changes nothing is gone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tvm import relax
from tvm.relax import op

from convoy.graph.expr import as_numpy
from convoy.graph.function import calls_of
from convoy.normalize.normal_form import normalize


def _taken(x: Any, places: list[int], dtype: str, mode: str) -> Any:
    """A module that takes places along the last axis of ``x``."""
    builder = relax.BlockBuilder()
    params = [x] if isinstance(x, relax.Var) else []
    with builder.function("main", params):
        with builder.dataflow():
            indices = relax.const(np.array(places, dtype))
            found = builder.emit_output(op.take(x, indices, -1, mode=mode))
        builder.emit_func_output(found)
    return builder.get()


@pytest.mark.parametrize(
    ("mode", "expected"), [("fast", [199, 3, 0]), ("clip", [-1, 3, -200]), ("wrap", [-1, 3, -200])]
)
@pytest.mark.parametrize("dtype", ["int16", "int32", "int64"])
def test_constant_indices_of_fast_mode_are_nonnegative(
    mode: str, dtype: str, expected: list[int]
) -> None:
    x = relax.Var("x", relax.TensorType((2, 200), "float32"))
    mod = normalize(_taken(x, [-1, 3, -200], dtype, mode), dtype="float32")
    (call,) = calls_of(mod, frozenset({"relax.take"}))
    assert as_numpy(call.args[1]).tolist() == expected


def test_indices_narrower_than_the_axis() -> None:
    x = relax.Var("x", relax.TensorType((2, 200), "float32"))
    mod = normalize(_taken(x, [-1], "int8", "fast"), dtype="float32")
    (call,) = calls_of(mod, frozenset({"relax.take"}))
    assert as_numpy(call.args[1]).tolist() == [199]


def test_a_take_of_a_constant_is_folded() -> None:
    x = relax.const(np.arange(6, dtype="float32").reshape(2, 3))
    mod = normalize(_taken(x, [-1, 0], "int64", "fast"), dtype="float32")
    assert not calls_of(mod, frozenset({"relax.take"}))


def test_a_split_into_one_part_is_the_tensor() -> None:
    builder, x = relax.BlockBuilder(), relax.Var("x", relax.TensorType((2, 8), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            part = builder.emit(op.split(x, 1, 1))
            found = builder.emit_output(op.add(part, x))
        builder.emit_func_output(found)
    mod = normalize(builder.get(), dtype="float32")
    assert not calls_of(mod, frozenset({"relax.split"}))


def test_a_slice_of_all_is_the_tensor() -> None:
    """But not the reversed one."""
    builder, x = relax.BlockBuilder(), relax.Var("x", relax.TensorType((2, 8), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            same = builder.emit(op.strided_slice(x, [0, 1], [0, -8], [2, 100], [1, 1]))
            turned = builder.emit(op.strided_slice(x, [1], [7], [-9], [-1]))
            found = builder.emit_output(op.add(same, turned))
        builder.emit_func_output(found)
    slices = calls_of(normalize(builder.get(), dtype="float32"), frozenset({"relax.strided_slice"}))
    assert [int(call.args[4].fields[0]) for call in slices] == [-1]
