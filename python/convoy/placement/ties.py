"""Resolve ties: a fixed priority decides between costs within the measured spread.

Two ways to cover the same operations are a tie if one of them is a single subgraph and their costs
differ by at most the spread of the measurements of the cheaper one. The priority is, in this order:
fewer non-deterministic candidates, fewer launches, fewer launches away from home, lower cost, order
of the backends, names.

Costs are those of the whole cover: leaving a chain (links.py) costs the kernel behind it more.

Home is the backend that would run the whole network at the lowest cost. The minimum of many noisy
measurements is biased downwards, the more so the more there are: a mixture of backends that wins
each op by less than the spread wins by chance. Differences within the spread are therefore no
reason to leave home.

A tie is decided against the exact optimum and every operation takes part in at most one, so that
small differences cannot accumulate: the cover costs at most the sum of the spreads of what was
replaced more than the optimum. If only the candidates change, and not the fusion, every exchange
moves one subgraph to its candidate at home, so the cover never costs more than the same subgraphs
at home.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..partition.dependencies import bits
from .assignment import Pick, coverings, launch_order
from .problem import LAUNCH, Cost, Problem, spread_of, summed, value_of

MOST_WAYS = 256  # ways to cover one block that are compared
Owners = Mapping[int, Pick]  # the pick of a cover by position of the operation


@dataclass(frozen=True)
class _Way:
    """A way to cover a block: the picks, their cost, and their rank."""

    picks: tuple[Pick, ...]
    cost: Cost
    priority: int
    away: int
    backends: int
    names: tuple[str, ...]

    @property
    def rank(self) -> tuple[int, int, int, Cost, int]:
        """Lower goes first; the larger side of a cost counts before the other one."""
        return self.priority, self.away, value_of(self.cost), self.cost, self.backends


@dataclass(frozen=True)
class _Around:
    """The surroundings that a block's cost depends on.

    ``early`` is the mask of operations before it whose kernels let their successors start early,
    ``losses`` what subgraphs behind it cost more, by the operation of the block that they follow,
    if its kernel does not let them.
    """

    early: int
    losses: Mapping[int, int]


class Ties:
    """Decides ties of a cover of a problem. Blocks are bit masks of operations."""

    def __init__(self, problem: Problem) -> None:
        self._problem, self._graph, self._steps = problem, problem.graph, problem.steps
        self._masks, self._anchors, self._home = problem.masks, problem.links.anchors, ""
        self._covering: list[list[int]] = [[] for _ in self._graph.ops]  # usable ones, by op
        self._behind: dict[int, list[int]] = {}  # subgraphs by the operation that they follow
        for number, mask in enumerate(self._masks):
            for op in bits(mask) if problem.usable[number] else ():
                self._covering[op].append(number)
            self._behind.setdefault(self._anchors[number], []).append(number)

    def decide(self, picks: Sequence[Pick], equal_too: bool) -> list[Pick]:
        """The cover with all ties decided. Deterministic.

        ``equal_too`` may be False if the cover is known to be of the best priority among
        those of equal cost: blocks without any spread are then left alone.
        """
        self._home = self._cheapest_backend(picks)
        decided = self._decide(picks, equal_too, careful=False)
        if launch_order(self._graph, decided) is None:
            decided = self._decide(picks, equal_too, careful=True)
        return decided

    def _decide(self, picks: Sequence[Pick], equal_too: bool, careful: bool) -> list[Pick]:
        """``careful`` leaves out what would close a cycle."""
        owners, settled = self._owners(picks), 0
        for block in self._blocks():
            old = list(dict.fromkeys(owners[op] for op in bits(block)))
            if block & settled or any(self._masks[number] & ~block for number, _ in old):
                continue
            better = self._better(block, old, self._around(block, owners), equal_too)
            if better is None:
                continue
            changed = owners | self._owners(better)
            if careful and launch_order(self._graph, _picks(changed)) is None:
                continue
            owners = changed
            settled |= block
        return _picks(owners)

    def _owners(self, picks: Sequence[Pick]) -> dict[int, Pick]:
        return {op: pick for pick in picks for op in bits(self._masks[pick[0]])}

    def _around(self, block: int, owners: Owners) -> _Around:
        """Return the surroundings of a block in a cover."""
        before = {self._anchors[number] for op in bits(block) for number in self._covering[op]}
        early = 0
        for op in before - {-1}:
            if not block >> op & 1 and self._steps[owners[op]].early:
                early |= 1 << op
        losses: Counter[int] = Counter()
        for op in bits(block):
            for number in self._behind.get(op, ()):
                pick = owners[next(bits(self._masks[number]))]
                if pick[0] == number and not self._masks[number] & block:
                    losses[op] += self._steps[pick].saving
        return _Around(early, losses)

    def _cheapest_backend(self, picks: Sequence[Pick]) -> str:
        """The backend with the lowest total cost for the ops of all picks; a way to cover them that
        it does not offer counts as the most expensive offer of any backend. Empty if there is no
        choice."""
        sums: dict[str, list[Cost]] = {name: [] for name in self._problem.backends}
        contested = False
        for number, _ in picks:
            lowest: dict[str, Cost] = {}
            highest: Cost = ()
            block = self._masks[number]
            for other in self._covering[next(bits(block))]:
                for i in self._problem.usable[other] if self._masks[other] == block else ():
                    name = self._graph.subgraphs[other].offers[i].candidate.backend
                    cost = self._steps[other, i].linked  # as among its own kind
                    lowest[name] = min(lowest.get(name, cost), cost, key=value_of)
                    highest = max(highest or cost, cost, key=value_of)
            contested |= len(lowest) > 1
            for name, costs in sums.items():
                costs.append(lowest.get(name, highest))
        if not contested:
            return ""
        return min(sums, key=lambda name: value_of(summed(sums[name])))

    def _blocks(self) -> list[int]:
        """Sets of ops that a single subgraph covers, by first op, larger ones first."""
        order = sorted(self._masks, key=lambda mask: (mask & -mask, -mask.bit_count()))
        return list(dict.fromkeys(order))

    def _better(
        self, block: int, old: Sequence[Pick], around: _Around, equal_too: bool
    ) -> tuple[Pick, ...] | None:
        """The best way to cover a block that ties with the ``old`` one and goes before it."""
        slack = summed([self._spread(pick) for pick in old])
        if not any(slack) and not equal_too:
            return None
        best = now = self._way(old, around)
        ceiling = summed([now.cost, slack])
        inside = sorted({number for op in bits(block) for number in self._covering[op]})
        for numbers in coverings(self._graph, inside, block, MOST_WAYS):
            if len(numbers) > 1 and len(old) > 1:
                continue  # one side of a tie is a single subgraph
            for picks in itertools.islice(self._offers(numbers, ceiling), MOST_WAYS):
                way = self._way(picks, around)
                if not _within(way.cost, ceiling):
                    continue
                nearer = way.priority < now.priority or way.away < now.away
                if not nearer and not _within(way.cost, now.cost):
                    continue  # nothing is gained for its cost
                if (way.rank, way.names) < (best.rank, best.names):
                    best = way
        return best.picks if best.rank < now.rank else None

    def _offers(self, numbers: Sequence[int], ceiling: Cost) -> itertools.product[tuple[Pick, ...]]:
        """Combinations of offers of subgraphs, none of which is too expensive beside the cheapest
        offers of the others."""
        every = [[(number, i) for i in self._problem.usable[number]] for number in numbers]
        costs = [[self._steps[pick].linked for pick in picks] for picks in every]
        least = [tuple(map(min, zip(*own, strict=True))) for own in costs]
        fitting = []
        for place, (picks, own) in enumerate(zip(every, costs, strict=True)):
            others = least[:place] + least[place + 1 :]
            fits = [_within(summed([cost, *others]), ceiling) for cost in own]
            fitting.append(list(itertools.compress(picks, fits)))
        return itertools.product(*fitting)

    def _way(self, picks: Sequence[Pick], around: _Around) -> _Way:
        """A way to cover a block."""
        early = around.early
        for pick in picks:
            if self._steps[pick].early:
                early |= self._masks[pick[0]]
        costs, names, priorities, away = [], [], 0, 0
        for number, index in picks:
            step, anchor = self._steps[number, index], self._anchors[number]
            candidate = self._graph.subgraphs[number].offers[index].candidate
            costs.append(step.linked if anchor >= 0 and early >> anchor & 1 else step.cost)
            names.append(candidate.key)
            priorities += step.priority
            away += bool(self._home) and candidate.backend != self._home
        first, *rest = summed(costs)
        lost = sum(loss for op, loss in around.losses.items() if not early >> op & 1)
        priority, backends = divmod(priorities, LAUNCH)
        return _Way(tuple(picks), (first + lost, *rest), priority, away, backends, tuple(names))

    def _spread(self, pick: Pick) -> Cost:
        number, index = pick
        offer = self._graph.subgraphs[number].offers[index]
        return spread_of(offer.measurement, self._problem.objective)


def _picks(owners: Owners) -> list[Pick]:
    return list(dict.fromkeys(owners.values()))


def _within(cost: Cost, ceiling: Cost) -> bool:
    return all(a <= b for a, b in zip(cost, ceiling, strict=True))
