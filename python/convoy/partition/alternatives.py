"""Select the subgraphs that are candidates if each root is decided independently."""

from __future__ import annotations

from collections.abc import Collection

from ..ir.workload import Workload
from .match_graph import MatchGraph, Subgraph

#: A backend by name, and a workload that it accepted and then had no kernel for.
Declined = tuple[str, Workload]


def plausible(
    graph: MatchGraph, backends: Collection[str], declined: Collection[Declined] = ()
) -> list[list[Subgraph]]:
    """For each root, in program order, the subgraphs to consider, longest first.

    These are the longest that each backend accepts and has not declined and, where another root
    could take one of its operations first (a sum of two convolutions), the longest that shares
    none. Roots that no backend accepts, and subgraphs that compute several of them, are left out.
    """
    roots_of: dict[str, set[str]] = {}
    groups: dict[str, list[Subgraph]] = {}
    for subgraph in graph.subgraphs:
        if _is_joint(subgraph):
            continue
        groups.setdefault(subgraph.root, []).append(subgraph)
        for op in subgraph.ops:
            roots_of.setdefault(op, set()).add(subgraph.root)
    result = []
    for group in groups.values():
        wanted: set[int] = set()
        for backend in backends:
            accepted = [
                i
                for i, subgraph in enumerate(group)
                if subgraph.accepted_by(backend)
                and (backend, subgraph.require_workload()) not in declined
            ]
            alone = [i for i in accepted if all(len(roots_of[op]) == 1 for op in group[i].ops)]
            wanted.update(accepted[:1] + alone[:1])
        if wanted:
            result.append([group[i] for i in sorted(wanted)])
    return result


def _is_joint(subgraph: Subgraph) -> bool:
    """Return whether a subgraph computes several convolutions or GEMMs, each of which has subgraphs
    of its own; attention beside the matmuls that it computes is a root itself."""
    return subgraph.is_alternative and subgraph.require_workload().op != "attention"


def plausible_workloads(
    graph: MatchGraph,
    backends: Collection[str],
    joint: bool = True,
    declined: Collection[Declined] = (),
) -> list[Workload]:
    """Return the distinct workloads of the plausible subgraphs and, with ``joint``, of those that
    compute several roots at once and that some backend accepts."""
    found = [s.require_workload() for group in plausible(graph, backends, declined) for s in group]
    if joint:
        found += [
            subgraph.require_workload()
            for subgraph in graph.subgraphs
            if _is_joint(subgraph) and any(map(subgraph.accepted_by, backends))
        ]
    return list(dict.fromkeys(found))
