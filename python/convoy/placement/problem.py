"""The cover problem with integer costs, indexed for the search by moves in operation order.

Costs are integers of a picosecond, so that sums do not depend on the order in which they are
taken, equal costs are equal, and the same graph gives the same cover on every machine.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ..errors import NoCandidate
from ..ir.measurement import Measurement
from ..ir.objective import own_cost, saved_us, starts_successor_early, stream_sides
from ..partition.dependencies import bits
from ..partition.match_graph import MatchGraph
from .assignment import Pick
from .links import Links

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


def saving_of(measurement: Measurement, objective: str) -> int:
    """Return by how many picoseconds :func:`cost_of` is less for a link of a chain; only a replayed
    graph launches fast enough for chains."""
    return round(saved_us(measurement) * UNIT) if objective == "graph" else 0


def spread_of(measurement: Measurement, objective: str) -> Cost:
    """Spread of :func:`cost_of`."""
    kernel = round((measurement.kernel_spread_us or 0.0) * UNIT)
    if objective == "graph" or (objective == "sync" and measurement.e2e_us is None):
        return (kernel,)
    if objective == "sync":
        return (round((measurement.e2e_spread_us or 0.0) * UNIT),)
    return kernel, round((measurement.enqueue_spread_us or 0.0) * UNIT)


def summed(costs: Iterable[Cost]) -> Cost:
    """The sum of costs, each side on its own."""
    return tuple(map(sum, zip(*costs, strict=True)))


def value_of(cost: Sequence[int]) -> int:
    """The value of summed costs under an objective: the larger side counts."""
    return max(cost)


@dataclass(frozen=True)
class Step:
    """A pick of a move: its cost, and its priority among equal costs.

    ``early`` tells whether it lets its successor start early, ``saving`` what it costs less if its
    predecessor does.
    """

    pick: Pick
    cost: Cost
    priority: int
    early: bool = False
    saving: int = 0

    @property
    def linked(self) -> Cost:
        """The cost as a link of a chain."""
        return (self.cost[0] - self.saving, *self.cost[1:])

    def beats(self, other: Step) -> bool:
        """Return whether it is as good as another one in any cover, and better in some way or
        preferred where costs are equal."""
        if other.early and not self.early:
            return False
        for own, others in ((self.cost, other.cost), (self.linked, other.linked)):
            below = all(a <= b for a, b in zip(own, others, strict=True))
            if not below or (own == others and self.priority > other.priority):
                return False
        return True


@dataclass(frozen=True)
class Move:
    """All picks that cover the same operations.

    ``mask`` has the positions covered, ``read_mask`` the operations outside that it reads,
    ``above`` its dependences and ``below`` its dependants. ``anchor`` is the operation whose
    kernel precedes it (:class:`Links`).
    """

    mask: int
    read_mask: int
    above: int
    below: int
    anchor: int
    steps: tuple[Step, ...]


class Problem:
    """A MatchGraph under an objective, indexed for the search by positions of its operations, which
    are in program order.

    Attributes:
        sides: Number of costs that are summed apart: two for ``stream``.
        usable: For each subgraph the offers that may be taken.
        backends: Names of all backends; their order decides between equal costs.
        links: Which subgraph follows which.
        masks: The operations of each subgraph.
        steps: The step of each usable offer.
        moves_at: The moves by their first operation.
        links_at: For each operation the masks of the moves that are cheaper if its kernel lets
            them start early.

    Raises:
        NoCandidate: No usable offer covers some operation.
    """

    def __init__(
        self, graph: MatchGraph, objective: str, backends: Sequence[str], usable: Usable
    ) -> None:
        self.graph, self.objective, self.usable = graph, objective, usable
        self.sides = 2 if objective == "stream" else 1
        self.backends, self.links = tuple(backends), Links(graph)
        self.masks = [graph.dependencies.mask(subgraph.ops) for subgraph in graph.subgraphs]
        self.steps = {
            (number, index): self._step(number, index)
            for number, indices in enumerate(usable)
            for index in indices
        }
        by_mask: dict[int, list[Step]] = {}
        anchors: dict[int, int] = {}
        for (number, _), step in self.steps.items():
            by_mask.setdefault(self.masks[number], []).append(step)
            anchors[self.masks[number]] = self.links.anchors[number]
        self._check_covered(by_mask)
        self.moves_at: list[list[Move]] = [[] for _ in graph.ops]
        self.links_at: list[list[int]] = [[] for _ in graph.ops]
        for mask, steps in by_mask.items():
            move = self._move(mask, anchors[mask], steps)
            self.moves_at[next(bits(mask))].append(move)
            if move.anchor >= 0 and any(step.saving for step in move.steps):
                self.links_at[move.anchor].append(mask)

    def _step(self, number: int, index: int) -> Step:
        subgraph = self.graph.subgraphs[number]
        offer = subgraph.offers[index]
        measurement, unsure = offer.measurement, not offer.candidate.deterministic
        rank = self.backends.index(offer.candidate.backend)
        return Step(
            (number, index),
            cost_of(measurement, self.objective),
            unsure * NONDETERMINISTIC + subgraph.launches * LAUNCH + rank,
            starts_successor_early(measurement),
            saving_of(measurement, self.objective),
        )

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

    def _move(self, mask: int, anchor: int, steps: Sequence[Step]) -> Move:
        known = self.graph.dependencies
        read_mask = 0
        for op in bits(mask):
            for name in self.graph.ops[op].inputs:
                if name in known.position:
                    read_mask |= 1 << known.position[name]
        above, below = known.above(mask), known.below(mask)
        return Move(mask, read_mask & ~mask, above, below, anchor, useful(steps))


def useful(steps: Sequence[Step]) -> tuple[Step, ...]:
    """Steps that no other beats, cheapest first; of equals the preferred one."""
    kept: list[Step] = []
    for step in sorted(steps, key=lambda s: (s.cost, s.priority, s.pick)):
        if not any(other.beats(step) for other in kept):
            kept.append(step)
    return tuple(kept)
