"""The cover problem with integer costs, indexed for the search by moves in operation order.

Costs are integers of a picosecond, so that sums do not depend on the order in which they are
taken, equal costs are equal, and the same graph gives the same cover on every machine.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ..errors import NoCandidate
from ..ir.measurement import Measurement
from ..ir.objective import own_cost, stream_sides
from ..partition.match_graph import MatchGraph, bits
from .assignment import Pick

UNIT = 1_000_000  # picoseconds in a microsecond
# Written priority among equal costs, as one integer: candidates that are not deterministic, then
# launches, then the places of the backends in their order. Fields are wide enough for 2^20 ops.
NONDETERMINISTIC, LAUNCH = 1 << 42, 1 << 21

Cost = tuple[int, ...]
Usable = Sequence[Sequence[int]]  # for each subgraph the offers that may be taken


def cost_of(measurement: Measurement, objective: str) -> Cost:
    """Cost of one launch in picoseconds: (kernel,) or (e2e,), for stream (device, host)."""
    if objective == "stream":
        device, host = stream_sides(measurement)
        return round(device * UNIT), round(host * UNIT)
    return (round(own_cost(measurement, objective)[0] * UNIT),)


def spread_of(measurement: Measurement, objective: str) -> Cost:
    """Spread of :func:`cost_of`."""
    kernel = round((measurement.kernel_spread_us or 0.0) * UNIT)
    if objective == "graph" or (objective == "sync" and measurement.e2e_us is None):
        return (kernel,)
    if objective == "sync":
        return (round((measurement.e2e_spread_us or 0.0) * UNIT),)
    return kernel, round((measurement.enqueue_spread_us or 0.0) * UNIT)


def value_of(cost: Sequence[int]) -> int:
    """The value of summed costs under an objective: the larger side counts."""
    return max(cost)


@dataclass(frozen=True)
class Step:
    """A pick of a move: its cost, and its priority among equal costs."""

    pick: Pick
    cost: Cost
    priority: int


@dataclass(frozen=True)
class Move:
    """All picks that cover the same operations.

    ``mask`` has the positions covered, ``read_mask`` the operations outside that it reads,
    ``above`` its dependences and ``below`` its dependants.
    """

    mask: int
    read_mask: int
    above: int
    below: int
    steps: tuple[Step, ...]


class Problem:
    """A MatchGraph under an objective, indexed for the search.

    Positions are those of the graph's operations, in program order. ``moves_at`` holds the moves by
    their first operation. ``usable`` names for each subgraph the offers that may be taken.

    Raises:
        NoCandidate: No usable offer covers some operation.
    """

    def __init__(
        self, graph: MatchGraph, objective: str, backend_order: Sequence[str], usable: Usable
    ) -> None:
        self.graph, self.objective = graph, objective
        self.sides = 2 if objective == "stream" else 1
        self.size = len(graph.ops)
        self._rank = {name: i for i, name in enumerate(backend_order)}
        known = graph.dependencies
        self.consumers, self.ancestors = known.consumers, known.ancestors
        by_mask: dict[int, list[Step]] = {}
        for number, indices in enumerate(usable):
            if indices:
                mask = known.mask(graph.subgraphs[number].ops)
                by_mask.setdefault(mask, []).extend(self._steps(number, indices))
        self._check_covered(by_mask)
        self.moves_at: list[list[Move]] = [[] for _ in graph.ops]
        for mask, steps in by_mask.items():
            self.moves_at[next(bits(mask))].append(self._move(mask, steps))

    def _steps(self, number: int, indices: Sequence[int]) -> list[Step]:
        subgraph, found = self.graph.subgraphs[number], []
        for index in indices:
            offer = subgraph.offers[index]
            unsure = not offer.candidate.deterministic
            rank = self._rank.get(offer.candidate.backend, len(self._rank))
            priority = unsure * NONDETERMINISTIC + subgraph.launches * LAUNCH + rank
            cost = cost_of(offer.measurement, self.objective)
            found.append(Step((number, index), cost, priority))
        return found

    def _check_covered(self, masks: Iterable[int]) -> None:
        covered = 0
        for mask in masks:
            covered |= mask
        missing = [op.name for i, op in enumerate(self.graph.ops) if not covered >> i & 1]
        if missing:
            more = f" and {len(missing) - 3} more" if len(missing) > 3 else ""
            raise NoCandidate(
                f"{', '.join(missing[:3])}{more}, which no measured candidate covers",
                "a subgraph with at least one measured candidate for every op",
            )

    def _move(self, mask: int, steps: Sequence[Step]) -> Move:
        known = self.graph.dependencies
        read_mask = 0
        for op in bits(mask):
            for name in self.graph.ops[op].inputs:
                if name in known.position:
                    read_mask |= 1 << known.position[name]
        return Move(mask, read_mask & ~mask, known.above(mask), known.below(mask), useful(steps))


def useful(steps: Sequence[Step]) -> tuple[Step, ...]:
    """Steps that no other beats on every side, cheapest first; of equals the preferred one."""
    kept: list[Step] = []
    for step in sorted(steps, key=lambda s: (s.cost, s.priority, s.pick)):
        if not any(all(a <= b for a, b in zip(k.cost, step.cost, strict=True)) for k in kept):
            kept.append(step)
    return tuple(kept)
