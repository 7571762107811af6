"""From a module in normal form to its match graph."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import tvm

from ..graph.function import main_function
from ..ir.candidate import Decline
from ..ir.device import Device
from ..ir.workload import Workload
from .match_graph import MatchGraph, Subgraph
from .operations import operations, results_of
from .subgraphs import find_subgraphs
from .wide_heads import WideHeads, has_wide_heads

if TYPE_CHECKING:
    from ..backends.base import Backend


def partition(
    module: tvm.IRModule, backends: Sequence[Backend] = (), device: Device | None = None
) -> MatchGraph:
    """Find the operations of a module, and all subgraphs that registered patterns match in it.

    Args:
        module: A module in normal form (see ``normalize``).
        backends: Backends to ask whether they take a subgraph, in order of preference.
        device: The GPU for which they are asked; default: an H200.

    Returns:
        The match graph. Every subgraph names the backends that decline its workload; those that all
        decline stay in, because they say what an operation may be fused with.
    """
    device = device or Device()
    module = WideHeads()(module)
    known: dict[Workload, tuple[Decline, ...]] = {}

    def declines(workload: Workload) -> tuple[Decline, ...]:
        if workload not in known:
            answers = (backend.accepts(workload, device) for backend in backends)
            known[workload] = tuple(answer for answer in answers if answer is not None)
        return known[workload]

    found = [
        dataclasses.replace(subgraph, declines=declines(subgraph.require_workload()))
        for subgraph in find_subgraphs(module)
    ]
    found = [subgraph for subgraph in found if not _is_left_to_tvm(subgraph, backends)]
    found = _beside_matmuls(found)
    _, func = main_function(module)
    covered = {name for s in found if not s.is_alternative for name in s.ops}
    ops = operations(module, covered)
    made = {op.name for op in ops}  # an input may be a result as it is
    bare = MatchGraph(
        ops,
        (),
        tuple(param.name for param in func.params),
        tuple(name for name in results_of(module) if name in made),
        module,
        tuple(backend.name for backend in backends),
        device,
    )
    return dataclasses.replace(bare, subgraphs=bare.legal(found))


def _is_left_to_tvm(subgraph: Subgraph, backends: Sequence[Backend]) -> bool:
    """Return whether no backend supports an attention, stem or back-to-back workload: its
    operations are then priced one by one, or as those of convolutions."""
    workload = subgraph.require_workload()
    is_whole = workload.op in ("attention", "stem") or workload.is_back_to_back
    return is_whole and bool(backends) and len(subgraph.declines) == len(backends)


def _beside_matmuls(found: Sequence[Subgraph]) -> list[Subgraph]:
    """Offer attention of wide heads as an alternative to its two matmuls, with a root of its own.

    The batched matmuls inside any other attention are dropped: the fused kernel is faster, and
    their workloads need not be priced.
    """
    workloads = [(subgraph, subgraph.require_workload()) for subgraph in found]
    matmuls = {s.root for s, load in workloads if load.op == "matmul" and not s.split}
    inside: set[str] = set()
    for number, (subgraph, load) in enumerate(workloads):
        if load.op != "attention":
            continue
        if has_wide_heads(load) and len(matmuls.intersection(subgraph.ops)) == 2:
            workloads[number] = dataclasses.replace(subgraph, root=subgraph.id), load
        else:
            inside.update(subgraph.ops)
    return [s for s, load in workloads if not (load.is_batched and inside.issuperset(s.ops))]


def distinct(graphs: Iterable[MatchGraph]) -> list[MatchGraph]:
    """Match graphs without those that ask for the same workloads as an earlier one."""
    seen: list[list[Workload]] = []
    kept = []
    for graph in graphs:
        workloads = [subgraph.require_workload() for subgraph in graph.subgraphs]
        if workloads not in seen:
            seen.append(workloads)
            kept.append(graph)
    return kept
