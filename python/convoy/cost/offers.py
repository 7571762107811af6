"""Collect the offers of workloads: candidates of every backend with their measurements."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence

from ..backends.base import Backend
from ..errors import InvalidOption, LibraryMissing
from ..ir.candidate import Candidate, Decline
from ..ir.device import Device
from ..ir.measurement import Measurement
from ..ir.offer import Offer, Offers
from ..ir.workload import Workload
from ..partition.alternatives import Declined
from ..progress import step
from .model import CostModel


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
        compiled: Whether only kernels count that need no compiler run.
        operations: Workloads that are alternatives for one operation, of which one will do; by
            default each workload is an operation.

    Returns:
        For each workload its candidates with their measurements, those without, those that
        failed, and the backends that declined.
    """
    found = {workload: Offers(workload) for workload in workloads}
    proposals = _proposals(found, backends, device, costs, compiled)
    if operations is not None:
        costs.weigh(Counter(workload for own in operations for workload in set(own)))
    costs.prefetch(list(proposals.items()))
    for workload, candidates in proposals.items():
        _add(found[workload], candidates, costs.measurements(workload, candidates))
    return found


def _add(
    offers: Offers, candidates: Sequence[Candidate], measurements: Sequence[Measurement | None]
) -> None:
    for candidate, measurement in zip(candidates, measurements, strict=True):
        if measurement is None:
            offers.unmeasured.append(candidate)
        elif measurement.ok:
            offers.measured.append(Offer(candidate, measurement))
        else:
            offers.failed.append(Offer(candidate, measurement))


def declined(offers: Mapping[Workload, Offers]) -> set[Declined]:
    """Return the backends' declines by workload."""
    return {(d.backend, workload) for workload, own in offers.items() for d in own.declines}


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
    """Return whether a backend can read the candidate, which may be from a file; else it has
    failed."""
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
