"""Which forms of a value exist at a cut of the search, as tables that whole arrays can index.

The status of a value is its native form and the set of forms that it was brought into. Two
statuses from which all that may still be demanded costs the same are one, which is what keeps the
number of states small.
"""

from __future__ import annotations

import functools

import numpy as np
from numpy.typing import NDArray

from ..partition.match_graph import bits
from .problem import IMPOSSIBLE, LAUNCH, Cost, Value

Ints = NDArray[np.int64]


class FormTable:
    """Statuses ``native << F | existing`` of a value with F forms.

    ``pay[status, form]`` is the cost of a demand (one number for each side of the objective),
    ``launch[status, form]`` its priority, ``after[status, form]`` the status that it leaves.
    """

    def __init__(self, value: Value) -> None:
        self.value, self.count = value, len(value.forms)
        count, sides = self.count, len(value.pay[0][0])
        shape = (count << count, count)
        self.pay: Ints = np.zeros((*shape, sides), np.int64)
        self.launch: Ints = np.zeros(shape, np.int64)
        self.after: Ints = np.zeros(shape, np.int64)
        for status in range(shape[0]):
            native, existing = status >> count, status & (1 << count) - 1
            for form in range(count):
                self.after[status, form] = status | 1 << form
                if form != native and not existing >> form & 1:
                    self.pay[status, form] = value.pay[native][form]
                    self.launch[status, form] = LAUNCH * any(value.pay[native][form])

    @property
    def statuses(self) -> int:
        return len(self.after)

    def written(self, form: int, demands: int) -> tuple[int, Cost, int]:
        """Status, cost and priority of a value just written, with these demands on it."""
        status = form << self.count | 1 << form
        cost, priority = np.zeros(self.pay.shape[2], np.int64), 0
        for wanted in bits(demands):
            cost += self.pay[status, wanted]
            priority += int(self.launch[status, wanted])
            status = int(self.after[status, wanted])
        return status, tuple(map(int, cost)), priority

    def still_demanded(self, readers: int) -> int:
        """Forms (bit mask) in which these consumers (bit mask) may read the value."""
        found = 0
        for reader in bits(readers):
            found |= self.value.demanded.get(reader, 0)
        return found

    @functools.cache  # noqa: B019  (tables live as long as one search)
    def canonical(self, demanded: int) -> Ints:
        """For each status the lowest one that costs the same for all these demands."""
        rows = self.pay[:, list(bits(demanded))].reshape(self.statuses, -1)
        _, first, inverse = np.unique(rows, axis=0, return_index=True, return_inverse=True)
        return first[inverse.reshape(-1)]

    @functools.cache  # noqa: B019
    def excess(self, status: int, demanded: int, readers: int) -> Ints:
        """At most how much more each side costs from ``status`` than from each other status.

        The consumers still to come demand some set of 1 to ``readers`` of the forms, and the
        worst such set is taken for each side.
        """
        there = list(bits(demanded))
        more = self.pay[status, there][None] - self.pay[:, there]  # (statuses, forms, sides)
        more = -np.sort(-more, axis=1)[:, :readers]
        worst: Ints = np.maximum(more[:, 0], np.maximum(more, 0).sum(axis=1))
        # A bound may be too high, never too low; clipping keeps sums of many columns in range.
        return np.clip(worst, -IMPOSSIBLE >> 10, IMPOSSIBLE)
