"""Ask every backend for candidates, and a cost model for their measurements."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ..backends.base import Backend
from ..errors import LibraryMissing
from ..ir.candidate import Candidate, Decline
from ..ir.device import Device
from ..ir.offer import Offer, Offers
from ..ir.workload import Workload
from ..partition.alternatives import plausible_workloads
from ..partition.match_graph import MatchGraph
from .cache import in_network, stays, touched_bytes
from .model import CostModel


def price(
    graphs: Sequence[MatchGraph],
    backends: Sequence[Backend],
    device: Device,
    costs: CostModel,
    joint: bool = True,
) -> dict[Workload, Offers]:
    """Collect the offers for the subgraphs of a network, as they count inside it.

    Args:
        graphs: The match graphs of the network's normal forms.
        backends: Backends that may run it, in order of preference.
        device: The GPU that it will run on.
        costs: Where measurements come from.
        joint: Whether the whole graph is going to be searched: then subgraphs that compute several
            roots at once are priced as well and, as far as that takes no measuring, all others.

    Returns:
        The offers of every workload that was asked for (see :func:`price_workloads`), with host
        times and cold times as in :func:`convoy.cost.cache.in_network`.
    """
    names = [backend.name for backend in backends]
    later = {backend.name: backend.after_others_us for backend in backends}
    staying = bool(graphs) and stays(touched_bytes(_roots(graphs[0])), device)
    found: dict[Workload, Offers] = {}
    for graph in graphs:  # a form's estimates of cold times do not depend on the forms behind it
        wanted = plausible_workloads(graph, names, joint)
        if joint and costs.free:
            wanted += [w for w in graph.workloads() if costs.measures or costs.candidates(w)]
        new = [workload for workload in dict.fromkeys(wanted) if workload not in found]
        found |= in_network(price_workloads(new, backends, device, costs), staying, later)
    return found


def _roots(graph: MatchGraph) -> list[Workload]:
    """Of each root the workload of its shortest subgraph: every weight once."""
    bare = {s.root: s.require_workload() for s in graph.subgraphs if not s.split}
    return list(bare.values())


def price_workloads(
    workloads: Iterable[Workload], backends: Sequence[Backend], device: Device, costs: CostModel
) -> dict[Workload, Offers]:
    """Collect the offers of every distinct workload.

    Args:
        workloads: What has to run.
        backends: Backends that may run it, in order of preference.
        device: The GPU that it will run on.
        costs: Where measurements come from; it is told of all candidates before the first one.

    Returns:
        For each workload its candidates with their measurements, those without, those that
        failed, and the backends that declined.
    """
    found = {workload: Offers(workload) for workload in workloads}
    proposals = {
        workload: _candidates(offers, backends, device, costs) for workload, offers in found.items()
    }
    costs.prefetch(list(proposals.items()))
    for workload, candidates in proposals.items():
        offers = found[workload]
        measurements = costs.measurements(workload, candidates)
        for candidate, measurement in zip(candidates, measurements, strict=True):
            if measurement is None:
                offers.unmeasured.append(candidate)
            elif measurement.ok:
                offers.measured.append(Offer(candidate, measurement))
            else:
                offers.failed.append(Offer(candidate, measurement))
    return found


def _candidates(
    offers: Offers, backends: Sequence[Backend], device: Device, costs: CostModel
) -> list[Candidate]:
    """Candidates of one workload: what its backends propose and what the cost model knows.

    Where the cost model cannot measure, a backend with known candidates is not asked for others:
    that takes cuDNN seconds.
    """
    workload = offers.workload
    known: dict[str, list[Candidate]] = {}
    for candidate in costs.candidates(workload):
        known.setdefault(candidate.backend, []).append(candidate)
    candidates: list[Candidate] = []
    for backend in backends:
        theirs = known.get(backend.name, [])
        answer: Sequence[Candidate] | Decline
        declined = backend.accepts(workload, device)
        if declined is not None:
            answer = declined
        elif theirs and not costs.measures:
            answer = []
        else:
            try:
                answer = backend.propose(workload, device)
            except LibraryMissing as err:
                answer = Decline(backend.name, str(err))
        if isinstance(answer, Decline):
            offers.declines.append(answer)
            answer = []
        names = {candidate.key for candidate in answer}
        candidates += [*answer, *(c for c in theirs if c.key not in names)]
    return candidates
