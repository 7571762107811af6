"""The decisions of a plan for people: what won, what lost by how much, and who declined."""

from __future__ import annotations

from dataclasses import dataclass

from ..backends.base import Decline
from ..measure.measurement import Measurement
from ..placement import objective as objectives
from ..placement.explain import shape_text
from ..placement.plan import Choice, Plan, Scored

NOT_KNOWN = "–"


@dataclass(frozen=True)
class Contender:
    """One candidate with its three costs; ``margin`` is its cost over the winner's under the
    plan's objective, ``winner_of`` the objectives under which it is the cheapest shown."""

    key: str
    backend: str
    kernel: str
    figure: Measurement
    margin: float | None
    winner_of: tuple[str, ...] = ()
    chosen: bool = False


@dataclass(frozen=True)
class Operation:
    """One distinct workload with its decision; ``count`` regions of the network have it."""

    number: int
    op: str
    shape: str
    epilogue: str
    count: int
    contenders: tuple[Contender, ...]
    declines: tuple[Decline, ...]
    considered: int
    counted: str
    flips: tuple[str, ...]

    @property
    def winner(self) -> Contender:
        return self.contenders[0]

    @property
    def runner_up(self) -> Contender | None:
        return self.contenders[1] if len(self.contenders) > 1 else None


@dataclass(frozen=True)
class Alternative:
    """What would change under an objective: this plan's cost, the cost if each region ran the
    cheapest of the candidates shown for it, and how many regions that changes."""

    objective: str
    plan_us: float
    best_us: float
    changes: int


def alternatives(plan: Plan) -> list[Alternative]:
    """One for each objective; empty where figures are missing. For ``stream``, whose two sides are
    summed apart, the cheapest is chosen for each region by itself."""
    if not plan.choices or not all(choice.chosen.measurement.ok for choice in plan.choices):
        return []
    found = []
    for name in objectives.OBJECTIVES:
        best = [_best(choice, name) for choice in plan.choices]
        total = objectives.total([s.measurement for s in best], name)
        changes = sum(
            mine.chosen.candidate.key != other.candidate.key
            for mine, other in zip(plan.choices, best, strict=True)
        )
        mine = plan.total_us(name)
        found.append(Alternative(name, mine, min(total, mine), changes if total < mine else 0))
    return found


def _best(choice: Choice, objective: str) -> Scored:
    known = [s for s in _shown(choice) if s.measurement.ok]
    return min(known, key=lambda s: objectives.own_cost(s.measurement, objective)[0])


def operations(plan: Plan) -> list[Operation]:
    """One for each distinct workload, in network order."""
    counts: dict[str, int] = {}
    first: dict[str, Choice] = {}
    for choice in plan.choices:
        counts[choice.workload.key] = counts.get(choice.workload.key, 0) + 1
        first.setdefault(choice.workload.key, choice)
    return [
        _operation(number, choice, counts[key], plan.objective)
        for number, (key, choice) in enumerate(first.items(), 1)
    ]


def _operation(number: int, choice: Choice, count: int, objective: str) -> Operation:
    contenders = _contenders(choice, objective)
    flips = tuple(
        f"under {other}, {found.key} would be the cheapest"
        for other in objectives.OBJECTIVES
        for found in contenders[1:]
        if other != objective and other in found.winner_of
    )
    return Operation(
        number=number,
        op=choice.workload.op,
        shape=shape_text(choice.workload),
        epilogue=choice.workload.epilogue.name,
        count=count,
        contenders=contenders,
        declines=choice.declines,
        considered=choice.considered,
        counted=_counted(choice.chosen.measurement, objective),
        flips=flips,
    )


def _contenders(choice: Choice, objective: str) -> tuple[Contender, ...]:
    """The winner, then the others from cheap to dear; those without figures last."""
    shown = _shown(choice)
    known = [s for s in shown if s.measurement.ok]
    wins: dict[str, list[str]] = {}
    for name in objectives.OBJECTIVES if known else ():
        best = min(known, key=lambda s: objectives.own_cost(s.measurement, name)[0])
        wins.setdefault(best.candidate.key, []).append(name)
    rest = shown[1:]
    rest.sort(key=lambda s: _cost(s, objective) or float("inf"))
    own = _cost(choice.chosen, objective)
    return tuple(
        Contender(
            key=s.candidate.key,
            backend=s.candidate.backend,
            kernel=s.candidate.kernel,
            figure=s.measurement,
            margin=cost / own if own and (cost := _cost(s, objective)) else None,
            winner_of=tuple(wins.get(s.candidate.key, ())),
            chosen=s is choice.chosen,
        )
        for s in (choice.chosen, *rest)
    )


def _shown(choice: Choice) -> list[Scored]:
    """The winner, the runner-up and the best of each backend, each once."""
    others = [choice.runner_up] if choice.runner_up else []
    every = {s.candidate.key: s for s in (choice.chosen, *others, *choice.best_by_backend)}
    return list(every.values())


def _cost(scored: Scored, objective: str) -> float | None:
    if not scored.measurement.ok:
        return None
    return objectives.own_cost(scored.measurement, objective)[0]


def _counted(figure: Measurement, objective: str) -> str:
    if not figure.ok:
        return "no figures: the backends' own order decided"
    cost, spread = objectives.own_cost(figure, objective)
    what = {
        "graph": "kernel-only time",
        "stream": "the larger of kernel-only time and time to enqueue",
        "sync": "end-to-end time of a synchronised call",
    }[objective]
    return f"{what}: {cost:.2f} us (spread {spread:.2f})"
