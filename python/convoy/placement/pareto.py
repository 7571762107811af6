"""Select one option per position so that the larger of two sums is smallest.

With host and device running side by side the time of a sequence is max(sum of host times, sum of
device times), and the choices are not independent. All pairs of sums that no other pair beats on
both sides are carried along (the Pareto front), which is exact; beyond ``limit`` pairs the front
is thinned to equal steps, and the result is then within one step for each position.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Pair = tuple[float, float]
_Floats = npt.NDArray[np.float64]
_Indices = npt.NDArray[np.intp]


def front(pairs: Sequence[Pair]) -> list[int]:
    """Indices of the pairs that no other pair beats on both sides, by rising first value."""
    if not pairs:
        return []
    first, second = np.array(pairs, np.float64).T
    return [int(i) for i in _front(first, second)]


def _front(first: _Floats, second: _Floats) -> _Indices:
    """The same for pairs given by their sides; of equal pairs the earliest."""
    order = np.lexsort((second, first))  # stable
    sorted_second = second[order]
    lowest = np.minimum.accumulate(sorted_second)
    better = np.r_[True, sorted_second[1:] < lowest[:-1]]
    return order[better]


def smallest_maximum(options: Sequence[Sequence[Pair]], limit: int = 4096) -> list[int]:
    """Return the index of the option to select at each position; every position needs an option."""
    first, second = np.zeros(1), np.zeros(1)
    steps: list[tuple[_Indices, list[int]]] = []  # per position: state and option of each state
    for pairs in options:
        useful = front(pairs)
        own_first, own_second = np.array([pairs[i] for i in useful], np.float64).T
        grown_first = np.add.outer(first, own_first).ravel()
        grown_second = np.add.outer(second, own_second).ravel()
        kept = _front(grown_first, grown_second)
        if len(kept) > limit:
            kept = kept[[round(i * (len(kept) - 1) / (limit - 1)) for i in range(limit)]]
        first, second = grown_first[kept], grown_second[kept]
        steps.append((kept, useful))
    at = min(range(len(first)), key=lambda i: (max(first[i], second[i]), first[i] + second[i], i))
    taken: list[int] = []
    for grown, useful in reversed(steps):
        at, option = divmod(int(grown[at]), len(useful))
        taken.append(useful[option])
    return taken[::-1]
