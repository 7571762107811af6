"""Price a network: collect the offers for its subgraphs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence

from ..backends.base import Backend
from ..ir.device import Device
from ..ir.offer import Offers
from ..ir.workload import Workload
from ..partition.alternatives import plausible, plausible_workloads
from ..partition.match_graph import MatchGraph
from .chained import as_links
from .estimates import estimate_unmeasured
from .l2_cache import in_network, stays, touched_bytes
from .model import CostModel
from .offers import declined, price_workloads


def price(
    graphs: Sequence[MatchGraph],
    backends: Sequence[Backend],
    device: Device,
    costs: CostModel,
    joint: bool = True,
    compiled: bool = False,
) -> dict[Workload, Offers]:
    """Collect the offers for the subgraphs of a network, as they count inside it.

    Args:
        graphs: The match graphs of the network's normal forms.
        backends: Backends that may run it, in order of preference.
        device: The GPU that it will run on.
        costs: Where measurements come from.
        joint: Whether the whole graph is going to be searched: then subgraphs that compute several
            roots at once are priced as well and, as far as that takes no measuring, all others.
        compiled: Whether only kernels count that need no compiler run; where no subgraph with an
            operation has any, those of all backends do.

    Returns:
        The offers of every workload that was asked for (see :func:`price_workloads`), with host
        times and cold times as in :func:`convoy.cost.l2_cache.in_network`, and times as links of a
        chain as in :func:`convoy.cost.chained.as_links`.
    """
    by_name = {backend.name: backend for backend in backends}
    later = {backend.name: backend.after_others_us for backend in backends}
    staying = bool(graphs) and stays(touched_bytes(_roots(graphs[0])), device)
    asked = _asked(graphs, backends, device, costs, joint, compiled)
    found: dict[Workload, Offers] = {}
    for graph in graphs:  # a form's estimates of cold times do not depend on the forms behind it
        own = {w: asked[w] for w in graph.workloads() if w in asked and w not in found}
        if costs.estimating:
            known = found | own
            operations = _operations([graph], by_name, known)
            # Alternatives to several operations are estimated beside these.
            operations += [(w,) for w in own if w.is_back_to_back]
            estimate_unmeasured(operations, known, by_name, device, costs.estimates)
        found |= as_links(in_network(own, staying, later), by_name, device)
    return found


def _asked(
    graphs: Sequence[MatchGraph],
    backends: Sequence[Backend],
    device: Device,
    costs: CostModel,
    joint: bool,
    compiled: bool,
) -> dict[Workload, Offers]:
    """The offers of the workloads that matter; where a backend has no kernel for the longest
    subgraph of an operation, those of shorter ones as well; where none of them has a compiled one,
    those that a compiler would make for the longest."""
    names = [backend.name for backend in backends]
    asked: dict[Workload, Offers] = {}
    new = list(dict.fromkeys(w for graph in graphs for w in _wanted(graph, names, costs, joint)))
    while new:
        operations = _operations(graphs, names, asked)
        asked |= price_workloads(new, backends, device, costs, compiled, operations)
        none = declined(asked)
        again = (w for graph in graphs for w in plausible_workloads(graph, names, False, none))
        new = [workload for workload in dict.fromkeys(again) if workload not in asked]
    if compiled and (bare := _without_kernels(graphs, names, asked)):
        operations = _operations(graphs, names, {})
        asked |= price_workloads(bare, backends, device, costs, False, operations)
    return asked


def _without_kernels(
    graphs: Sequence[MatchGraph], backends: Collection[str], asked: Mapping[Workload, Offers]
) -> list[Workload]:
    """The longest subgraphs of operations that no kernel computes, alone or with others."""
    found: list[Workload] = []
    for graph in graphs:
        computed: set[str] = set()
        for subgraph in graph.subgraphs:
            offers = asked.get(subgraph.workload) if subgraph.workload is not None else None
            if offers is not None and (offers.measured or offers.unmeasured):
                computed.update((subgraph.root, *subgraph.ops))
        for group in plausible(graph, backends):
            if group[0].root not in computed:
                found += [subgraph.require_workload() for subgraph in group]
    return list(dict.fromkeys(found))


def _wanted(
    graph: MatchGraph, backends: Collection[str], costs: CostModel, joint: bool
) -> list[Workload]:
    """The workloads of a graph that are priced first."""
    wanted = plausible_workloads(graph, backends, joint)
    if joint and costs.free:
        wanted += [w for w in graph.workloads() if costs.measures or costs.candidates(w)]
    return wanted


def _operations(
    graphs: Sequence[MatchGraph], backends: Collection[str], offers: Mapping[Workload, Offers]
) -> list[tuple[Workload, ...]]:
    """The alternatives of each operation; of several normal forms of a network, of which one will
    be selected, as often as in the one that has most of them."""
    counts: Counter[tuple[Workload, ...]] = Counter()
    for graph in graphs:
        groups = plausible(graph, backends, declined(offers))
        counts |= Counter(tuple(s.require_workload() for s in group) for group in groups)
    return list(counts.elements())


def _roots(graph: MatchGraph) -> list[Workload]:
    """Return the workload of each root's shortest subgraph, so that every weight counts once."""
    bare = {s.root: s.require_workload() for s in graph.subgraphs if not s.is_alternative}
    return list(bare.values())
