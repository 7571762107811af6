"""The simple placer: each region gets the candidate that is cheapest under the objective."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from ..backends.base import Backend
from ..cost.model import CostModel
from ..errors import LibraryMissing, NoCandidate
from ..ir import objective as objectives
from ..ir.candidate import Candidate, Decline
from ..ir.device import Device
from ..ir.measurement import Measurement
from ..ir.plan import Choice, Plan, Scored
from ..ir.workload import Workload
from .pareto import smallest_maximum

#: Kernel time of candidates that a choice keeps as near, over that of the chosen one; their number.
NEAR, NEAREST = 1.6, 6


@dataclass
class Options:
    """Everything that may run one workload: scored candidates (cheapest last to be known) and
    the backends that declined."""

    workload: Workload
    scored: list[Scored] = field(default_factory=list)
    unknown: list[Candidate] = field(default_factory=list)
    failed: list[Scored] = field(default_factory=list)
    declines: list[Decline] = field(default_factory=list)


def gather(
    workloads: Sequence[Workload], backends: Sequence[Backend], device: Device, costs: CostModel
) -> dict[Workload, Options]:
    """Ask every backend for candidates of every distinct workload and score them."""
    options = {workload: Options(workload) for workload in workloads}
    proposals = {
        workload: _candidates(found, backends, device, costs) for workload, found in options.items()
    }
    costs.prefetch(list(proposals.items()))
    for workload, candidates in proposals.items():
        found = options[workload]
        for candidate, figure in zip(candidates, costs.figures(workload, candidates), strict=True):
            if figure is None:
                found.unknown.append(candidate)
            elif figure.ok:
                found.scored.append(Scored(candidate, figure))
            else:
                found.failed.append(Scored(candidate, figure))
    return options


def _candidates(
    found: Options, backends: Sequence[Backend], device: Device, costs: CostModel
) -> list[Candidate]:
    """Candidates of one workload from its backends and from what the cost model knows.

    Where the cost model can add no figures, a backend with known candidates is not asked for
    others: that takes cuDNN seconds.
    """
    workload = found.workload
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
            found.declines.append(answer)
            answer = []
        names = {candidate.key for candidate in answer}
        candidates += [*answer, *(c for c in theirs if c.key not in names)]
    return candidates


def restricted(
    options: Mapping[Workload, Options], backends: Collection[str]
) -> dict[Workload, Options]:
    """The same with what some backends offer only, and their declines."""

    def of(found: Options) -> Options:
        return Options(
            found.workload,
            [s for s in found.scored if s.candidate.backend in backends],
            [c for c in found.unknown if c.backend in backends],
            [s for s in found.failed if s.candidate.backend in backends],
            [d for d in found.declines if d.backend in backends],
        )

    return {workload: of(found) for workload, found in options.items()}


def rank(scored: Sequence[Scored], objective: str) -> list[Scored]:
    """Cheapest first. Candidates within the measured spread of the cheapest are ties, and ties
    go to: deterministic kernels, then the smaller workspace, then the backend's own order,
    then the name.
    """

    def cost(item: Scored) -> tuple[float, float]:
        return objectives.own_cost(item.measurement, objective)

    by_cost = sorted(scored, key=lambda item: (cost(item)[0], item.candidate.key))
    if not by_cost:
        return []
    lowest, spread = cost(by_cost[0])
    ties = [item for item in by_cost if cost(item)[0] <= lowest + spread]
    ties.sort(
        key=lambda item: (
            not item.candidate.deterministic,
            item.candidate.workspace,
            item.candidate.priority,
            item.candidate.key,
        )
    )
    return ties + [item for item in by_cost if item not in ties]


def _choose(region: str, options: Options, objective: str, first: Scored | None) -> Choice:
    ranked = rank(options.scored, objective)
    if first is not None:
        ranked = [first] + [item for item in ranked if item is not first]
    if not ranked:
        if not options.unknown:
            reasons = [f"{d.backend}: {d.reason}" for d in options.declines]
            reasons += [f"{s.candidate.key}: {s.measurement.failure}" for s in options.failed]
            raise NoCandidate(
                f"{options.workload.key}, which every backend declined ({'; '.join(reasons)})",
                "at least one backend that can run it",
            )
        ranked = [
            Scored(c, Measurement()) for c in sorted(options.unknown, key=lambda c: c.priority)
        ]
    best: dict[str, Scored] = {}
    for item in ranked:
        best.setdefault(item.candidate.backend, item)
    return Choice(
        region=region,
        workload=options.workload,
        chosen=ranked[0],
        runner_up=ranked[1] if len(ranked) > 1 else None,
        best_by_backend=tuple(best.values()),
        declines=tuple(options.declines),
        considered=len(ranked) + len(options.failed),
        near=near(ranked),
    )


def near(ranked: Sequence[Scored]) -> tuple[Scored, ...]:
    """Of candidates that take at most NEAR times as long as the first, NEAREST spread evenly over
    the ranks: the next ones are mostly the same kernel with another knob turned."""
    limit = NEAR * (ranked[0].measurement.kernel_us or 0.0)
    close = [s for s in ranked[1:] if s.measurement.ok and (s.measurement.kernel_us or 0) <= limit]
    if len(close) > NEAREST:
        step = (len(close) - 1) / (NEAREST - 1)
        close = [close[round(i * step)] for i in range(NEAREST)]
    return tuple(close)


def place(
    regions: Sequence[tuple[str, Workload]],
    backends: Sequence[Backend],
    device: Device,
    costs: CostModel,
    objective: str = "graph",
    environment: str = "",
    options: dict[Workload, Options] | None = None,
) -> Plan:
    """Choose a candidate for each (region name, workload).

    Under ``stream`` host and device time are summed apart and the larger counts, so the choices
    are made jointly (see pareto.py).

    Raises NoCandidate where no backend takes a workload.
    """
    objectives.check(objective)
    if options is None:
        options = gather([w for _, w in regions], backends, device, costs)
    firsts: list[Scored | None] = [None] * len(regions)
    if objective == "stream":
        firsts = _side_by_side([options[w].scored for _, w in regions])
    choices = tuple(
        _choose(name, options[workload], objective, first)
        for (name, workload), first in zip(regions, firsts, strict=True)
    )
    known = any(choice.chosen.measurement.ok for choice in choices)
    return Plan(objective, device, choices, costs.source if known else "none", environment)


def _side_by_side(scored: Sequence[Sequence[Scored]]) -> list[Scored | None]:
    """The jointly best candidate of each region when host and device time are summed apart."""
    positions = [i for i, items in enumerate(scored) if items]
    pairs = [[objectives.stream_sides(s.measurement) for s in scored[i]] for i in positions]
    result: list[Scored | None] = [None] * len(scored)
    for i, option in zip(positions, smallest_maximum(pairs), strict=True):
        result[i] = scored[i][option]
    return result
