"""Tensor arrays of the prelude compute what numpy computes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from convoy import relay
from convoy.errors import InvalidOption
from convoy.relay.adt import ADT, ConstructorValue
from convoy.relay.prelude import Prelude, StaticTensorArrayOps, TensorArrayOps

DTYPE, SHAPE = "float32", (2, 3)
ROWS = [np.arange(6, dtype=DTYPE).reshape(SHAPE) + 10 * i for i in range(3)]


@pytest.fixture(params=["ranked", "static"])
def arrays(request: pytest.FixtureRequest) -> TensorArrayOps:
    prelude = Prelude()
    static = request.param == "static"
    ops = StaticTensorArrayOps(prelude, DTYPE, SHAPE) if static else TensorArrayOps(prelude, DTYPE)
    ops.register()
    return ops


def element(ops: TensorArrayOps, value: Any) -> relay.Expr:
    return ops.get_ctor("tensor_constructor" if hasattr(ops, "shape") else "tensor2")(value)


def filled(ops: TensorArrayOps) -> relay.Expr:
    array = ops.get_global_var("tensor_array")(relay.const(3))
    for i, row in enumerate(ROWS):
        write = ops.get_global_var("tensor_array_write")
        array = write(array, relay.const(i), element(ops, relay.const(row)))
    return array


def run(ops: TensorArrayOps, body: relay.Expr) -> Any:
    mod = ops.prelude.mod
    mod["main"] = relay.Function([], body)
    return tensors(relay.create_executor("vm", mod).evaluate()())


def tensors(value: Any) -> list[np.ndarray]:
    if isinstance(value, (ADT, ConstructorValue)):
        return [leaf for field in value for leaf in tensors(field)]
    return [value.numpy()]


def check(got: list[np.ndarray], want: list[np.ndarray]) -> None:
    assert len(got) == len(want)
    for a, b in zip(got, want, strict=True):
        np.testing.assert_array_equal(a, b)


def test_read_and_write(arrays: TensorArrayOps) -> None:
    read = arrays.get_global_var("tensor_array_read")
    check(run(arrays, read(filled(arrays), relay.const(1))), ROWS[1:2])


def test_stack_and_gather(arrays: TensorArrayOps) -> None:
    stack = arrays.get_global_var("tensor_array_stack")
    check(run(arrays, stack(filled(arrays))), [np.stack(ROWS)])
    gather, places = arrays.get_global_var("tensor_array_gather"), np.array([2, 0], "int32")
    check(run(arrays, gather(filled(arrays), relay.const(places))), [np.stack([ROWS[2], ROWS[0]])])


def test_scatter(arrays: TensorArrayOps) -> None:
    places = relay.const(np.array([1, 2], "int32"))
    found = arrays.get_global_var("tensor_array_scatter")(filled(arrays), places, filled(arrays))
    check(run(arrays, found), [ROWS[0], ROWS[0], ROWS[1]])


def test_take_and_join_rows(arrays: TensorArrayOps) -> None:
    first = element(arrays, relay.const(ROWS[0]))
    take = arrays.get_global_var("tensor_take")
    check(run(arrays, take(first, relay.const(1), relay.const(2))), [ROWS[0][1:]])
    join = arrays.get_global_var("tensor_concatenate")
    check(run(arrays, join(first, first)), [np.concatenate([ROWS[0], ROWS[0]])])


def test_split_and_unstack(arrays: TensorArrayOps) -> None:
    static = hasattr(arrays, "shape")
    rows: TensorArrayOps = arrays
    if static:
        rows = StaticTensorArrayOps(arrays.prelude, DTYPE, (relay.Any(), 3))
        rows.register()
    array = rows.get_global_var("tensor_array")(relay.const(2))
    lengths = relay.const(np.array([1, 1], "int32"))
    value = element(arrays, relay.const(ROWS[0]))
    split = arrays.get_global_var("tensor_array_split")(array, value, lengths)
    check(run(arrays, split), [ROWS[0][:1], ROWS[0][1:]])
    whole = arrays.get_global_var("tensor_array_concat")(split)
    check(run(arrays, whole), ROWS[:1])
    name = "tensor_array_unstack" if static else "tensor_array_unstack_tensor2"
    check(run(arrays, arrays.get_global_var(name)(relay.const(ROWS[0]))), list(ROWS[0]))


def test_numbers_are_32_bits_wide() -> None:
    prelude, n = Prelude(), relay.var("n")
    prelude.mod["main"] = relay.Function([n], prelude.get_global_var("tensor_array", DTYPE)(n))
    assert len(run_list(relay.create_executor("vm", prelude.mod).evaluate()(4))) == 4


def run_list(value: Any) -> list[Any]:
    return [value.fields[0], *run_list(value.fields[1])] if len(value) else []


def test_a_batch_size_is_refused() -> None:
    with pytest.raises(InvalidOption, match="batch_dim"):
        StaticTensorArrayOps(Prelude(), DTYPE, SHAPE, batch_dim=1)


def test_definitions_are_text() -> None:
    mod = Prelude().mod
    TensorArrayOps(Prelude(mod), DTYPE).register()
    assert relay.structural_equal(relay.parse(mod.astext()), mod)
