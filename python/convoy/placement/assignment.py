"""A set of matches that covers a graph, as plain choices: order of launch, transitions, cost."""

from __future__ import annotations

import functools
import heapq
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ..ir.measurement import Measurement
from ..partition.match_graph import Form, MatchGraph, bits
from .transition import Transitions

Pick = tuple[int, int]  # index of the match in the graph, index of the option in the match


@dataclass(frozen=True)
class Transition:
    """A value brought from the form it was written in to another one, once for all its readers."""

    value: str
    source: Form
    target: Form
    measurement: Measurement


class Layouts:
    """Forms and readers of the values of one graph, and what transitions between them cost."""

    def __init__(self, graph: MatchGraph, transitions: Transitions) -> None:
        self.graph, self.transitions = graph, transitions
        self._reads = [dict(match.input_forms) for match in graph.matches]
        self._writes = [dict(match.output_forms) for match in graph.matches]
        self._inputs = dict(graph.inputs)
        self._results = dict(graph.results)
        self._elements = {op.name: op.elements for op in graph.ops}
        self.readers: dict[str, list[str]] = {name: [] for name, _ in graph.inputs}
        for op in graph.ops:
            self.readers[op.name] = []
            for name in dict.fromkeys(op.inputs):
                self.readers[name].append(op.name)

    def demands(self, value: str, owner: dict[str, int]) -> tuple[Form, list[Form]]:
        """Form in which a value is written, and the others in which it is wanted, in order.

        ``owner`` names for each op the match that covers it.
        """
        own = owner.get(value)
        form = self._inputs[value] if own is None else self._writes[own].get(value, Form())
        wanted = {
            self._reads[owner[reader]].get(value, Form())
            for reader in self.readers[value]
            if owner[reader] != own
        }
        if (result := self._results.get(value)) is not None:
            wanted.add(result)
        return form, sorted(wanted - {form})

    @functools.cache  # noqa: B019  (one graph, one search)
    def figure(self, value: str, source: Form, target: Form) -> Measurement | None:
        """Figures of a transition, None where it is impossible."""
        return self.transitions.between(self._elements.get(value, 1), source, target)

    def needed(self, values: Iterable[str], owner: dict[str, int]) -> list[Transition] | None:
        """All transitions of these values; None where one is impossible."""
        found = []
        for value in values:
            source, targets = self.demands(value, owner)
            for target in targets:
                figure = self.figure(value, source, target)
                if figure is None:
                    return None
                if figure.kernel_us or figure.enqueue_us or figure.e2e_us:
                    found.append(Transition(value, source, target, figure))
        return found


def owners(graph: MatchGraph, picks: Sequence[Pick]) -> dict[str, int]:
    """For each op the match that covers it."""
    return {name: number for number, _ in picks for name in graph.matches[number].ops}


def launch_order(graph: MatchGraph, picks: Sequence[Pick]) -> list[Pick] | None:
    """The picks in an order in which every value is there when it is read, as near to the order
    of the ops as that allows; None where they wait for each other in a circle."""
    known = graph.dependencies
    of_op: dict[int, int] = {}
    for i, (number, _) in enumerate(picks):
        of_op.update((known.position[name], i) for name in graph.matches[number].ops)
    after: list[set[int]] = [set() for _ in picks]
    waiting = [0] * len(picks)
    for op, i in of_op.items():
        for reader in bits(known.consumers[op]):
            j = of_op[reader]
            if j != i and j not in after[i]:
                after[i].add(j)
                waiting[j] += 1
    last = [0] * len(picks)
    for op, i in of_op.items():
        last[i] = max(last[i], op)
    ready = [(last[i], i) for i, count in enumerate(waiting) if count == 0]
    heapq.heapify(ready)
    order = []
    while ready:
        _, i = heapq.heappop(ready)
        order.append(picks[i])
        for j in after[i]:
            waiting[j] -= 1
            if waiting[j] == 0:
                heapq.heappush(ready, (last[j], j))
    return order if len(order) == len(picks) else None


def coverings(
    graph: MatchGraph, inside: Sequence[int], ops: Iterable[str], limit: int
) -> list[tuple[int, ...]]:
    """Ways to cover exactly these ops with matches out of ``inside``, at most ``limit``, in a fixed
    order."""
    known = graph.dependencies
    whole = known.mask(ops)
    by_first: dict[int, list[tuple[int, int]]] = {}
    for number in inside:
        mask = known.mask(graph.matches[number].ops)
        if not mask & ~whole:
            by_first.setdefault(next(bits(mask)), []).append((mask, number))
    found: list[tuple[int, ...]] = []
    open_ways: list[tuple[int, tuple[int, ...]]] = [(whole, ())]
    while open_ways and len(found) < limit:
        left, taken = open_ways.pop()
        if not left:
            found.append(taken)
            continue
        choices = by_first.get(next(bits(left)), [])
        open_ways += [
            (left & ~mask, (*taken, number))
            for mask, number in reversed(choices)
            if not mask & ~left
        ]
    return found
