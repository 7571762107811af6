"""Slices, gathers and scatters against numpy."""

from __future__ import annotations

from typing import Any

import numpy as np

from convoy import relay

from .. import reference
from .cases import UNIT, Case, X, check, uniform


def replaced(x: np.ndarray, part: np.ndarray, where: Any) -> np.ndarray:
    x = x.copy()
    x[where] = part
    return x


def test_indexing() -> None:
    i = np.array([[0, 2], [5, -1]], "int32")
    check(
        {
            "slice": Case(
                lambda x: relay.strided_slice(x, [0, 1, -2], [2, 100, 5]),
                lambda x: x[0:2, 1:100, -2:5],
                X,
            ),
            "slice_negative": Case(
                lambda x: relay.strided_slice(x, [5], [0], [-2], axes=[1]),
                lambda x: x[:, 5:0:-2],
                X,
            ),
            "slice_reversed": Case(
                lambda x: relay.strided_slice(x, [-1], [-100], [-1], axes=[1]),
                lambda x: x[:, ::-1],
                X,
            ),
            "slice_size": Case(
                lambda x: relay.strided_slice(x, [1, 2], [-1, 3], slice_mode="size"),
                lambda x: x[1:, 2:5],
                X,
            ),
            "strided_set": Case(
                lambda x, v: relay.strided_set(x, v, [2, -1], [-1, -9, 4], [1, -2]),
                lambda x, v: replaced(x, v, np.s_[2:-1, -1:-9:-2, :4]),
                uniform(5, 4, 4), uniform(2, 2, 4),
            ),
            "strided_set_every_other": Case(
                lambda x, v: relay.strided_set(x, v, [3, 0], [0, 6], [-2, 3]),
                lambda x, v: replaced(x, v, np.s_[3:0:-2, 0:6:3]),
                uniform(4, 6), uniform(2, 2),
            ),
            "strided_set_all": Case(
                lambda x, v: relay.strided_set(x, v, [], [], [-1]),
                lambda x, v: replaced(x, v, np.s_[::-1]),
                X, X,
            ),
            "slice_like": Case(
                relay.slice_like, lambda x, y: x[:1, :3], UNIT, uniform(1, 3)
            ),
            "take": Case(
                lambda x, i: relay.take(x, i, axis=1),
                lambda x, i: np.take(x, np.clip(i, 0, 5), 1),
                X, i,
            ),
            "take_wrap": Case(
                lambda x, i: relay.take(x, i, axis=1, mode="wrap"),
                lambda x, i: np.take(x, i, 1, mode="wrap"),
                X, i,
            ),
            "take_flat": Case(
                relay.take, lambda x, i: np.take(x.reshape(-1), np.clip(i, 0, 99)), UNIT, i
            ),
            "gather": Case(
                lambda x, i: relay.gather(x, 1, i),
                lambda x, i: np.take_along_axis(x, i, 1),
                UNIT, np.array([[0, 2], [5, 1]], "int32"),
            ),
            "gather_nd": Case(
                relay.gather_nd,
                lambda x, i: x[tuple(i)],
                X, np.array([[0, 1, 1], [5, 2, 0]], "int32"),
            ),
            "scatter_elements": Case(
                lambda x, i, u: relay.scatter_elements(x, i, u, axis=1, reduction="add"),
                lambda x, i, u: reference.scatter_add(x, i, u),
                UNIT, np.array([[0, 0], [5, 1]], "int32"), uniform(2, 2),
            ),
            "scatter_of_nothing": Case(
                lambda x, i, u: relay.scatter_elements(x, i, u, axis=1, reduction="mul"),
                lambda x, i, u: x,
                UNIT, np.zeros((2, 0), "int64"), uniform(2, 0),
            ),
            "scatter_nd_of_nothing": Case(
                relay.scatter_nd, lambda x, i, u: x, UNIT, np.zeros((1, 0), "int64"), uniform(0, 6)
            ),
            "scatter_nd": Case(
                relay.scatter_nd,
                lambda x, i, u: reference.scatter_nd(x, i, u),
                UNIT, np.array([[0, 1], [5, 2]], "int32"), uniform(2),
            ),
            "sequence_mask": Case(
                lambda x, n: relay.sequence_mask(x, n, mask_value=-1),
                lambda x, n: np.where(np.arange(4)[:, None] < n, x, -1).astype("float32"),
                uniform(4, 3), np.array([1, 4, 2], "int32"),
            ),
            "reverse_sequence": Case(
                lambda x, n: relay.reverse_sequence(x, n, seq_axis=0, batch_axis=1),
                reference.reverse_sequence,
                uniform(4, 3), np.array([1, 4, 2], "int32"),
            ),
            "triu": Case(lambda x: relay.trilu(x, 1), lambda x: np.triu(x, 1), uniform(4, 5)),
            "tril": Case(
                lambda x: relay.trilu(x, 0, upper=False), lambda x: np.tril(x), uniform(4, 5)
            ),
        }
    )  # fmt: skip
