"""The search itself: shortest path over cuts of an order of ops.

A cut stands before the first op that is not covered yet. Partial covers that meet at a cut with
the same ops covered behind it, the same demands on values not made yet, and the same forms of the
values alive, have the same futures: only the cheapest is kept (of two-sided costs: the Pareto
front). All partial covers of one cut are rows of arrays, and a match extends all of them at once.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ..partition.match_graph import bits
from .forms import FormTable, Ints
from .problem import IMPOSSIBLE, Cost, Move, Option, Problem

DOMINATORS = 8  # rows of a cut that all others are compared with
Demands = tuple[tuple[int, int], ...]  # value not made yet, forms demanded (bit mask)
Relation = tuple[tuple[int, int], ...]  # value alive, ops not covered yet that it waits for


class TooWide(Exception):
    """A cut has more partial covers than the search was allowed to keep."""


@dataclass
class Rows:
    """Partial covers: cost (rows, sides), priority (rows), status (rows, columns), and where each
    came from."""

    cost: Ints
    priority: Ints
    status: Ints
    source: Ints
    parent: Ints

    def take(self, index: Ints) -> Rows:
        return Rows(
            self.cost[index],
            self.priority[index],
            self.status[index],
            self.source[index],
            self.parent[index],
        )

    def __len__(self) -> int:
        return len(self.priority)


@dataclass
class Cut:
    """All partial covers that cover the same ops.

    ``columns`` are the values alive that have several forms, in the order of ``rows.status``;
    ``sources[i]`` says from which cut and by which option the rows with ``source == i`` came.
    """

    covered: int
    demands: Demands
    relation: Relation
    columns: tuple[int, ...]
    sources: list[tuple[Cut | None, Option | None]] = field(default_factory=list)
    parts: list[Rows] = field(default_factory=list)
    rows: Rows = None  # type: ignore[assignment]


@dataclass(frozen=True)
class Found:
    """The best cover: its options, cost and priority. ``states`` counts partial covers kept."""

    options: tuple[Option, ...]
    cost: Cost
    priority: int
    states: int


class Search:
    """Shortest path over the cuts of a problem; gives up where a position has more than ``limit``
    partial covers."""

    def __init__(self, problem: Problem, limit: int) -> None:
        self.problem, self.limit = problem, limit
        self.tables = {number: FormTable(value) for number, value in problem.values.items()}
        self._cuts: list[dict[tuple[object, ...], Cut]] = [{} for _ in range(problem.size + 1)]
        self._states = 0

    def run(self) -> Found | None:
        """The best cover, or None where there is none.

        Raises TooWide where the limit is met.
        """
        self._start()
        for position in range(self.problem.size):
            for cut in self._reduced(position):
                for move in self.problem.moves_at[position]:
                    if not move.mask & cut.covered:
                        self._extend(cut, move)
            self._cuts[position] = {}
        last = self._reduced(self.problem.size)
        return self._best(last[0]) if last else None

    def _start(self) -> None:
        """Before the first op only the graph inputs are alive, in their own forms."""
        sides = self.problem.sides
        inputs = dict(self.problem.graph.inputs)
        columns, status = [], []
        for name, form in inputs.items():
            number = self.problem.where[name]
            if number in self.tables and self.problem.consumers[number]:
                table = self.tables[number]
                columns.append(number)
                status.append(table.written(table.value.forms.index(form), 0)[0])
        cut = Cut(0, (), (), tuple(columns))
        cut.sources.append((None, None))
        zeros = np.zeros(1, np.int64)
        state = np.array([status], np.int64).reshape(1, len(columns))
        cut.parts.append(Rows(np.zeros((1, sides), np.int64), zeros, state, zeros, zeros))
        self._cuts[0][()] = cut

    # -- extending a cut ---------------------------------------------------------------------

    def _extend(self, cut: Cut, move: Move) -> None:
        related = self._relate(cut, move)
        if related is None:
            return
        problem, tables = self.problem, self.tables
        covered = cut.covered | move.mask
        cost, priority = cut.rows.cost, cut.rows.priority
        status = {number: cut.rows.status[:, i] for i, number in enumerate(cut.columns)}
        demands = dict(cut.demands)
        for number, form in move.reads:
            if number in status:
                table, before = tables[number], status[number]
                cost = np.minimum(cost + table.pay[before, form], IMPOSSIBLE)
                priority = priority + table.launch[before, form]
                status[number] = table.after[before, form]
            else:
                demands[number] = demands.get(number, 0) | 1 << form
        for number, form in move.writes:
            table = tables[number]
            wanted = demands.pop(number, 0)
            if table.value.result >= 0:
                wanted |= 1 << table.value.result
            made, extra, launches = table.written(form, wanted)
            cost = np.minimum(cost + np.array(extra, np.int64), IMPOSSIBLE)
            priority = priority + launches
            status[number] = np.full(len(priority), made, np.int64)
        alive = []
        for number in sorted(status):
            if readers := problem.consumers[number] & ~covered:
                table = tables[number]
                demanded = table.still_demanded(readers)
                if not demanded:
                    return  # no match reads the value from outside: a dead end
                status[number] = table.canonical(demanded)[status[number]]
                alive.append(number)
        target = self._target(covered, tuple(sorted(demands.items())), related, tuple(alive))
        columns = np.empty((len(priority), len(alive)), np.int64)
        for i, number in enumerate(alive):
            columns[:, i] = status[number]
        parent = np.arange(len(priority))
        for option in move.options:
            source = np.full(len(priority), len(target.sources), np.int64)
            target.sources.append((cut, option))
            total = cost + np.array(option.cost, np.int64)
            target.parts.append(Rows(total, priority + option.priority, columns, source, parent))

    def _target(
        self, covered: int, demands: Demands, relation: Relation, columns: tuple[int, ...]
    ) -> Cut:
        position = (~covered & covered + 1).bit_length() - 1  # first op not covered
        key = (covered >> position, demands, relation)
        there = self._cuts[position]
        if key not in there:
            there[key] = Cut(covered, demands, relation, columns)
        return there[key]

    def _relate(self, cut: Cut, move: Move) -> Relation | None:
        """Which values alive wait, through the matches chosen, for ops not covered yet, beyond
        what the ops' own dependencies say; None where the move would close a cycle.

        Matches that write one value cannot form a cycle, and leave this empty.
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
        problem = self.problem
        covered = cut.covered | move.mask
        later = {n for n, ops in waits.items() if ops & move.mask}
        later.update(bits(move.below & cut.covered))
        later.update(bits(move.mask))
        for number in later:
            waits[number] = waits.get(number, 0) | (need & ~problem.ancestors[number])
        kept = (
            (number, ops & ~covered)
            for number, ops in waits.items()
            if problem.consumers[number] & ~covered and ops & ~covered
        )
        return tuple(sorted(kept))

    # -- reducing the cuts at a position -----------------------------------------------------

    def _reduced(self, position: int) -> list[Cut]:
        cuts = []
        for cut in self._cuts[position].values():
            parts = cut.parts
            cut.rows = Rows(
                np.concatenate([part.cost for part in parts]),
                np.concatenate([part.priority for part in parts]),
                np.concatenate([part.status for part in parts]),
                np.concatenate([part.source for part in parts]),
                np.concatenate([part.parent for part in parts]),
            )
            cut.parts = []
            possible = (cut.rows.cost < IMPOSSIBLE).all(axis=1)
            if not possible.all():
                cut.rows = cut.rows.take(np.flatnonzero(possible))
            if len(cut.rows) > 1:
                cut.rows = _merged(cut.rows)
                self._drop_dominated(cut)
            if len(cut.rows):
                cuts.append(cut)
        kept = sum(len(cut.rows) for cut in cuts)
        if kept > self.limit:
            raise TooWide
        self._states += kept
        return cuts

    def _drop_dominated(self, cut: Cut) -> None:
        """Drop rows that cost more than a cheaper one would after all the transitions which it
        might need in their stead."""
        if not cut.columns:
            return
        readers = [self.problem.consumers[number] & ~cut.covered for number in cut.columns]
        tables = [self.tables[number] for number in cut.columns]
        demanded = [t.still_demanded(r) for t, r in zip(tables, readers, strict=True)]
        for rank in range(DOMINATORS):
            rows = cut.rows
            if rank >= len(rows) or len(rows) < 2:
                return
            best = int(np.argsort(rows.cost.max(axis=1), kind="stable")[rank])
            reach = np.repeat(rows.cost[best][None], len(rows), axis=0)
            for i, table in enumerate(tables):
                own = int(rows.status[best, i])
                excess = table.excess(own, demanded[i], readers[i].bit_count())
                reach = np.minimum(reach + excess[rows.status[:, i]], IMPOSSIBLE)
            worse = np.asarray((reach <= rows.cost).all(axis=1) & (reach < rows.cost).any(axis=1))
            worse[best] = False
            if worse.any():
                cut.rows = rows.take(np.flatnonzero(~worse))

    def _best(self, cut: Cut) -> Found:
        rows = cut.rows
        order = np.lexsort((rows.priority, rows.cost.sum(axis=1), rows.cost.max(axis=1)))
        row = int(order[0])
        cost, priority = tuple(map(int, rows.cost[row])), int(rows.priority[row])
        options: list[Option] = []
        at: Cut | None = cut
        while at is not None:
            source = int(at.rows.source[row])
            row = int(at.rows.parent[row])
            at, option = at.sources[source]
            if option is not None:
                options.append(option)
        return Found(tuple(reversed(options)), cost, priority, self._states)


def _merged(rows: Rows) -> Rows:
    """Of rows with equal statuses those that no other beats, ties to the lower priority and then
    to the earlier row."""
    status = rows.status
    bits_each = [int(status[:, i].max()).bit_length() for i in range(status.shape[1])]
    if sum(bits_each) < 63:
        code = np.zeros(len(rows), np.int64)
        for i, width in enumerate(bits_each):
            code = code << width | status[:, i]
    else:
        code = np.unique(status, axis=0, return_inverse=True)[1].reshape(-1)
    keys = (rows.priority, *rows.cost.T[::-1], code)
    order = np.lexsort(keys)
    code = code[order]
    first: NDArray[np.bool_] = np.ones(len(rows), np.bool_)
    first[1:] = code[1:] != code[:-1]
    if rows.cost.shape[1] == 2:
        # Within each code the first side rises; a row stays where the second side falls below all
        # before it. Lowering each group by more than the largest value makes one running
        # minimum serve all groups.
        second = rows.cost[order, 1]
        group = np.cumsum(first) - 1
        lowered = second - group * (int(second.max()) + 1)
        lowest = np.minimum.accumulate(lowered)
        first[1:] |= lowered[1:] < lowest[:-1]
    return rows.take(order[first])
