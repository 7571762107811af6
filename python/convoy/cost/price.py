"""Ask every backend for candidates, and a cost model for their measurements."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence

from ..backends.base import Backend
from ..errors import InvalidOption, LibraryMissing
from ..ir.candidate import Candidate, Decline
from ..ir.device import Device
from ..ir.measurement import Measurement
from ..ir.objective import device_us
from ..ir.offer import Offer, Offers
from ..ir.workload import Workload
from ..partition.alternatives import Declined, plausible, plausible_workloads
from ..partition.match_graph import MatchGraph
from ..progress import step
from .chained import as_links
from .estimates import estimated, scaled
from .l2_cache import in_network, stays, touched_bytes
from .model import CostModel


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
        compiled: Whether only kernels count that need no compiler run; where no alternative of an
            operation has any, those of all backends do.

    Returns:
        The offers of every workload that was asked for (see :func:`price_workloads`), with host
        times and cold times as in :func:`convoy.cost.l2_cache.in_network`, and times as links of a
        chain as in :func:`convoy.cost.chained.as_links`.
    """
    names = [backend.name for backend in backends]
    later = {backend.name: backend.after_others_us for backend in backends}
    by_name = {backend.name: backend for backend in backends}
    staying = bool(graphs) and stays(touched_bytes(_roots(graphs[0])), device)
    asked: dict[Workload, Offers] = {}
    new = list(dict.fromkeys(w for graph in graphs for w in _wanted(graph, names, costs, joint)))
    while new:  # again with what is shorter where a backend has no kernel for the longest
        operations = _operations(graphs, names, asked)
        asked |= price_workloads(new, backends, device, costs, compiled, operations)
        none = declined(asked)
        again = (w for graph in graphs for w in plausible_workloads(graph, names, False, none))
        new = [workload for workload in dict.fromkeys(again) if workload not in asked]
    found: dict[Workload, Offers] = {}
    for graph in graphs:  # a form's estimates of cold times do not depend on the forms behind it
        own = {w: asked[w] for w in graph.workloads() if w in asked and w not in found}
        _estimate(graph, backends, device, {**found, **own}, costs)
        found |= as_links(in_network(own, staying, later), by_name)
    return found


def _wanted(
    graph: MatchGraph, backends: Collection[str], costs: CostModel, joint: bool
) -> list[Workload]:
    """The workloads of a graph that are priced first."""
    wanted = plausible_workloads(graph, backends, joint)
    if joint and costs.free:
        wanted += [w for w in graph.workloads() if costs.measures or costs.candidates(w)]
    return wanted


def declined(offers: Mapping[Workload, Offers]) -> set[Declined]:
    """Return the backends' declines by workload."""
    return {(d.backend, workload) for workload, own in offers.items() for d in own.declines}


def _operations(
    graphs: Sequence[MatchGraph], backends: Sequence[str], offers: Mapping[Workload, Offers]
) -> list[tuple[Workload, ...]]:
    """The alternatives of each operation; of several normal forms of a network, of which one will
    be selected, as often as in the one that has most of them."""
    counts: Counter[tuple[Workload, ...]] = Counter()
    for graph in graphs:
        groups = plausible(graph, backends, declined(offers))
        counts |= Counter(tuple(s.require_workload() for s in group) for group in groups)
    return list(counts.elements())


def _estimate(
    graph: MatchGraph,
    backends: Sequence[Backend],
    device: Device,
    offers: Mapping[Workload, Offers],
    costs: CostModel,
) -> None:
    """Estimate the candidates of workloads of which nothing is measured, scaled by the error of the
    estimates for measured alternatives of the operation."""
    if not costs.estimating:
        return
    by_name = {backend.name: backend for backend in backends}

    def estimates(own: Offers, candidates: Sequence[Candidate]) -> list[Measurement | None]:
        return estimated(own.workload, candidates, by_name, device, costs.estimates)

    for operation in _operations([graph], list(by_name), offers):
        alternatives = [offers[workload] for workload in dict.fromkeys(operation)]
        measured = [own for own in alternatives if _is_measured(own)]
        factors = [
            device_us(offer.measurement) / device_us(estimate)
            for own in measured
            for offer in [min(own.measured, key=lambda offer: device_us(offer.measurement))]
            for estimate in estimates(own, [offer.candidate])
            if estimate is not None
        ]
        factor = statistics.geometric_mean(factors) if factors else 1.0
        for own in alternatives:
            if own in measured:
                continue
            candidates, own.unmeasured[:] = list(own.unmeasured), []
            for candidate, estimate in zip(candidates, estimates(own, candidates), strict=True):
                if estimate is None:
                    own.unmeasured.append(candidate)
                else:
                    own.measured.append(Offer(candidate, scaled(estimate, factor)))


def _is_measured(offers: Offers) -> bool:
    return any(not offer.measurement.estimated for offer in offers.measured)


def _roots(graph: MatchGraph) -> list[Workload]:
    """Return the workload of each root's shortest subgraph, so that every weight counts once."""
    bare = {s.root: s.require_workload() for s in graph.subgraphs if not s.is_alternative}
    return list(bare.values())


def price_workloads(
    workloads: Iterable[Workload],
    backends: Sequence[Backend],
    device: Device,
    costs: CostModel,
    compiled: bool = False,
    operations: Sequence[Collection[Workload]] | None = None,
) -> dict[Workload, Offers]:
    """Collect the offers of every distinct workload.

    Args:
        workloads: What has to run.
        backends: Backends that may run it, in order of preference.
        device: The GPU that it will run on.
        costs: Where measurements come from; it is told of all candidates before the first one.
        compiled: As for :func:`price`.
        operations: Workloads that are alternatives for one operation, of which one will do; by
            default each workload is an operation.

    Returns:
        For each workload its candidates with their measurements, those without, those that
        failed, and the backends that declined.
    """
    found = {workload: Offers(workload) for workload in workloads}
    proposals = _proposals(found, backends, device, costs, compiled)
    if compiled and (bare := _bare(proposals, operations)):
        again = {workload: Offers(workload) for workload in bare}
        proposals |= _proposals(again, backends, device, costs, compiled=False)
        found |= again
    if operations is not None:
        costs.weigh(Counter(workload for own in operations for workload in set(own)))
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


def _bare(
    proposals: Mapping[Workload, Sequence[Candidate]],
    operations: Sequence[Collection[Workload]] | None,
) -> list[Workload]:
    """Workloads of operations none of whose alternatives has a candidate."""
    if operations is None:
        operations = [[workload] for workload in proposals]
    return [
        workload
        for alternatives in operations
        if not any(proposals.get(workload, ("earlier",)) for workload in alternatives)
        for workload in alternatives
    ]


def _proposals(
    found: Mapping[Workload, Offers],
    backends: Sequence[Backend],
    device: Device,
    costs: CostModel,
    compiled: bool,
) -> dict[Workload, list[Candidate]]:
    """Candidates of each workload: those that backends propose, then others that the cost model
    knows. Declines are added to the offers."""
    proposals: dict[Workload, list[Candidate]] = {workload: [] for workload in found}
    for number, backend in enumerate(backends):
        step(f"{backend.name}, {len(found)} workloads", number, len(backends))
        known = {
            workload: [
                candidate
                for candidate in costs.candidates(workload)
                if candidate.backend == backend.name
                and _is_valid(backend, candidate, found[workload])
                and not (compiled and not backend.is_ready(candidate))
            ]
            for workload in found
        }
        answers: dict[Workload, Sequence[Candidate] | Decline] = {}
        for workload in found:
            if (decline := backend.accepts(workload, device)) is not None:
                answers[workload] = decline
            elif known[workload] and not costs.thorough:
                answers[workload] = ()  # asking takes cuDNN up to a second
        asked = [workload for workload in found if workload not in answers]
        answers |= zip(asked, _proposed(backend, asked, device, compiled), strict=True)
        for workload, answer in answers.items():
            if isinstance(answer, Decline):
                found[workload].declines.append(answer)
                answer = ()
            names = {candidate.key for candidate in answer}
            others = [c for c in known[workload] if c.key not in names]
            proposals[workload] += [*answer, *others]
    return proposals


def _is_valid(backend: Backend, candidate: Candidate, offers: Offers) -> bool:
    """Whether a backend can read the candidate, which may be from a file; else it has failed."""
    try:
        backend.check(candidate)
    except InvalidOption as err:
        offers.failed.append(Offer(candidate, Measurement(failure=str(err))))
        return False
    return True


def _proposed(
    backend: Backend, workloads: Sequence[Workload], device: Device, compiled: bool
) -> Sequence[Sequence[Candidate] | Decline]:
    try:
        return backend.propose_all(workloads, device, compiled) if workloads else ()
    except LibraryMissing as err:
        return [Decline(backend.name, str(err))] * len(workloads)
