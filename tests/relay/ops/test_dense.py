"""Matrix products and einsum against numpy."""

from __future__ import annotations

import numpy as np
import pytest

from convoy import relay
from convoy.errors import RelayTypeError

from .cases import Case, check, uniform


def test_matrix_products() -> None:
    a, b = uniform(3, 4), uniform(4, 5)
    x, y = uniform(2, 3, 4), uniform(2, 4, 5)
    check(
        {
            "dense": Case(relay.nn.dense, lambda a, w: a @ w.T, a, uniform(5, 4)),
            "dense_3d": Case(relay.nn.dense, lambda a, w: a @ w.T, x, uniform(5, 4)),
            "matmul": Case(relay.nn.matmul, lambda a, b: a @ b, a, b),
            "matmul_tt": Case(
                lambda a, b: relay.nn.matmul(a, b, transpose_a=True, transpose_b=True),
                lambda a, b: a.T @ b.T,
                uniform(4, 3), uniform(5, 4),
            ),
            "batch_matmul": Case(
                relay.nn.batch_matmul, lambda x, y: x @ y.transpose(0, 2, 1), x, uniform(2, 5, 4)
            ),
            "batch_matmul_n": Case(
                lambda x, y: relay.nn.batch_matmul(x, y, transpose_b=False),
                lambda x, y: x @ y,
                x, y,
            ),
            "batch_matmul_t": Case(
                lambda x, y: relay.nn.batch_matmul(x, y, transpose_a=True, transpose_b=False),
                lambda x, y: x.transpose(0, 2, 1) @ y,
                uniform(2, 4, 3), y,
            ),
            "einsum": Case(
                lambda a, b: relay.einsum([a, b], "ij,jk->ki"), lambda a, b: (a @ b).T, a, b
            ),
            "einsum_ellipsis": Case(
                lambda x, a: relay.einsum([x, a], "...ij,kj -> ...ki"),
                lambda x, a: np.einsum("...ij,kj->...ki", x, a),
                x, a,
            ),
            "einsum_without_arrow": Case(
                lambda x, y: relay.einsum([x, y], "...ab,...bc"), lambda x, y: x @ y, x, y
            ),
        }
    )  # fmt: skip


@pytest.mark.parametrize(
    ("equation", "expected"),
    [
        ("ij", "one term"),
        ("ij,jkl->il", "a letter for each dimension"),
        ("ij,jk->iz", "letters that stand on the left"),
        ("ij,...->i7", "letters that stand on the left"),
    ],
)
def test_equations_that_do_not_fit(equation: str, expected: str) -> None:
    a, b = relay.var("a", shape=(3, 4)), relay.var("b", shape=(4, 5))
    with pytest.raises(RelayTypeError, match=expected):
        relay.transform.InferTypeLocal(relay.einsum([a, b], equation))
