"""Ties: where the measured spread cannot tell two ways apart, a written priority decides.

Two ways to cover the same ops are a tie when one of them is a single match and they differ, with
the transitions around them, by no more than the spread of the figures of the cheaper one. The
priority is, in this order: fewer candidates that are not deterministic, fewer launches, fewer
launches away from home, the lower cost, the order of the backends, then the names.

Home is the backend that would run the whole at the lowest cost. Among many figures with an error
the lowest is too low, the more so the more there are: a mixture that wins op by op by less than the
spread has won by its luck, not by its kernels. Differences within the spread are therefore no
reason to leave home; what is beyond it is.

A tie is decided against the exact optimum and every op takes part in at most one, so that small
differences cannot add up: the cover costs at most the sum of the spreads of what was replaced more
than the optimum. Where only the candidates change, and not what is fused, every exchange goes one
step of the way from the optimum to the same matches at home, so the cover is never dearer than
these.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from .assignment import Layouts, Pick, coverings, launch_order, owners
from .problem import LAUNCH, NONDETERMINISTIC, Cost, Usable, cost_of, spread_of, value_of

MOST_WAYS = 256  # ways to cover one block that are looked at


@dataclass(frozen=True)
class _Way:
    """One way to cover a block: the picks, their cost with transitions, and how it ranks."""

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


class Ties:
    """Decides ties of one cover under one objective."""

    def __init__(
        self, layouts: Layouts, objective: str, backend_order: Sequence[str], usable: Usable
    ) -> None:
        self._layouts, self._objective, self._usable = layouts, objective, usable
        self._graph = layouts.graph
        self._rank = {name: i for i, name in enumerate(backend_order)}
        position = self._graph.dependencies.position
        self._first = [min(map(position.__getitem__, m.ops)) for m in self._graph.matches]
        self._home = ""
        self._by_op: dict[str, list[int]] = {op.name: [] for op in self._graph.ops}
        for number, match in enumerate(self._graph.matches):
            for name in match.ops if usable[number] else ():
                self._by_op[name].append(number)

    def decide(self, picks: Sequence[Pick], equal_too: bool = True) -> list[Pick]:
        """The cover with all ties decided. Deterministic.

        ``equal_too`` may be False where the cover is known to be of the best priority among
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
        option = dict(picks)
        settled: set[str] = set()
        for ops in self._blocks():
            if not settled.isdisjoint(ops):
                continue
            inside = sorted({owner[name] for name in ops}, key=lambda n: (self._first[n], n))
            if sum(len(self._graph.matches[number].ops) for number in inside) != len(ops):
                continue
            old = [(number, option[number]) for number in inside]
            better = self._better(ops, old, owner, equal_too)
            if better is None:
                continue
            if careful:
                others = [pick for pick in chosen if pick not in old]
                if launch_order(self._graph, [*others, *better]) is None:
                    continue
            for pick in old:
                del chosen[pick]
            chosen.update(dict.fromkeys(better))
            option.update(better)
            owner.update(owners(self._graph, better))
            settled.update(ops)
        return list(chosen)

    def _cheapest_backend(self, picks: Sequence[Pick]) -> str:
        """The backend with which the ops of each pick together would cost least; what it does not
        offer counts as the dearest way that somebody does. Empty where there is nothing to choose.
        """
        sums: dict[str, list[Cost]] = {name: [] for name in self._rank}
        contested = False
        for number, _ in picks:
            lowest: dict[str, Cost] = {}
            highest: Cost = ()
            ops = set(self._graph.matches[number].ops)
            for other in self._by_op[self._graph.matches[number].ops[0]]:
                match = self._graph.matches[other]
                for i in self._usable[other] if set(match.ops) == ops else ():
                    name = match.options[i].candidate.backend
                    cost = cost_of(match.options[i].measurement, self._objective)
                    lowest[name] = min(lowest.get(name, cost), cost, key=value_of)
                    highest = max(highest or cost, cost, key=value_of)
            contested |= len(lowest) > 1
            for name, costs in sums.items():
                costs.append(lowest.get(name, highest))
        if not contested:
            return ""
        return min(sums, key=lambda name: value_of(self._sum(sums[name])))

    def _blocks(self) -> list[tuple[str, ...]]:
        """Sets of ops that some single match covers, by first op, larger ones first."""
        position = self._graph.dependencies.position
        numbers = range(len(self._graph.matches))
        order = sorted(numbers, key=lambda n: (self._first[n], -len(self._graph.matches[n].ops), n))
        blocks = (
            tuple(sorted(self._graph.matches[n].ops, key=position.__getitem__)) for n in order
        )
        return list(dict.fromkeys(blocks))

    def _better(
        self, ops: tuple[str, ...], old: Sequence[Pick], owner: dict[str, int], equal_too: bool
    ) -> tuple[Pick, ...] | None:
        slack = self._sum([self._spread(pick) for pick in old])
        if not any(slack) and not equal_too:
            return None
        now = self._way(ops, old, owner)
        assert now is not None, "a cover in use has no impossible transition"
        ceiling = tuple(a + b for a, b in zip(now.cost, slack, strict=True))
        best = now
        inside = sorted({number for name in ops for number in self._by_op[name]})
        ways = coverings(self._graph, inside, ops, MOST_WAYS)
        for numbers in ways:
            if len(numbers) > 1 and len(old) > 1:
                continue  # one side of a tie is a single match
            for indices in itertools.islice(self._options(numbers, ceiling), MOST_WAYS):
                way = self._way(ops, list(zip(numbers, indices, strict=True)), owner)
                if way is None or not _within(way.cost, ceiling):
                    continue
                nearer = way.priority < now.priority or way.away < now.away
                if not nearer and not _within(way.cost, now.cost):
                    continue  # nothing is gained that would be worth its cost
                if (way.rank, way.names) < (best.rank, best.names):
                    best = way
        return best.picks if best.rank < now.rank else None

    def _options(self, numbers: Sequence[int], ceiling: Cost) -> itertools.product[tuple[int, ...]]:
        fitting = []
        for number in numbers:
            match = self._graph.matches[number]
            fitting.append(
                [
                    i
                    for i in self._usable[number]
                    if _within(cost_of(match.options[i].measurement, self._objective), ceiling)
                ]
            )
        return itertools.product(*fitting)

    def _way(self, ops: Sequence[str], picks: Sequence[Pick], owner: dict[str, int]) -> _Way | None:
        """A way to cover a block in the place of what ``owner`` has there; None if impossible."""
        graph = self._graph
        there = {**{name: owner[name] for name in self._around(ops)}, **owners(graph, picks)}
        touched = dict.fromkeys(
            value for number, _ in picks for value in graph.reads(graph.matches[number])
        )
        touched.update(dict.fromkeys(ops))
        written = {v for number, _ in picks for v in graph.matches[number].outputs}
        values = [v for v in touched if v not in ops or v in written]
        transitions = self._layouts.needed(values, there)
        if transitions is None:
            return None
        figures = [graph.matches[n].options[i].measurement for n, i in picks]
        figures += [transition.measurement for transition in transitions]
        priority, away, backends = len(transitions) * LAUNCH, 0, 0
        for number, index in picks:
            match = graph.matches[number]
            candidate = match.options[index].candidate
            priority += (not candidate.deterministic) * NONDETERMINISTIC + match.launches * LAUNCH
            away += candidate.backend != self._home
            backends += self._rank.get(candidate.backend, len(self._rank))
        names = tuple(graph.matches[n].options[i].candidate.key for n, i in picks)
        cost = self._sum([cost_of(figure, self._objective) for figure in figures])
        return _Way(tuple(picks), cost, priority, away if self._home else 0, backends, names)

    def _around(self, ops: Sequence[str]) -> list[str]:
        """Ops that write or read what the block reads, or read what it writes."""
        graph, layouts = self._graph, self._layouts
        position = graph.dependencies.position
        values = set(ops)
        for name in ops:
            values.update(graph.ops[position[name]].inputs)
        names = {name for name in values if name in position}
        for value in values:
            names.update(layouts.readers[value])
        return sorted(names, key=position.__getitem__)

    def _spread(self, pick: Pick) -> Cost:
        number, index = pick
        return spread_of(self._graph.matches[number].options[index].measurement, self._objective)

    @staticmethod
    def _sum(costs: Sequence[Cost]) -> Cost:
        return tuple(map(sum, zip(*costs, strict=True)))


def _within(cost: Cost, ceiling: Cost) -> bool:
    return all(a <= b for a, b in zip(cost, ceiling, strict=True))
