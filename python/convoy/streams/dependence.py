"""The dependence graph of the ops of a function: ancestors, reduction, critical path.

Ops are numbered in a legal order: ``depends[i]`` holds numbers below i only. Sets of ops are
Python integers, bit i standing for op i: unions and tests over thousands of ops are one operation.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property

from ..errors import InvalidOption


class Dependences:
    """``depends[i]`` are the ops that must be over before op i starts.

    Raises InvalidOption for an op that depends on itself or on a later one.
    """

    def __init__(self, depends: Sequence[Iterable[int]]) -> None:
        self.depends = [tuple(sorted(set(before))) for before in depends]
        for op, before in enumerate(self.depends):
            if before and not (before[0] >= 0 and before[-1] < op):
                raise InvalidOption(f"op {op} that depends on {before}", "on earlier ops")

    def __len__(self) -> int:
        return len(self.depends)

    @cached_property
    def ancestors(self) -> list[int]:
        """Return the set of all ops before each op, excluding itself."""
        sets: list[int] = []
        for before in self.depends:
            found = 0
            for op in before:
                found |= sets[op] | 1 << op
            sets.append(found)
        return sets

    @cached_property
    def reduced(self) -> list[tuple[int, ...]]:
        """The transitive reduction of ``depends``."""
        result = []
        for before in self.depends:
            implied = 0
            for op in before:
                implied |= self.ancestors[op]
            result.append(tuple(op for op in before if not implied >> op & 1))
        return result

    @cached_property
    def successors(self) -> list[tuple[int, ...]]:
        """Inverse of :attr:`reduced`."""
        found: list[list[int]] = [[] for _ in self.depends]
        for op, before in enumerate(self.reduced):
            for earlier in before:
                found[earlier].append(op)
        return [tuple(after) for after in found]

    def bottom_levels(self, durations: Sequence[float]) -> list[float]:
        """Return the longest time from each op's start to the end of its successors: the priority
        of list scheduling. The maximum is the length of the critical path."""
        levels = [0.0] * len(self)
        for op in reversed(range(len(self))):
            levels[op] = durations[op] + max((levels[s] for s in self.successors[op]), default=0.0)
        return levels

    def width_exceeds_one(self) -> bool:
        """Return whether some two ops may run at the same time."""
        everything = 0
        for op, before in enumerate(self.ancestors):
            if before != everything:
                return True
            everything |= 1 << op
        return False
