"""Reshapes and permutations of the same value in another order."""

from __future__ import annotations

import math
from collections.abc import Sequence


def reshaped_before(
    shape: Sequence[int], axes: Sequence[int], result: Sequence[int]
) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """Reshape a value before its axes are permuted instead of behind.

    Args:
        shape: Of the value.
        axes: The permutation.
        result: What the permuted value is reshaped to.

    Returns:
        The shape to reshape the value to, and the permutation of it that gives the result; None
        where the reshape joins axes that do not follow each other in the value.
    """
    pairs = _pairs([(a, shape[a]) for a in axes], result)
    if pairs is None or any(not _adjacent(joined, shape) for joined, _ in pairs):
        return None
    ordered = [axis for _, made in sorted(pairs) for axis in made]
    ordered += [axis for axis, extent in enumerate(result) if extent == 1]
    return tuple(result[axis] for axis in ordered), tuple(map(ordered.index, range(len(result))))


def _pairs(
    permuted: Sequence[tuple[int, int]], result: Sequence[int]
) -> list[tuple[list[int], list[int]]] | None:
    """Axes of the value that together become axes of the result, in the result's order; axes of
    size 1 are in none of them. None for a value without elements."""
    before = [(axis, extent) for axis, extent in permuted if extent != 1]
    behind = [(axis, extent) for axis, extent in enumerate(result) if extent != 1]
    if math.prod(result) == 0:
        return None
    pairs = []
    while before:
        (axis, size), (other, made) = before.pop(0), behind.pop(0)
        joined, parts = [axis], [other]
        while size != made:
            if size < made:
                axis, extent = before.pop(0)
                joined.append(axis)
                size *= extent
            else:
                other, extent = behind.pop(0)
                parts.append(other)
                made *= extent
        pairs.append((joined, parts))
    return pairs


def _adjacent(axes: Sequence[int], shape: Sequence[int]) -> bool:
    """Whether axes follow each other, but for those of size 1."""
    return list(axes) == [a for a in range(axes[0], axes[-1] + 1) if shape[a] != 1]
