"""Explain a plan: collect the reasons for each of its decisions from the offers."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from ..cost.native import leftover_us
from ..ir import objective as objectives
from ..ir.device import Device
from ..ir.offer import Offer, Offers
from ..ir.plan import Choice, Plan
from ..ir.workload import Workload
from ..partition.match_graph import Subgraph
from .explanation import Explanation, Fusion, OpExplanation, Otherwise, Rival
from .rank import rank

#: The cost of one launch under each objective, in words.
COUNTED = {
    "graph": (
        "kernel_us (chained_us behind a kernel that lets its successor start early) "
        "plus a share of the difference to cold_us"
    ),
    "stream": "the larger of two sums: the same plus the gap between launches, and enqueue_us",
    "sync": "e2e_us plus a share of the difference between kernel_us and cold_us",
}


def explain(
    plan: Plan,
    subgraphs: Sequence[Subgraph],
    offers: Mapping[Workload, Offers],
    others: Mapping[str, Plan],
    device: Device,
) -> Explanation:
    """Explain a plan.

    Args:
        plan: The plan.
        subgraphs: All subgraphs of its network.
        offers: The offers of their workloads.
        others: The plans under other objectives.
        device: The GPU that it is for.
    """
    groups: dict[str, list[Subgraph]] = {}
    for subgraph in subgraphs:
        groups.setdefault(subgraph.root, []).append(subgraph)
    covered = {subgraph.id: subgraph.ops for subgraph in subgraphs}
    roots = {subgraph.id: subgraph.root for subgraph in subgraphs}
    branches = {subgraph.id: max(1, len(subgraph.split)) for subgraph in subgraphs}
    elsewhere = {
        name: {op: choice for choice in other.choices for op in covered.get(choice.subgraph, ())}
        for name, other in others.items()
        if name != plan.objective
    }
    ops = []
    for choice in plan.choices:
        root = roots.get(choice.subgraph, choice.subgraph)
        fusions = _fusions(choice, groups.get(root, []), offers, plan.objective, device)
        first = covered.get(choice.subgraph, (root,))[0]
        op = _op(choice, offers, fusions, elsewhere, first, plan.objective)
        ops.append(dataclasses.replace(op, branches=branches.get(choice.subgraph, 1)))
    otherwise = tuple(
        Otherwise(
            name,
            sum(name in dict(op.elsewhere) for op in ops),
            others[name].total_us(name),
            plan.total_us(name),
        )
        for name in elsewhere
    )
    return Explanation(
        objective=plan.objective,
        counted=COUNTED[plan.objective],
        source=plan.source,
        device=plan.device.name,
        total_us=plan.total_us(),
        ops=tuple(ops),
        otherwise=otherwise,
    )


def _op(
    choice: Choice,
    offers: Mapping[Workload, Offers],
    fusions: tuple[Fusion, ...],
    elsewhere: Mapping[str, Mapping[str, Choice]],
    first: str,
    objective: str,
) -> OpExplanation:
    found = offers.get(choice.workload) or Offers(choice.workload, [choice.chosen])
    chosen = choice.chosen
    cost, spread = objectives.own_cost(chosen.measurement, objective, choice.linked)
    losers = [
        _rival(offer, objective, cost, spread, choice.linked)
        for offer in rank(found.measured, objective)
        if offer.candidate.key != chosen.candidate.key
    ]
    losers.sort(key=lambda offer: offer.cost_us)
    winner = _rival(chosen, objective, cost, spread, choice.linked)
    others = {name: theirs[first] for name, theirs in elsewhere.items() if first in theirs}
    changes = ((name, _change(choice, other)) for name, other in others.items())
    return OpExplanation(
        subgraph=choice.subgraph,
        workload=choice.workload,
        winner=dataclasses.replace(winner, margin=1.0, tie=False),
        losers=tuple(losers),
        failed=tuple((o.candidate.key, o.measurement.failure) for o in found.failed),
        declines=choice.declines,
        fusions=fusions,
        elsewhere=tuple((name, text) for name, text in changes if text),
        layer=choice.label,
    )


def _change(choice: Choice, other: Choice) -> str:
    """Name what another plan selects for an operation; empty if that is the same."""
    kernel = other.chosen.candidate.key
    if other.workload.k != choice.workload.k:
        return f"{kernel} for {other.workload.k} channels of the parallel branches"
    if kernel == choice.chosen.candidate.key:
        return ""
    if other.workload.epilogue != choice.workload.epilogue:
        return f"{kernel} for {other.workload.epilogue.name or 'the convolution alone'}"
    return kernel


def _rival(offer: Offer, objective: str, best: float, spread: float, linked: bool) -> Rival:
    measurement = offer.measurement
    cost, own_spread = objectives.own_cost(measurement, objective, linked)
    return Rival(
        offer.candidate.backend,
        offer.candidate.kernel,
        cost,
        own_spread,
        measurement.kernel_us,
        measurement.enqueue_us,
        measurement.e2e_us,
        cost / best if best else None,
        abs(cost - best) <= spread,
    )


def _fusions(
    choice: Choice,
    group: Sequence[Subgraph],
    offers: Mapping[Workload, Offers],
    objective: str,
    device: Device,
) -> tuple[Fusion, ...]:
    """The alternatives of one root, longest first, without those that were not priced."""
    longest = max(group, key=lambda subgraph: len(subgraph.ops), default=None)
    found = []
    for subgraph in group:
        known = offers.get(subgraph.require_workload())
        if known is None or longest is None:
            continue
        ranked = rank(known.measured, objective)
        cost = objectives.own_cost(ranked[0].measurement, objective)[0] if ranked else None
        found.append(
            Fusion(
                known.workload.epilogue.name,
                ranked[0].candidate.key if ranked else "",
                cost,
                leftover_us(subgraph, longest, device),
                subgraph.id == choice.subgraph,
            )
        )
    return tuple(found)
