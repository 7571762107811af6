"""Batched matmuls in float64: all results, or samples of them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ..ir.workload import Workload
from .convolution_reference import Array, Operand

#: Neighbouring columns of a sample.
_RUN = 16


def full(workload: Workload, operands: Mapping[str, Operand]) -> Array:
    """All results, of shape (groups, n, k / groups)."""
    batch, _, columns, _ = workload.gemms
    rows, all_columns = np.arange(workload.n), np.arange(columns)
    return np.stack([_product(workload, operands, g, rows, all_columns) for g in range(batch)])


def sample(
    workload: Workload, operands: Mapping[str, Operand], rng: np.random.Generator, samples: int
) -> tuple[Array, Array]:
    """About this many results as flat places of runs and their values, shape (runs, run), from the
    first and the last matrix and random ones; the last result is among them."""
    batch, rows, columns, _ = workload.gemms
    run = min(_RUN, columns)
    starts, values = [], []
    for g in {0, batch - 1, *rng.integers(0, batch, 6).tolist()}:
        first = columns - run if g == batch - 1 else int(rng.integers(columns - run + 1))
        of = np.append(rng.integers(0, rows, max(1, samples // (8 * run) - 1)), rows - 1)
        starts.append((g * rows + of) * columns + first)
        values.append(_product(workload, operands, g, of, first + np.arange(run)))
    return np.concatenate(starts), np.concatenate(values)


def _product(
    workload: Workload, operands: Mapping[str, Operand], g: int, rows: Array, columns: Array
) -> Array:
    """Results of a matrix of the batch in some rows and columns."""
    _, n, k, c = workload.gemms
    x = operands["x"].rows((g * n + rows) * c, c)
    return np.asarray(x @ operands["w"].rows((g * k + columns) * c, c).T)
