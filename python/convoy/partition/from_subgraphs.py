"""From subgraphs to a match graph, and from a cover of it back to a plan of subgraphs.

Subgraphs come with the figures of their candidates. What they leave to TVM's own kernels has to be
costed as well, or the shortest subgraph would always look cheapest: it gets an estimate from the
bytes that it moves. So do operations that no subgraph covers: they cost the same in every plan, but
the larger of host and device time, and what overlaps, depend on them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from ..errors import NoCandidate
from ..ir.candidate import Candidate
from ..ir.device import Device
from ..ir.measurement import Measurement
from ..ir.offer import Offer, Offers
from ..ir.plan import Choice, Plan
from ..ir.workload import DTYPE_BYTES, Workload
from ..placement.cover import Cover, find_cover
from ..placement.place import near, rank
from ..placement.transition import FREE
from . import alternatives
from .alternatives import ELEMENTWISE_EFFICIENCY, SMALLEST_KERNEL_US, leftover_us, native_us
from .match_graph import Form, FormOf, Match, MatchGraph, Op, split_legal

NATIVE = "tvm"
# Host time of one call of a TVM kernel, and what a synchronised call takes beyond that and the
# kernel itself: means over the pools, concatenations and reductions of GoogLeNet and Inception v3
# on an H200.
NATIVE_ENQUEUE_US, SYNCHRONISE_US = 2.8, 4.0


class SubgraphLike(alternatives.SubgraphLike, Protocol):
    """What is needed of a subgraph here (see graph.subgraphs)."""

    @property
    def outputs(self) -> tuple[str, ...]: ...
    @property
    def split(self) -> tuple[int, ...]: ...


def subgraphs_to_graph(
    ops: Sequence[Op],
    inputs: FormOf,
    results: Sequence[tuple[str, Form | None]],
    subgraphs: Sequence[SubgraphLike],
    options: Mapping[Workload, Offers],
    device: Device,
    bytes_moved: Mapping[str, int] | None = None,
    gathered: Collection[str] = (),
) -> tuple[MatchGraph, list[tuple[Match, str]]]:
    """A match graph of a network, and the matches that were illegal with the reason.

    ``ops`` are all operations in program order, those in subgraphs and the others; ``options`` as
    ``place.gather`` returns them. The pattern of a subgraph's match is the subgraph's id. A root
    that no candidate can run gets a match of its own, free of cost, because there is no choice; an
    optional one gets one for what it costs TVM. Operations that no subgraph covers cost what moving
    ``bytes_moved`` takes (not named: nothing). A subgraph that is split costs in addition what TVM
    takes to copy each part, but for ``gathered`` ones: what reads them copies them anyway.
    """
    bare = MatchGraph(tuple(ops), (), inputs, tuple(results))
    groups: dict[str, list[SubgraphLike]] = {}
    for subgraph in subgraphs:
        groups.setdefault(subgraph.root, []).append(subgraph)
    matches: list[Match] = []
    dtype_of: dict[str, str] = {}
    offloaded: set[str] = set()
    for root, group in groups.items():
        longest = max(group, key=lambda r: len(r.covered))
        dtype_of.update(dict.fromkeys(longest.covered, longest.workload.out_dtype))
        for subgraph in group:
            found = options.get(subgraph.workload)
            if found is not None and found.measured:
                offloaded.add(root)
                cuts = _cuts(subgraph, gathered, device)
                matches.append(
                    Match(
                        subgraph.id,
                        subgraph.covered,
                        subgraph.outputs,
                        tuple(_with_cuts(scored, cuts) for scored in found.measured),
                        workload=subgraph.workload,
                        launches=1 + len(cuts),
                    )
                )
            if rest := _rest(subgraph, longest):
                written = tuple(name for name in longest.outputs if name in rest)
                matches.append(_native(rest, leftover_us(subgraph, longest, device), written))
    for root, group in groups.items():
        if group[0].optional and root in offloaded:
            longest = max(group, key=lambda r: len(r.covered))
            cost = native_us(longest.workload, device)
            matches.append(_native(longest.covered, cost, longest.outputs))
    for op in ops:
        if op.name not in offloaded:
            cost = 0.0
            if op.name not in groups:
                if op.name in dtype_of:
                    cost = _elementwise_us(op, dtype_of[op.name], device)
                elif moved := (bytes_moved or {}).get(op.name, 0):
                    cost = _moving_us(moved, device)
            matches.append(_native((op.name,), cost, (op.name,)))
    legal, declined = split_legal(bare, matches)
    return MatchGraph(bare.ops, tuple(legal), inputs, bare.results), declined


def _rest(subgraph: SubgraphLike, longest: SubgraphLike) -> tuple[str, ...]:
    """What the longest subgraph does beyond this one, where that is more than one operation."""
    rest = tuple(name for name in longest.covered if name not in subgraph.covered)
    return rest if len(rest) > 1 else ()


def _cuts(subgraph: SubgraphLike, gathered: Collection[str], device: Device) -> list[Measurement]:
    """One copy for each part of a split subgraph that is needed as a tensor of its own."""
    w = subgraph.workload
    tensor = 2 * w.n * w.p * w.q * DTYPE_BYTES[w.out_dtype]  # read and written, for each channel
    return [
        _figure(_moving_us(tensor * size, device))
        for name, size in zip(subgraph.outputs, subgraph.split, strict=False)
        if name not in gathered
    ]


def _with_cuts(scored: Offer, cuts: Sequence[Measurement]) -> Offer:
    """A candidate that is charged for copies behind it."""
    if not cuts:
        return scored
    own = scored.measurement
    added = {
        name: value + sum(getattr(cut, name.replace("cold", "kernel")) for cut in cuts)
        for name in ("kernel_us", "cold_us", "enqueue_us", "e2e_us")
        if (value := getattr(own, name)) is not None
    }
    return Offer(scored.candidate, dataclasses.replace(own, **added))


def _native(ops: tuple[str, ...], kernel_us: float, outputs: tuple[str, ...]) -> Match:
    """One of TVM's own kernels for these ops."""
    figure = _figure(kernel_us) if kernel_us else FREE
    option = Offer(Candidate(NATIVE, "native"), figure)
    return Match(f"native {ops[-1]}", ops, outputs, (option,))


def _figure(kernel_us: float) -> Measurement:
    """Figures of a kernel of TVM that takes so long on the device."""
    return Measurement(
        kernel_us=kernel_us,
        enqueue_us=NATIVE_ENQUEUE_US,
        e2e_us=kernel_us + NATIVE_ENQUEUE_US + SYNCHRONISE_US,
    )


def _elementwise_us(op: Op, dtype: str, device: Device) -> float:
    """One element-wise kernel: every operand read and the result written once."""
    tensors = 1 + max(len(op.inputs), 1)
    return _moving_us(tensors * op.elements * DTYPE_BYTES[dtype], device)


def _moving_us(moved: int, device: Device) -> float:
    return SMALLEST_KERNEL_US + 1e6 * moved / (ELEMENTWISE_EFFICIENCY * device.memory_bandwidth)


def cover_to_plan(
    cover: Cover,
    options: Mapping[Workload, Offers],
    device: Device,
    source: str,
    environment: str = "",
) -> Plan:
    """The plan of the subgraphs that a cover chose, in launch order; native matches are left out.

    Beside the chosen candidate, a choice holds the cheapest of each backend and the runner-up for
    the same subgraph.
    """
    choices = []
    for match, scored in cover.matches:
        if match.workload is None:
            continue
        found = options[match.workload]
        # A match may charge more than its kernel: what a plan says of a candidate is its own.
        scored = next((s for s in found.measured if s.candidate == scored.candidate), scored)
        ranked = [scored, *(s for s in rank(found.measured, cover.objective) if s != scored)]
        best: dict[str, Offer] = {}
        for item in ranked:
            best.setdefault(item.candidate.backend, item)
        choices.append(
            Choice(
                subgraph=match.pattern,
                workload=match.workload,
                chosen=scored,
                runner_up=ranked[1] if len(ranked) > 1 else None,
                best_by_backend=tuple(best.values()),
                declines=tuple(found.declines),
                considered=len(ranked) + len(found.failed),
                near=near(ranked),
            )
        )
    return Plan(cover.objective, device, tuple(choices), source, environment)


def plan_to_cover(graph: MatchGraph, plan: Plan) -> Cover | None:
    """The cover that takes a plan's choices, and TVM's kernels for the rest; None where the graph
    has not all of them."""
    chosen = {choice.subgraph: choice.chosen.candidate for choice in plan.choices}
    usable = [
        [i for i, s in enumerate(match.options) if chosen.get(match.pattern) == s.candidate]
        if match.workload is not None
        else list(range(len(match.options)))
        for match in graph.matches
    ]
    try:
        return find_cover(graph, plan.objective, decide_ties=False, usable=usable)
    except NoCandidate:
        return None
