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
from collections.abc import Collection, Mapping, Sequence, Set
from dataclasses import dataclass

from ..ir.objective import starts_successor_early
from ..partition.match_graph import MatchGraph
from .assignment import Pick, coverings, launch_order, owners
from .links import Links
from .problem import (
    LAUNCH,
    NONDETERMINISTIC,
    Cost,
    Usable,
    cost_of,
    saving_of,
    spread_of,
    value_of,
)

MOST_WAYS = 256  # ways to cover one block that are compared


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
    """The surroundings that a block's cost depends on: the operations before it whose kernels let
    their successors start early, and the subgraphs that follow one of the block's, with what each
    costs more if that one does not."""

    early: Set[int]
    losses: Mapping[int, int]  # by position of the operation that it follows


class Ties:
    """Decides ties of one cover under one objective."""

    def __init__(
        self, graph: MatchGraph, objective: str, backend_order: Sequence[str], usable: Usable
    ) -> None:
        self._graph, self._objective, self._usable = graph, objective, usable
        self._links = Links(graph)
        self._rank = {name: i for i, name in enumerate(backend_order)}
        position = self._graph.dependencies.position
        self._first = [min(map(position.__getitem__, s.ops)) for s in self._graph.subgraphs]
        self._home = ""
        self._by_op: dict[str, list[int]] = {op.name: [] for op in self._graph.ops}
        self._behind: dict[int, list[int]] = {}  # subgraphs by the operation that they follow
        for number, subgraph in enumerate(self._graph.subgraphs):
            for name in subgraph.ops if usable[number] else ():
                self._by_op[name].append(number)
            self._behind.setdefault(self._links.anchors[number], []).append(number)

    def decide(self, picks: Sequence[Pick], equal_too: bool = True) -> list[Pick]:
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
        chosen = dict.fromkeys(picks)
        owner = owners(self._graph, picks)
        offer = dict(picks)
        settled: set[str] = set()
        for ops in self._blocks():
            if not settled.isdisjoint(ops):
                continue
            inside = sorted({owner[name] for name in ops}, key=lambda n: (self._first[n], n))
            if sum(len(self._graph.subgraphs[number].ops) for number in inside) != len(ops):
                continue
            old = [(number, offer[number]) for number in inside]
            better = self._better(ops, old, self._around(ops, chosen, owner, offer), equal_too)
            if better is None:
                continue
            if careful:
                others = [pick for pick in chosen if pick not in old]
                if launch_order(self._graph, [*others, *better]) is None:
                    continue
            for pick in old:
                del chosen[pick]
            chosen.update(dict.fromkeys(better))
            offer.update(better)
            owner.update(owners(self._graph, better))
            settled.update(ops)
        return list(chosen)

    def _around(
        self,
        ops: Collection[str],
        chosen: Collection[Pick],
        owner: Mapping[str, int],
        offer: Mapping[int, int],
    ) -> _Around:
        """Return the surroundings of a block in a cover, in which ``owner`` covers each operation
        with its ``offer``."""
        if self._objective != "graph":
            return _Around(frozenset(), {})
        position, subgraphs = self._graph.dependencies.position, self._graph.subgraphs
        own = {position[name] for name in ops}
        before = {self._links.anchors[number] for name in ops for number in self._by_op[name]}
        early: set[int] = set()
        for anchor in before - own - {-1}:
            number = owner[self._graph.ops[anchor].name]
            if starts_successor_early(subgraphs[number].offers[offer[number]].measurement):
                early.add(anchor)
        losses: Counter[int] = Counter()
        for anchor in own:
            for number in self._behind.get(anchor, ()):
                outside = own.isdisjoint(position[name] for name in subgraphs[number].ops)
                if outside and (pick := (number, offer.get(number, -1))) in chosen:
                    measurement = subgraphs[number].offers[pick[1]].measurement
                    losses[anchor] += saving_of(measurement, self._objective)
        return _Around(early, losses)

    def _cheapest_backend(self, picks: Sequence[Pick]) -> str:
        """The backend with the lowest total cost for the ops of all picks; a way to cover them that
        it does not offer counts as the most expensive offer of any backend. Empty if there is no
        choice."""
        sums: dict[str, list[Cost]] = {name: [] for name in self._rank}
        contested = False
        for number, _ in picks:
            lowest: dict[str, Cost] = {}
            highest: Cost = ()
            ops = set(self._graph.subgraphs[number].ops)
            for other in self._by_op[self._graph.subgraphs[number].ops[0]]:
                subgraph = self._graph.subgraphs[other]
                for i in self._usable[other] if set(subgraph.ops) == ops else ():
                    name = subgraph.offers[i].candidate.backend
                    cost = self._linked_cost((other, i))  # as among its own kind
                    lowest[name] = min(lowest.get(name, cost), cost, key=value_of)
                    highest = max(highest or cost, cost, key=value_of)
            contested |= len(lowest) > 1
            for name, costs in sums.items():
                costs.append(lowest.get(name, highest))
        if not contested:
            return ""
        return min(sums, key=lambda name: value_of(self._sum(sums[name])))

    def _blocks(self) -> list[tuple[str, ...]]:
        """Sets of ops that a single subgraph covers, by first op, larger ones first."""
        position = self._graph.dependencies.position
        every = self._graph.subgraphs
        order = sorted(range(len(every)), key=lambda n: (self._first[n], -len(every[n].ops), n))
        return list(
            dict.fromkeys(tuple(sorted(every[n].ops, key=position.__getitem__)) for n in order)
        )

    def _better(
        self, ops: tuple[str, ...], old: Sequence[Pick], around: _Around, equal_too: bool
    ) -> tuple[Pick, ...] | None:
        slack = self._sum([self._spread(pick) for pick in old])
        if not any(slack) and not equal_too:
            return None
        now = self._way(old, around)
        ceiling = tuple(a + b for a, b in zip(now.cost, slack, strict=True))
        best = now
        inside = sorted({number for name in ops for number in self._by_op[name]})
        ways = coverings(self._graph, inside, ops, MOST_WAYS)
        for numbers in ways:
            if len(numbers) > 1 and len(old) > 1:
                continue  # one side of a tie is a single subgraph
            for indices in itertools.islice(self._offers(numbers, ceiling), MOST_WAYS):
                way = self._way(list(zip(numbers, indices, strict=True)), around)
                if not _within(way.cost, ceiling):
                    continue
                nearer = way.priority < now.priority or way.away < now.away
                if not nearer and not _within(way.cost, now.cost):
                    continue  # nothing is gained for its cost
                if (way.rank, way.names) < (best.rank, best.names):
                    best = way
        return best.picks if best.rank < now.rank else None

    def _offers(self, numbers: Sequence[int], ceiling: Cost) -> itertools.product[tuple[int, ...]]:
        fitting = []
        for number in numbers:
            usable = self._usable[number]
            fitting.append([i for i in usable if _within(self._linked_cost((number, i)), ceiling)])
        return itertools.product(*fitting)

    def _way(self, picks: Sequence[Pick], around: _Around) -> _Way:
        """A way to cover a block."""
        priority = away = backends = 0
        costs, names = [], []
        early = self._early(picks, around)
        lost = sum(loss for anchor, loss in around.losses.items() if anchor not in early)
        for number, index in picks:
            subgraph = self._graph.subgraphs[number]
            offer = subgraph.offers[index]
            candidate = offer.candidate
            priority += (not candidate.deterministic) * NONDETERMINISTIC
            priority += subgraph.launches * LAUNCH
            away += candidate.backend != self._home
            backends += self._rank.get(candidate.backend, len(self._rank))
            linked = self._links.anchors[number] in early
            cost = cost_of(offer.measurement, self._objective)
            costs.append(self._linked_cost((number, index)) if linked else cost)
            names.append(candidate.key)
        away = away if self._home else 0
        first, *rest = self._sum(costs)
        cost = (first + lost, *rest)
        return _Way(tuple(picks), cost, priority, away, backends, tuple(names))

    def _early(self, picks: Sequence[Pick], around: _Around) -> Set[int]:
        """The operations of kernels that let their successors start early."""
        position, early = self._graph.dependencies.position, set(around.early)
        for number, index in picks:
            subgraph = self._graph.subgraphs[number]
            if starts_successor_early(subgraph.offers[index].measurement):
                early.update(position[name] for name in subgraph.ops)
        return early

    def _linked_cost(self, pick: Pick) -> Cost:
        """The cost of a pick whose predecessor lets it start early."""
        number, index = pick
        measurement = self._graph.subgraphs[number].offers[index].measurement
        first, *rest = cost_of(measurement, self._objective)
        return (first - saving_of(measurement, self._objective), *rest)

    def _spread(self, pick: Pick) -> Cost:
        number, index = pick
        return spread_of(self._graph.subgraphs[number].offers[index].measurement, self._objective)

    @staticmethod
    def _sum(costs: Sequence[Cost]) -> Cost:
        return tuple(map(sum, zip(*costs, strict=True)))


def _within(cost: Cost, ceiling: Cost) -> bool:
    return all(a <= b for a, b in zip(cost, ceiling, strict=True))
