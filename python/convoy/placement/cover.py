"""Find the cheapest cover of a match graph: subgraphs, backends and kernels.

Every operation is covered by exactly one subgraph, every value that is read is written, and
subgraphs have no cyclic dependences. The cost of a cover is the objective's formula
(ir/objective.py) of its launches. docs/design/placement.md describes the algorithm.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from ..errors import NoCandidate
from ..ir import objective as objectives
from ..ir.measurement import Measurement
from ..ir.offer import Offer
from ..partition.dependencies import bits
from ..partition.match_graph import MatchGraph, Subgraph
from .assignment import Pick, launch_order
from .links import Links
from .problem import UNIT, Problem, Usable
from .solve import WIDTH, solve
from .ties import Ties


@dataclass(frozen=True)
class Cover:
    """A cover of a graph, in an order in which it can be launched.

    ``picks`` are (subgraph, offer) by index. ``optimum_us`` is the least cost that was found before
    ties were decided, ``bound_us`` a proven lower bound on the cost of any cover; where the two
    are equal the optimum is proven. ``states`` counts the partial covers that the search kept.
    """

    graph: MatchGraph
    objective: str
    picks: tuple[Pick, ...]
    optimum_us: float
    bound_us: float
    states: int = 0

    @property
    def launches(self) -> list[tuple[Subgraph, Offer]]:
        """The subgraphs with their chosen offers, in launch order."""
        found = []
        for number, index in self.picks:
            subgraph = self.graph.subgraphs[number]
            found.append((subgraph, subgraph.offers[index]))
        return found

    @property
    def exact(self) -> bool:
        """Whether no cover can be cheaper than ``optimum_us``."""
        return self.bound_us >= self.optimum_us

    @property
    def gap(self) -> float:
        """Upper bound on the possible improvement, as a fraction of the cover's cost."""
        return 0.0 if self.exact else 1.0 - self.bound_us / self.optimum_us

    def measurements(self) -> list[Measurement]:
        """Measurements of all launches."""
        return [offer.measurement for _, offer in self.launches]

    @functools.cached_property
    def linked(self) -> list[bool]:
        """Whether each launch is a link of a chain (links.py)."""
        if self.objective != "graph":
            return [False] * len(self.picks)
        links = Links(self.graph).of(self.picks)
        return [pick in links for pick in self.picks]

    def total_us(self, objective: str | None = None) -> float:
        """Predicted time in microseconds under an objective (default: its own)."""
        return objectives.total(self.measurements(), objective or self.objective, self.linked)

    def backends(self) -> dict[str, int]:
        """Return the number of subgraphs of each backend."""
        return dict(sorted(Counter(o.candidate.backend for _, o in self.launches).items()))


def find_cover(
    graph: MatchGraph,
    objective: str = "graph",
    backend_order: Sequence[str] | None = None,
    decide_ties: bool = True,
    width: int = WIDTH,
    seconds: float = 60.0,
    usable: Usable | None = None,
) -> Cover:
    """The cheapest cover of a priced graph under an objective.

    Args:
        graph: The graph; offers without a measurement, and those that failed, are left out.
        objective: What is minimized.
        backend_order: Decides between ties (default: order of appearance in the graph).
        decide_ties: Whether to decide ties by the written priority (ties.py).
        width: Partial covers at one cut beyond which an integer program takes over.
        seconds: Time that this may take: when it runs out, the cover is not proven optimal but has
            a stated bound.
        usable: For each subgraph the offers to choose from (default: all).

    Raises:
        InvalidOption: There is no such objective.
        NoCandidate: Some operations cannot be covered.
    """
    objectives.check(objective)
    order = list(backend_order or [])
    order += [name for name in graph.offering() if name not in order]
    if usable is None:
        usable = usable_offers(graph)
    problem = Problem(graph, objective, order, usable)
    solved = solve(problem, width, seconds)
    picks: Sequence[Pick] = solved.picks
    if decide_ties:
        picks = Ties(problem).decide(picks, not solved.preferred)
    optimum, bound = solved.value / UNIT, solved.bound / UNIT
    cover = cover_of(graph, objective, picks, optimum, bound, solved.states)
    assert cover is not None, "the search closes no cycle"
    return cover


def single_backend(graph: MatchGraph, backends: Sequence[str], objective: str = "graph") -> Cover:
    """The cheapest cover with the first backend, and the others behind it for what it declines.

    Of a backend that stands behind, only those subgraphs are used that contain no whole subgraph of
    one before it; where that leaves no cover, all of theirs are.

    Raises:
        NoCandidate: All of them together do not cover the graph.
    """
    usable: list[list[int]] = [[] for _ in graph.subgraphs]
    every: list[list[int]] = [[] for _ in graph.subgraphs]
    masks = [graph.dependencies.mask(subgraph.ops) for subgraph in graph.subgraphs]
    before: dict[int, list[int]] = {}  # masks of preferred subgraphs by their lowest op
    for name in backends:
        own = _offers_of(graph, name)
        for number, indices in own.items():
            every[number] += indices
            inside = (m for op in bits(masks[number]) for m in before.get(op, ()))
            if all(m & ~masks[number] for m in inside):
                usable[number] += indices
        for number in own:
            before.setdefault(next(bits(masks[number])), []).append(masks[number])
    try:
        return find_cover(graph, objective, backends, usable=usable)
    except NoCandidate:
        return find_cover(graph, objective, backends, usable=every)


def usable_offers(graph: MatchGraph) -> list[list[int]]:
    """Map each subgraph's index to its measured offers."""
    return [[i for i, o in enumerate(s.offers) if o.measurement.ok] for s in graph.subgraphs]


def _offers_of(graph: MatchGraph, backend: str) -> dict[int, list[int]]:
    """Map each subgraph's index to its measured offers of a backend."""
    found = {}
    for number, indices in enumerate(usable_offers(graph)):
        offers = graph.subgraphs[number].offers
        if own := [i for i in indices if offers[i].candidate.backend == backend]:
            found[number] = own
    return found


def cover_of(
    graph: MatchGraph,
    objective: str,
    picks: Sequence[Pick],
    optimum_us: float = 0.0,
    bound_us: float = 0.0,
    states: int = 0,
) -> Cover | None:
    """A cover from picks that cover every operation once; None if they have a cyclic dependence."""
    order = launch_order(graph, picks)
    if order is None:
        return None
    return Cover(graph, objective, tuple(order), optimum_us, bound_us, states)
