"""Cut a dependence graph into the fewest chains.

A chain is a path of the reduced graph; its ops follow one another anyway, so they share a stream
without loss and without events. The fewest vertex-disjoint paths that cover a directed acyclic
graph come from a maximum matching of ops with direct successors (Fulkerson 1956); among those the
one that keeps the critical path together is taken, and kernels that start early behind kernels that
let them.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..ir.schedule_parts import Op
from .dependence import Dependences


def cover(graph: Dependences, priorities: Sequence[float], ops: Sequence[Op]) -> list[int]:
    """The chain of each op, numbered from 0 by first op. ``priorities`` are bottom levels: of the
    successors of an op the one with the largest is kept in its chain where that costs no chain;
    what one of the ``ops`` saves by programmatic launches is added to it."""
    following = _match(graph, priorities, ops)
    chain = [-1] * len(graph)
    count = 0
    for op in range(len(graph)):
        if chain[op] < 0:
            chain[op] = count
            count += 1
        if following[op] >= 0:
            chain[following[op]] = chain[op]
    return chain


def _match(graph: Dependences, priorities: Sequence[float], ops: Sequence[Op]) -> list[int]:
    """Return the next op of each op's chain, -1 at the end."""
    from scipy.sparse import csr_matrix
    from scipy.sparse.csgraph import min_weight_full_bipartite_matching

    size = len(graph)
    saved = [_saved_us(op) for op in ops]
    largest = max(map(sum, zip(priorities, saved, strict=True)), default=0.0) or 1.0
    rows, columns, weights = [], [], []
    for op, after in enumerate(graph.successors):
        for successor in after:
            value = priorities[successor] + (saved[successor] if ops[op].early else 0.0)
            rows.append(op)
            columns.append(successor)
            weights.append(2.0 - value / largest)  # 1 for the critical path
    # Each op may stay without a successor, which costs more than all matched ones together.
    rows += range(size)
    columns += range(size, 2 * size)
    weights += [2.0 * size + 1.0] * size
    if not size:
        return []
    costs = csr_matrix((np.asarray(weights), (rows, columns)), shape=(size, 2 * size))
    _, matched = min_weight_full_bipartite_matching(costs)
    return [int(c) if c < size else -1 for c in matched]


def _saved_us(op: Op) -> float:
    return 0.0 if op.chained_us is None else op.duration_us - op.chained_us
