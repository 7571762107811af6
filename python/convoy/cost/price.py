"""Ask every backend for candidates of every workload, and a cost model for their measurements."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ..backends.base import Backend
from ..errors import LibraryMissing
from ..ir.candidate import Candidate, Decline
from ..ir.device import Device
from ..ir.offer import Offer, Offers
from ..ir.workload import Workload
from .model import CostModel


def price(
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
