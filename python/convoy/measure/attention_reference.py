"""Reference results of attention in float64: all of them (small sizes) or at sampled queries."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from ..ir.attention import Attention, RowView
from ..ir.workload import Workload

Array = np.ndarray
#: float64 values of an operand by flat element index.
Values = Callable[[Array], Array]
#: Outer batch, batch and head of a problem.
Problem = tuple[int, int, int]
#: Problems that a sample covers, and elements of its result at least.
_PROBLEMS, _ELEMENTS = 8, 2048


def outputs_of(
    workload: Workload, operands: Mapping[str, Values], problem: Problem, rows: Array
) -> Array:
    """Results of some queries of a problem, shape (len(rows), elements of a head)."""
    attention = _attention(workload)
    dim, value_dim = workload.c // workload.groups, workload.k // workload.groups
    keys = np.arange(workload.w)
    q = operands["q"](elements(attention.q, problem, rows, dim))
    k = operands["k"](elements(attention.k, problem, keys, dim))
    v = operands["v"](elements(attention.v, problem, keys, value_dim))
    scores = attention.scale * (q @ k.T)
    if attention.bias.shape:
        scores = scores + operands["bias"](elements(attention.bias, problem, rows, workload.w))
    if attention.causal:
        scores = np.where(keys <= rows[:, None], scores, -np.inf)
    largest = scores.max(axis=1, keepdims=True)
    with np.errstate(invalid="ignore"):
        powers = np.exp(scores - np.where(largest == -np.inf, 0.0, largest))
        result = powers @ v / powers.sum(axis=1, keepdims=True)
    return np.where(largest == -np.inf, 0.0, result) if attention.zeros else result


def elements(view: RowView, problem: Problem, rows: Array, length: int) -> Array:
    """Flat indices of some rows of a problem, shape (len(rows), length)."""
    start = view.offset + sum(i * s for i, s in zip(problem, view.strides[:3], strict=True))
    return start + rows[:, None] * view.strides[3] + np.arange(length)


def full(workload: Workload, operands: Mapping[str, Values]) -> Array:
    """The whole result, in the shape of o."""
    attention, dim = _attention(workload), workload.k // workload.groups
    result = np.full(attention.o.size, np.nan)
    rows = np.arange(workload.h)
    for problem in np.ndindex(*problems(workload)):
        values = outputs_of(workload, operands, problem, rows)
        result[elements(attention.o, problem, rows, dim)] = values
    return result.reshape(attention.o.shape)


def sample(
    workload: Workload, operands: Mapping[str, Values], rng: np.random.Generator
) -> tuple[Array, Array]:
    """(first elements, values) of rows of o: the first and the last query of the first and the last
    problem, and random ones."""
    attention, dim = _attention(workload), workload.k // workload.groups
    sizes = problems(workload)
    count = int(np.prod(sizes))
    chosen = {0, count - 1, *map(int, rng.integers(0, count, _PROBLEMS - 2))}
    starts, values = [], []
    for number in sorted(chosen):
        problem = tuple(int(i) for i in np.unravel_index(number, sizes))
        wanted = min(workload.h, max(2, _ELEMENTS // (dim * len(chosen))))
        picked = {0, workload.h - 1, *map(int, rng.integers(0, workload.h, wanted))}
        rows = np.array(sorted(picked))
        starts.append(elements(attention.o, problem, rows, dim)[:, 0])  # type: ignore[arg-type]
        values.append(outputs_of(workload, operands, problem, rows))  # type: ignore[arg-type]
    return np.concatenate(starts), np.concatenate(values)


def problems(workload: Workload) -> tuple[int, int, int]:
    """Outer batches, batches and heads."""
    outer = _attention(workload).outer
    return outer, workload.n // outer, workload.groups


def _attention(workload: Workload) -> Attention:
    assert workload.attention is not None, f"{workload.key} is not attention"
    return workload.attention
