"""Sparse tensors, argwhere and unique against numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from convoy import relay
from convoy.errors import RelayTypeError

RNG = np.random.default_rng(7)


def evaluate(build: Any, *arrays: np.ndarray) -> list[np.ndarray]:
    """The results of an expression of variables."""
    params = [relay.var(f"x{i}", shape=a.shape, dtype=str(a.dtype)) for i, a in enumerate(arrays)]
    built = build(*params)
    body = built.astuple() if isinstance(built, relay.TupleWrapper) else built
    found = relay.create_executor("vm").evaluate(relay.Function(params, body))(*arrays)
    return [t.numpy() for t in found] if isinstance(found, (list, tuple)) else [found.numpy()]


def compressed(matrix: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Data, columns and row pointers of a matrix."""
    rows, columns = np.nonzero(matrix)
    pointers = np.searchsorted(rows, np.arange(len(matrix) + 1))
    return matrix[rows, columns], columns.astype("int32"), pointers.astype("int32")


def sparse(rows: int, columns: int) -> np.ndarray:
    dense = RNG.uniform(-1, 1, (rows, columns)) * (RNG.random((rows, columns)) < 0.4)
    return dense.astype("float32")


@pytest.mark.parametrize("constant", [True, False])
def test_products_with_compressed_rows(constant: bool) -> None:
    w, x = sparse(6, 8), RNG.uniform(-1, 1, (5, 8)).astype("float32")
    parts = compressed(w)

    def build(x: Any, *fields: Any) -> Any:
        matrix = parts if constant else fields
        return relay.Tuple(
            [
                relay.nn.sparse_dense(x, matrix),
                relay.nn.sparse_dense(x, matrix, sparse_lhs=True),
                relay.nn.sparse_add(relay.const(np.ones((6, 8), "float32")), matrix),
            ]
        )

    got = evaluate(build, x, *(() if constant else parts))
    for value, want in zip(got, (x @ w.T, w @ x.T, 1 + w), strict=True):
        np.testing.assert_allclose(value, want, 1e-5, 1e-6)


def test_blocks() -> None:
    data, columns = RNG.uniform(-1, 1, (3, 2, 4)).astype("float32"), np.array([1, 0, 2], "int32")
    pointers, x = np.array([0, 1, 3], "int32"), RNG.uniform(-1, 1, (5, 12)).astype("float32")
    w = np.zeros((4, 12), "float32")
    w[0:2, 4:8], w[2:4, 0:4], w[2:4, 8:12] = data
    (got,) = evaluate(lambda x, *m: relay.nn.sparse_dense(x, m), x, data, columns, pointers)
    np.testing.assert_allclose(got, x @ w.T, 1e-5, 1e-6)


def test_transpose() -> None:
    w = sparse(6, 6)
    got = evaluate(lambda *m: relay.nn.sparse_transpose(m), *compressed(w))
    for value, want in zip(got, compressed(w.T), strict=True):
        np.testing.assert_array_equal(value, want)


def test_to_dense() -> None:
    places, values = np.array([[0, 1], [2, 0]]), np.array([3.5, 4], "float32")
    (got,) = evaluate(lambda i, v: relay.sparse_to_dense(i, [3, 2], v, relay.const(7)), places,
                      values)  # fmt: skip
    np.testing.assert_array_equal(got, np.array([[7, 3.5], [7, 7], [4, 7]], "float32"))
    (got,) = evaluate(lambda i, v, s: relay.sparse_to_dense(i, s, v), places, values,
                      np.array([3, 3]))  # fmt: skip
    np.testing.assert_array_equal(got, np.array([[0, 3.5, 0], [0, 0, 0], [4, 0, 0]], "float32"))


@pytest.mark.parametrize(
    ("old", "new", "shape"),
    [([4, 6], [3, -1], [3, 8]), ([2, 3, 4], [24], [24]), ([6], [2, 3], [2, 3])],
)
def test_reshape(old: list[int], new: list[int], shape: list[int]) -> None:
    flat = RNG.choice(np.prod(old), 5, replace=False)
    places = np.stack(np.unravel_index(flat, old), 1)
    got, sizes = evaluate(relay.sparse_reshape, places, np.array(old), np.array(new))
    np.testing.assert_array_equal(got, np.stack(np.unravel_index(flat, shape), 1))
    np.testing.assert_array_equal(sizes, shape)


def test_reshape_to_the_same_shape_keeps_all_coordinates() -> None:
    places, sizes = np.array([[0, 100], [3, 1]]), np.array([5, 20])
    got, _ = evaluate(relay.sparse_reshape, places, sizes, np.array([5, -1]))
    np.testing.assert_array_equal(got, places)


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 2)), max_size=6))
@settings(max_examples=20, deadline=None)
def test_empty_rows(pairs: list[tuple[int, int]]) -> None:
    places = np.array(sorted(pairs), "int64").reshape(-1, 2)
    values = np.arange(len(places), dtype="int64") + 1
    got = evaluate(
        relay.sparse_fill_empty_rows, places, values, np.array([5, 3]), np.array([9], "int64")
    )
    rows = set(places[:, 0].tolist())
    np.testing.assert_array_equal(got[2], [row not in rows for row in range(5)])
    whole = [(*p, v) for p, v in zip(places.tolist(), values.tolist(), strict=True)]
    whole += [(row, 0, 9) for row in range(5) if row not in rows]
    whole.sort(key=lambda t: t[0])
    assert np.column_stack([*got[0].T, got[1]]).tolist() == [list(t) for t in whole]


@pytest.mark.parametrize("count", [None, 5])
def test_segment_sum(count: int | None) -> None:
    data, ids = RNG.uniform(-1, 1, (4, 2)).astype("float32"), np.array([0, 2, 2, 0], "int32")
    (got,) = evaluate(lambda d, i: relay.segment_sum(d, i, count), data, ids)
    want = np.zeros((count or 3, 2), "float32")
    np.add.at(want, ids, data)
    np.testing.assert_allclose(got, want, 1e-6)


@pytest.mark.parametrize("ordered", [True, False])
def test_unique(ordered: bool) -> None:
    x = np.array([3, 1, 3, 2, 1, 9, 9, 3], "int32")
    values, first, inverse, found, counts = evaluate(lambda x: relay.unique(x, ordered, True), x)
    want, at, back, times = np.unique(x, True, True, True)
    order = np.arange(len(want)) if ordered else np.argsort(at)
    assert found == [len(want)]
    for value, expected in ((values, want), (first, at), (counts, times)):
        np.testing.assert_array_equal(value[: len(want)], expected[order])
        assert not value[len(want) :].any()
    np.testing.assert_array_equal(inverse, np.argsort(order)[back])


@given(st.integers(0, 4), st.integers(1, 3))
@settings(max_examples=10, deadline=None)
def test_argwhere_of_any_size(rows: int, columns: int) -> None:
    x = relay.var("x", shape=(relay.Any(), relay.Any()))
    function = relay.Function([x], relay.argwhere(x))
    value = RNG.integers(0, 2, (rows, columns)).astype("float32")
    got = relay.create_executor("vm").evaluate(function)(value)
    np.testing.assert_array_equal(got.numpy(), np.argwhere(value))


def test_matrices_that_do_not_fit() -> None:
    x = relay.var("x", shape=(2, 3))
    matrix = (np.ones(2, "float32"), np.zeros(3, "int32"), np.array([0, 1, 2], "int32"))
    with pytest.raises(RelayTypeError, match="one column each"):
        relay.transform.InferType()(relay.IRModule.from_expr(relay.nn.sparse_dense(x, matrix)))


def test_rows_without_a_segment_are_left_out() -> None:
    data, ids = RNG.uniform(-1, 1, (3, 2)).astype("float32"), np.array([0, 2], "int32")
    (got,) = evaluate(lambda d, i: relay.segment_sum(d, i, 4), data, ids)
    np.testing.assert_array_equal(got, [data[0], [0, 0], data[1], [0, 0]])
