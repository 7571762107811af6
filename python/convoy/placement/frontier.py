"""Exact search: the shortest path over cuts of the order of operations.

A cut is located before the first uncovered operation. Partial covers that arrive at a cut with the
same covered operations beyond it, and the same ends of chains, have the same completions: only the
cheapest is kept (the Pareto front if the objective has two costs). All partial covers of a cut
are rows of arrays, and a move extends all of them at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ..partition.dependencies import bits
from .assignment import Pick
from .problem import Cost, Move, Problem, Step

Ints = NDArray[np.int64]
Relation = tuple[tuple[int, int], ...]  # value alive, ops not covered yet that it waits for
#: Operations of kernels that let their successors start early, as far as that matters to moves to
#: come; operations not covered yet whose kernels have to, because covered ones count on it.
Ends = tuple[int, int]


class TooWide(Exception):
    """A cut has more partial covers than the search was allowed to keep."""


@dataclass
class Rows:
    """Partial covers: cost (rows, sides), priority (rows), and where each came from."""

    cost: Ints
    priority: Ints
    source: Ints
    parent: Ints

    def take(self, index: Ints) -> Rows:
        return Rows(self.cost[index], self.priority[index], self.source[index], self.parent[index])

    def __len__(self) -> int:
        return len(self.priority)

    @classmethod
    def joined(cls, parts: list[Rows]) -> Rows:
        return cls(
            np.concatenate([part.cost for part in parts]),
            np.concatenate([part.priority for part in parts]),
            np.concatenate([part.source for part in parts]),
            np.concatenate([part.parent for part in parts]),
        )


@dataclass
class Cut:
    """All partial covers of the same operations.

    ``sources[i]`` says from which cut and by which pick the rows with ``source == i`` came.
    """

    covered: int
    relation: Relation
    ends: Ends = (0, 0)
    sources: list[tuple[Cut | None, Pick | None]] = field(default_factory=list)
    parts: list[Rows] = field(default_factory=list)
    rows: Rows = field(init=False)


@dataclass(frozen=True)
class Found:
    """The best cover: its picks and their cost. ``states`` counts partial covers kept."""

    picks: tuple[Pick, ...]
    cost: Cost
    states: int


class Search:
    """Shortest path over the cuts of a problem; gives up where a position has more than ``limit``
    partial covers."""

    def __init__(self, problem: Problem, limit: int) -> None:
        self.problem, self.limit, self._size = problem, limit, len(problem.graph.ops)
        self._cuts: list[dict[tuple[object, ...], Cut]] = [{} for _ in range(self._size + 1)]
        self._states = 0

    def run(self) -> Found | None:
        """The best cover, or None if there is none.

        Raises:
            TooWide: The limit is met.
        """
        self._start()
        for position in range(self._size):
            for cut in self._reduced(position):
                for move in self.problem.moves_at[position]:
                    if not move.mask & cut.covered:
                        self._extend(cut, move)
            self._cuts[position] = {}
        last = self._reduced(self._size)
        return self._best(last[0]) if last else None

    def _start(self) -> None:
        cut = Cut(0, ())
        cut.sources.append((None, None))
        zeros = np.zeros(1, np.int64)
        cut.parts.append(Rows(np.zeros((1, self.problem.sides), np.int64), zeros, zeros, zeros))
        self._cuts[0][()] = cut

    def _extend(self, cut: Cut, move: Move) -> None:
        related = self._relate(cut, move)
        if related is None:
            return
        parent = np.arange(len(cut.rows))
        for step in move.steps:
            for own, ends in self._chained(cut, move, step):
                target = self._target(cut.covered | move.mask, related, ends)
                source = np.full(len(cut.rows), len(target.sources), np.int64)
                target.sources.append((cut, step.pick))
                cost = cut.rows.cost + np.array(own, np.int64)
                target.parts.append(Rows(cost, cut.rows.priority + step.priority, source, parent))

    def _chained(self, cut: Cut, move: Move, step: Step) -> Iterator[tuple[Cost, Ends]]:
        """The costs that a step may have, with the ends of chains behind it: a step whose
        predecessor is not covered yet costs less where that one will let it start early."""
        early, wanted = cut.ends
        if wanted & move.mask and not step.early:
            return
        anchor = 1 << move.anchor if move.anchor >= 0 and step.saving else 0
        linked = bool(anchor & early)
        covered = cut.covered | move.mask
        early = self._read_later(early | (move.mask if step.early else 0), covered)
        yield (step.linked if linked else step.cost), (early, wanted & ~move.mask)
        if anchor & ~covered:
            yield step.linked, (early, (wanted | anchor) & ~move.mask)

    def _read_later(self, early: int, covered: int) -> int:
        """Return the operations that a move to come may count on."""
        kept = 0
        for op in bits(early):
            if any(not mask & covered for mask in self.problem.links_at[op]):
                kept |= 1 << op
        return kept

    def _target(self, covered: int, relation: Relation, ends: Ends) -> Cut:
        position = (~covered & covered + 1).bit_length() - 1  # first op not covered
        key = (covered >> position, relation, ends)
        there = self._cuts[position]
        if key not in there:
            there[key] = Cut(covered, relation, ends)
        return there[key]

    def _relate(self, cut: Cut, move: Move) -> Relation | None:
        """Find which live values depend, through the selected subgraphs, on operations that are not
        covered yet, beyond the operations' own dependences; None if the move would close a cycle.

        Subgraphs that write one value cannot form a cycle, and leave this empty.
        """
        waits = dict(cut.relation)
        beyond = 0
        for number in bits(move.read_mask & cut.covered):
            beyond |= waits.get(number, 0)
        if beyond & move.mask:
            return None
        need = (move.above & ~cut.covered) | beyond
        if not need and not waits:
            return ()
        known = self.problem.graph.dependencies
        covered = cut.covered | move.mask
        later = {n for n, ops in waits.items() if ops & move.mask}
        later.update(bits(move.below & cut.covered))
        later.update(bits(move.mask))
        for number in later:
            waits[number] = waits.get(number, 0) | (need & ~known.ancestors[number])
        kept = (
            (number, ops & ~covered)
            for number, ops in waits.items()
            if known.consumers[number] & ~covered and ops & ~covered
        )
        return tuple(sorted(kept))

    def _reduced(self, position: int) -> list[Cut]:
        """The cuts at a position, each with the rows that no other beats."""
        cuts = list(self._cuts[position].values())
        for cut in cuts:
            cut.rows = _undominated(Rows.joined(cut.parts))
            cut.parts = []
        kept = sum(len(cut.rows) for cut in cuts)
        if kept > self.limit:
            raise TooWide
        self._states += kept
        return cuts

    def _best(self, cut: Cut) -> Found:
        rows = cut.rows
        order = np.lexsort((rows.priority, rows.cost.sum(axis=1), rows.cost.max(axis=1)))
        row = int(order[0])
        cost = tuple(map(int, rows.cost[row]))
        picks: list[Pick] = []
        at: Cut | None = cut
        while at is not None:
            source = int(at.rows.source[row])
            row = int(at.rows.parent[row])
            at, pick = at.sources[source]
            if pick is not None:
                picks.append(pick)
        return Found(tuple(reversed(picks)), cost, self._states)


def _undominated(rows: Rows) -> Rows:
    """Rows that no other beats, ties to the lower priority and then to the earlier row."""
    order = np.lexsort((rows.priority, *rows.cost.T[::-1]))
    first: NDArray[np.bool_] = np.zeros(len(rows), np.bool_)
    first[0] = True
    if rows.cost.shape[1] == 2:  # the first side rises: a row stays where the second side falls
        second = rows.cost[order, 1]
        first[1:] = second[1:] < np.minimum.accumulate(second)[:-1]
    return rows.take(order[first])
