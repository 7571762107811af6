"""Select subgraphs and kernels for a network: greedily, by exact search, or by evolution."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence

from ..errors import InvalidOption, NoCandidate
from ..ir import objective as objectives
from ..ir.kernel_words import NATIVE
from ..ir.offer import Offers
from ..ir.plan import Plan
from ..ir.workload import Workload
from ..partition.match_graph import MatchGraph
from ..progress import step
from .concurrent import choose_for_streams
from .cover import Cover, find_cover
from .greedy import choose_greedily
from .placement import Placement, placement_of, placement_of_cover, plan_of
from .priced import priced
from .reasons import explanation_of
from .simulated import STREAMS

SEARCHES = ("greedy", "exact", "evolve")

#: Times a whole placement: samples in microseconds.
Timed = Callable[[Placement], Sequence[float]]


def select(
    graphs: Sequence[MatchGraph],
    offers: Mapping[Workload, Offers],
    objective: str = "graph",
    search: str = "exact",
    *,
    source: str = "measured",
    environment: str = "",
    timed: Timed | None = None,
    seconds: float = 60.0,
    streams: int | str = 1,
) -> Placement:
    """Select the cheapest placement of a network.

    Args:
        graphs: The match graphs of the network's normal forms.
        offers: The offers of their workloads (see ``cost.price``).
        objective: What is minimized: ``graph``, ``stream`` or ``sync``.
        search: ``greedy`` chooses root by root; ``exact`` finds the cheapest cover of the whole
            graph, root by root where some have no measurement; ``evolve`` refines that cover by its
            simulated schedule.
        source: Where the measurements come from.
        environment: Id of the environment that they were taken in.
        timed: For ``evolve``: runs a whole placement; without it the simulated schedule decides.
        seconds: For ``evolve``: time that ``timed`` may take altogether, about.
        streams: With "auto" kernels are exchanged for others that leave room for a neighbour on
            another stream (concurrent.py); with a number each is the best by itself, and
            ``evolve`` simulates so many streams at most.

    Raises:
        InvalidOption: There is no such objective or search.
        NoCandidate: No backend can run a workload.
    """
    objectives.check(objective)
    if search not in SEARCHES:
        raise InvalidOption(f"search {search!r}", f"one of {', '.join(SEARCHES)}")
    selector = _Selector(offers, objective, source, environment, streams)
    covered = []
    for number, graph in enumerate(graphs):
        step("cover of a normal form", number, len(graphs))
        covered.append(selector.placed(graph, search))
    placed = min(covered, key=_order)  # the first of equal
    if search == "evolve" and placed.cover is not None:
        placed = selector.evolved(placed, placed.cover, timed, seconds)
    return selector.for_streams(placed)


def _order(placement: Placement) -> tuple[int, int, float]:
    """Cheapest first; costs outside the plan's total (TVM's kernels, unmeasured choices) are
    compared before it."""
    return len(placement.native), len(placement.plan.untimed()), placement.total_us()


@dataclasses.dataclass(frozen=True)
class _Selector:
    """State that the steps of a selection share."""

    offers: Mapping[Workload, Offers]
    objective: str
    source: str
    environment: str
    streams: int | str

    def placed(self, graph: MatchGraph, search: str) -> Placement:
        plan = self._greedy(graph)
        if search == "greedy" or plan.untimed():
            return placement_of(graph, plan)
        full = priced(graph, self.offers)
        return self._covered(graph, find_cover(full, self.objective, graph.backends))

    def evolved(
        self, exact: Placement, cover: Cover, timed: Timed | None, seconds: float
    ) -> Placement:
        """The exact placement refined by evolutionary search (refine.py)."""
        from .refine import refine  # with DEAP, which no other search needs

        def measured(cover: Cover) -> Sequence[float]:
            assert timed is not None
            return timed(self.for_streams(self._covered(exact.graph, cover)))

        greedy = cover_of_plan(cover.graph, self._greedy(exact.graph))
        refined = refine(
            cover.graph,
            self.objective,
            [*exact.graph.backends, NATIVE],
            measured if timed else None,
            seconds=seconds,
            streams=STREAMS if isinstance(self.streams, str) else self.streams,
            seeds={"greedy": greedy} if greedy else {},
        )
        placed = self._covered(exact.graph, refined.cover)
        return dataclasses.replace(placed, refined=refined)

    def for_streams(self, placed: Placement) -> Placement:
        """The placement with kernels for several streams, where the number of streams is free."""
        if self.streams != "auto" or self.objective != "graph" or placed.plan.untimed():
            return placed
        cover = placed.cover
        if cover is None:
            cover = cover_of_plan(priced(placed.graph, self.offers), placed.plan)
        plan = choose_for_streams(placed.plan, cover) if cover is not None else placed.plan
        if plan is placed.plan:
            return placed
        return dataclasses.replace(placed, plan=plan, on_one_stream=placed)

    def _greedy(self, graph: MatchGraph) -> Plan:
        choices = choose_greedily(graph, self.offers, self.objective)
        return plan_of(graph, self.objective, choices, self.source, self.environment)

    def _covered(self, graph: MatchGraph, cover: Cover) -> Placement:
        return placement_of_cover(graph, cover, self.offers, self.source, self.environment)


def cover_of_plan(graph: MatchGraph, plan: Plan) -> Cover | None:
    """The cover of a priced graph with a plan's choices, and TVM's kernels for the rest; None if
    the graph does not have all of them."""
    chosen = {choice.subgraph: choice.chosen.candidate for choice in plan.choices}
    usable = [
        [i for i, o in enumerate(subgraph.offers) if chosen.get(subgraph.id) == o.candidate]
        if subgraph.workload is not None
        else list(range(len(subgraph.offers)))
        for subgraph in graph.subgraphs
    ]
    try:
        return find_cover(graph, plan.objective, decide_ties=False, usable=usable)
    except NoCandidate:
        return None


def explained(
    placed: Placement, offers: Mapping[Workload, Offers], search: str = "exact"
) -> Placement:
    """The placement with the reasons for every decision.

    Args:
        placed: What :func:`select` selected.
        offers: The offers that it selected from.
        search: Finds what the other objectives would take: ``greedy`` or ``exact``.
    """
    others = {
        objective: select([placed.graph], offers, objective, search).plan
        for objective in objectives.OBJECTIVES
        if objective != placed.plan.objective
    }
    why = explanation_of(placed.plan, placed.graph.subgraphs, offers, others)
    return dataclasses.replace(placed, explanation=why)
