"""A network with its selected subgraphs and their plan."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..cost.native import is_gemv, is_of_images
from ..errors import InvalidOption
from ..ir.candidate import Decline
from ..ir.offer import Offers
from ..ir.plan import Choice, Plan
from ..ir.workload import Workload
from ..partition.match_graph import MatchGraph, Subgraph
from ..partition.rewrite import rewrite
from .cover import Cover
from .priced import linkable
from .rank import make_choice

if TYPE_CHECKING:
    import tvm

    from .explanation import Explanation
    from .refine import Refined


@dataclass(frozen=True)
class Native:
    """A convolution or GEMM that runs on TVM's own kernels, and the reason why no backend runs
    it."""

    root: str
    workload: Workload
    declines: tuple[Decline, ...]
    layer: str = ""

    @property
    def reasons(self) -> str:
        """The declines on one line."""
        found = "; ".join(f"{d.backend}: {d.reason}" for d in self.declines)
        return found or "every candidate failed"

    def __str__(self) -> str:
        name = f"{self.layer}: " if self.layer else ""
        return f"{name}{self.workload.key} ({self.reasons})"


@dataclass(frozen=True)
class Placement:
    """A network with its selected subgraphs and their plan.

    Attributes:
        graph: The match graph of the selected normal form.
        subgraphs: The selected subgraphs, in the order of the plan's choices.
        plan: The selected candidate of each subgraph.
        native: Convolutions and GEMMs that no backend can run, or that TVM's kernels run faster.
        cover: Result of the exact search, including TVM's kernels; None after a greedy search.
        refined: Result of the evolutionary search.
        explanation: Reasons of every decision, if requested.
        on_one_stream: The best placement for one stream, if kernels were selected for several.
        workloads: All priced workloads; empty if an earlier plan was used.
    """

    graph: MatchGraph
    subgraphs: Sequence[Subgraph]
    plan: Plan
    native: tuple[Native, ...] = ()
    cover: Cover | None = None
    refined: Refined | None = None
    explanation: Explanation | None = None
    on_one_stream: Placement | None = None
    workloads: tuple[Workload, ...] = ()

    @property
    def module(self) -> tvm.IRModule:
        """The module in its normal form."""
        assert self.graph.module is not None
        return self.graph.module

    def rewritten(self) -> tvm.IRModule:
        """The module with calls of external functions in place of the plan's subgraphs."""
        chosen = {c.subgraph: symbol for symbol, c in self.plan.functions().items()}
        return rewrite(self.module, chosen, subgraphs=self.subgraphs, folded=self.graph.folded)

    def total_us(self) -> float:
        """Return the value that the search minimizes: the sum of all costs under the plan's
        objective, with estimates for TVM's kernels after an exact search.
        :func:`convoy.pipeline.predict_schedule` predicts the time of the network."""
        return self.plan.total_us() if self.cover is None else self.cover.total_us()


def placement_of(graph: MatchGraph, plan: Plan, cover: Cover | None = None) -> Placement:
    """The placement of a plan for a graph, with the operations on TVM's kernels and the reasons.

    Raises:
        KeyError: The graph has no such subgraph.
    """
    chosen = [graph.by_id[choice.subgraph] for choice in plan.choices]
    named = [
        dataclasses.replace(choice, layer=subgraph.layer)
        for choice, subgraph in zip(plan.choices, chosen, strict=True)
    ]
    plan = dataclasses.replace(plan, choices=tuple(named))
    placed = {name for subgraph in chosen for name in subgraph.ops}
    shortest = {s.root: s for s in graph.subgraphs if not s.optional and not s.is_alternative}
    native = tuple(
        Native(root, subgraph.require_workload(), _declines(subgraph, graph), subgraph.layer)
        for root, subgraph in shortest.items()
        if root not in placed
    )
    return Placement(graph, chosen, plan, native, cover)


def _declines(subgraph: Subgraph, graph: MatchGraph) -> tuple[Decline, ...]:
    """The reasons why no backend runs a subgraph."""
    if not graph.backends:
        return (Decline("tvm", "no other backend was named", "name more in backends"),)
    workload = subgraph.require_workload()
    if is_gemv(workload):
        return (Decline("tvm", "a GEMM of few rows, estimated to be faster", "measure it"),)
    if is_of_images(workload) and any(map(subgraph.accepted_by, graph.backends)):
        reason = "faster as a part of the kernel that scales an image by it, by estimate"
        return (Decline("tvm", reason, "measure it"),)
    return tuple(decline for decline in subgraph.declines if decline.backend in graph.backends)


def placement_of_cover(
    graph: MatchGraph,
    cover: Cover,
    offers: Mapping[Workload, Offers],
    source: str,
    environment: str = "",
) -> Placement:
    """The placement of the subgraphs that a cover chose, in launch order.

    Args:
        graph: The match graph, without prices.
        cover: A cover of the priced graph.
        offers: What the graph was priced with: beside the chosen offer, a choice keeps others.
        source: Where the measurements come from.
        environment: Id of the environment that they were taken in.
    """
    choices = []
    for (subgraph, offer), linked in zip(cover.launches, cover.linked, strict=True):
        if subgraph.workload is not None:
            found = linkable(subgraph, offers[subgraph.workload])
            # A subgraph may be charged more than its kernel: a plan keeps the kernel's own time.
            own = next((o for o in found.measured if o.candidate == offer.candidate), offer)
            choice = make_choice(subgraph.id, found, cover.objective, own)
            choices.append(dataclasses.replace(choice, linked=linked))
    plan = plan_of(graph, cover.objective, choices, source, environment)
    return placement_of(graph, plan, cover)


def plan_of(
    graph: MatchGraph, objective: str, choices: Sequence[Choice], source: str, environment: str
) -> Plan:
    """The plan of choices; its source is ``source``, "predicted" if all known measurements are
    estimates, or "none"."""
    known = [c.chosen.measurement for c in choices if c.chosen.measurement.ok]
    if not known:
        source = "none"
    elif all(measurement.estimated for measurement in known):
        source = "predicted"
    return Plan(objective, graph.device, tuple(choices), source, environment)


def restore(graphs: Iterable[MatchGraph], plan: Plan) -> Placement:
    """The placement that a plan describes, in the normal form of the network that it was made for.

    Raises:
        InvalidOption: The plan is of another network.
    """
    for graph in graphs:
        chosen = [graph.by_id.get(choice.subgraph) for choice in plan.choices]
        found = [subgraph.workload if subgraph else None for subgraph in chosen]
        if found == [choice.workload for choice in plan.choices]:
            return placement_of(graph, plan)
    raise InvalidOption(
        f"a plan of {len(plan.choices)} subgraphs that are not all of this network",
        "the plan of the same network, batch size and precision",
    )
