"""Matchings of least cost against scipy's."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import min_weight_full_bipartite_matching

from convoy.streams.matching import least_cost

#: Few different costs, so that many are equal.
COSTS = st.one_of(st.sampled_from([1.0, 1.25, 1.5]), st.floats(1.0, 2.0))


@st.composite
def graphs(draw: st.DrawFn) -> list[dict[int, float]]:
    """Rows with up to four of the columns, and a dear one of their own."""
    size = draw(st.integers(1, 12))
    columns = st.dictionaries(st.integers(0, size - 1), COSTS, max_size=4)
    return [{**draw(columns), size + row: 2.0 * size + 1.0} for row in range(size)]


@given(graphs())
def test_matchings_cost_what_scipys_do(costs: list[dict[int, float]]) -> None:
    found = least_cost(costs)
    assert len(set(found)) == len(costs)
    rows = [row for row, own in enumerate(costs) for _ in own]
    columns = [column for own in costs for column in own]
    values = np.array([cost for own in costs for cost in own.values()])
    shape = (len(costs), 2 * len(costs))
    _, expected = min_weight_full_bipartite_matching(csr_matrix((values, (rows, columns)), shape))
    least = sum(costs[row][int(column)] for row, column in enumerate(expected))
    total = sum(costs[row][column] for row, column in enumerate(found))
    np.testing.assert_allclose(total, least, rtol=1e-12)


def test_rows_make_room_for_others() -> None:
    assert least_cost([{0: 1.0, 1: 2.0}, {0: 1.0, 2: 9.0}]) == [1, 0]
    assert least_cost([]) == []
