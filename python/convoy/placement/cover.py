"""The cheapest cover of a dataflow graph by matches: which patterns, backends and kernels.

Every op is covered by exactly one match, every value that is read is written, and the matches do
not wait for each other in a circle. What a cover costs is the objective's formula (objective.py)
over its launches and the transitions between them. docs/placer.md describes the algorithm.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import NoCandidate
from ..ir import objective as objectives
from ..ir.measurement import Measurement
from ..ir.offer import Offer
from ..partition.match_graph import Match, MatchGraph, bits
from .assignment import Layouts, Pick, Transition, launch_order, owners
from .problem import UNIT, Problem, Usable
from .solve import WIDTH, solve
from .ties import Ties
from .transition import NoTransitions, Transitions


@dataclass(frozen=True)
class Cover:
    """A cover of a graph, in an order in which it can be launched.

    ``picks`` are (match, option) by index. ``optimum_us`` is the least cost that was found before
    ties were decided, ``bound_us`` a proven lower bound on the cost of any cover; where the two
    are equal the optimum is proven. ``states`` counts the partial covers that the search kept.
    """

    graph: MatchGraph
    objective: str
    picks: tuple[Pick, ...]
    transitions: tuple[Transition, ...]
    optimum_us: float
    bound_us: float
    states: int = 0

    @property
    def matches(self) -> list[tuple[Match, Offer]]:
        """The matches with their chosen candidates, in launch order."""
        found = []
        for number, index in self.picks:
            match = self.graph.matches[number]
            found.append((match, match.options[index]))
        return found

    @property
    def exact(self) -> bool:
        """Whether no cover can be cheaper than ``optimum_us``."""
        return self.bound_us >= self.optimum_us

    @property
    def gap(self) -> float:
        """How much of the optimum found may at most be saved, as a fraction."""
        return 0.0 if self.exact else 1.0 - self.bound_us / self.optimum_us

    def figures(self) -> list[Measurement]:
        """Figures of all launches, those of transitions last."""
        own = [scored.measurement for _, scored in self.matches]
        return own + [transition.measurement for transition in self.transitions]

    def total_us(self, objective: str | None = None) -> float:
        """Predicted time in microseconds under an objective (default: its own)."""
        return objectives.total(self.figures(), objective or self.objective)

    def backends(self) -> dict[str, int]:
        """How many matches each backend got."""
        counts: dict[str, int] = {}
        for _, scored in self.matches:
            counts[scored.candidate.backend] = counts.get(scored.candidate.backend, 0) + 1
        return dict(sorted(counts.items()))

    def to_json(self) -> dict[str, Any]:
        return {
            "objective": self.objective,
            "total_us": self.total_us(),
            "optimum_us": self.optimum_us,
            "bound_us": self.bound_us,
            "launches": [
                {"pattern": match.pattern, "ops": list(match.ops), **scored.to_json()}
                for match, scored in self.matches
            ],
            "transitions": [
                {"value": t.value, "source": str(t.source), "target": str(t.target)}
                for t in self.transitions
            ],
        }


def find_cover(
    graph: MatchGraph,
    objective: str = "graph",
    transitions: Transitions | None = None,
    backend_order: Sequence[str] | None = None,
    decide_ties: bool = True,
    width: int = WIDTH,
    seconds: float = 60.0,
    usable: Usable | None = None,
) -> Cover:
    """The cheapest cover of a graph under an objective.

    Options without figures, and those that failed, are left out. ``transitions`` default to none
    at all: matches must agree on forms. ``backend_order`` decides between ties (default: order of
    appearance in the graph). ``width`` is the number of partial covers at one cut beyond which an
    integer program takes over, ``seconds`` the time that this may take: when it runs out, the
    cover is not proven optimal but has a stated bound. ``usable`` may name for each match the
    options to choose from.

    Raises InvalidOption for an unknown objective, NoCandidate where ops cannot be covered.
    """
    objectives.check(objective)
    order = list(backend_order or [])
    order += [name for name in graph.backends() if name not in order]
    if usable is None:
        usable = usable_options(graph)
    layouts = Layouts(graph, transitions or NoTransitions())
    problem = Problem(graph, objective, layouts.transitions, order, usable)
    solved = solve(problem, layouts, width, seconds)
    picks: Sequence[Pick] = solved.picks
    if decide_ties:
        picks = Ties(layouts, objective, order, usable).decide(picks, not solved.preferred)
    optimum, bound = solved.value / UNIT, solved.bound / UNIT
    cover = cover_of(layouts, objective, picks, optimum, bound, solved.states)
    assert cover is not None, "the search closes no cycle and takes no impossible transition"
    return cover


def single_backend(
    graph: MatchGraph,
    backends: Sequence[str],
    objective: str = "graph",
    transitions: Transitions | None = None,
) -> Cover:
    """The cheapest cover with one backend, and others behind it for what it declines.

    Of a backend that stands behind, only those matches are used that contain no whole match of
    one before it; where that leaves no cover, all of theirs are.

    Raises NoCandidate where all of them together do not cover the graph.
    """
    usable: list[list[int]] = [[] for _ in graph.matches]
    every: list[list[int]] = [[] for _ in graph.matches]
    masks = [graph.dependencies.mask(match.ops) for match in graph.matches]
    before: dict[int, list[int]] = {}  # masks of preferred matches by their lowest op
    for name in backends:
        own = _options_of(graph, name)
        for number, indices in own.items():
            every[number] += indices
            inside = (m for op in bits(masks[number]) for m in before.get(op, ()))
            if all(m & ~masks[number] for m in inside):
                usable[number] += indices
        for number in own:
            before.setdefault(next(bits(masks[number])), []).append(masks[number])
    try:
        return find_cover(graph, objective, transitions, backends, usable=usable)
    except NoCandidate:
        return find_cover(graph, objective, transitions, backends, usable=every)


def usable_options(graph: MatchGraph) -> list[list[int]]:
    """For each match the options that have figures."""
    return [[i for i, s in enumerate(m.options) if s.measurement.ok] for m in graph.matches]


def _options_of(graph: MatchGraph, backend: str) -> dict[int, list[int]]:
    """For each match of a backend its options with figures."""
    found = {}
    for number, indices in enumerate(usable_options(graph)):
        options = graph.matches[number].options
        if own := [i for i in indices if options[i].candidate.backend == backend]:
            found[number] = own
    return found


def cover_of(
    layouts: Layouts,
    objective: str,
    picks: Sequence[Pick],
    optimum_us: float = 0.0,
    bound_us: float = 0.0,
    states: int = 0,
) -> Cover | None:
    """A cover from picks that cover every op once; None where they wait for each other in a
    circle or need an impossible transition."""
    order = launch_order(layouts.graph, picks)
    needed = layouts.needed(layouts.readers, owners(layouts.graph, picks))
    if order is None or needed is None:
        return None
    return Cover(
        layouts.graph, objective, tuple(order), tuple(needed), optimum_us, bound_us, states
    )
