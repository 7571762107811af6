"""The subgraphs that a placement takes where all that is known is which workloads are supported."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from convoy.ir.workload import Workload
from convoy.partition.subgraphs import Subgraph


def longest(
    subgraphs: Iterable[Subgraph], supported: Callable[[Workload], bool] = lambda w: True
) -> list[Subgraph]:
    """For each root in program order the longest subgraph whose workload is supported and none of
    whose operations is taken yet. Subgraphs of several roots are left out."""
    taken: set[str] = set()
    chosen: dict[str, Subgraph] = {}
    for subgraph in subgraphs:
        free = taken.isdisjoint(subgraph.ops) and not subgraph.is_alternative
        if free and subgraph.root not in chosen and supported(subgraph.require_workload()):
            taken.update(subgraph.ops)
            chosen[subgraph.root] = subgraph
    return list(chosen.values())
