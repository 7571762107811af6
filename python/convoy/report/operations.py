"""Decisions of a plan for the report: each distinct workload once, with its rivals."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

from ..ir import objective as objectives
from ..ir.offer import Offer, Offers
from ..ir.plan import Choice, Plan
from ..partition.match_graph import Subgraph
from ..placement.explain import shape_text
from ..placement.explanation import Explanation, OpExplanation, Rival
from ..placement.reasons import explanation_of

#: Rivals shown of one operation, the nearest ones; of each backend the best is always among them.
MOST_RIVALS = 10


@dataclass(frozen=True)
class Operation:
    """One distinct workload with its decision; ``count`` operations of the network have it.
    ``rivals`` are the losers worth showing, ``hidden`` how many are not, ``worst`` the largest
    margin among those. ``layers`` are the operations by name."""

    number: int
    count: int
    why: OpExplanation
    rivals: tuple[Rival, ...]
    hidden: int
    worst: float
    layers: tuple[str, ...] = ()

    @property
    def shape(self) -> str:
        return shape_text(self.why.workload)

    @property
    def known(self) -> bool:
        """Whether measurements decided."""
        return self.why.winner.kernel_us is not None


def operations(explanation: Explanation) -> list[Operation]:
    """Return one operation for each distinct workload, in network order."""
    alike: dict[str, list[OpExplanation]] = {}
    for op in explanation.ops:
        alike.setdefault(op.workload.key, []).append(op)
    return [_operation(n, ops) for n, ops in enumerate(alike.values(), 1)]


def _operation(number: int, alike: Sequence[OpExplanation]) -> Operation:
    op = alike[0]
    shown: list[Rival] = []
    backends = {op.winner.backend}
    for offer in op.losers:
        if len(shown) < MOST_RIVALS or offer.backend not in backends:
            shown.append(offer)
        backends.add(offer.backend)
    hidden = [offer for offer in op.losers if offer not in shown]
    worst = max((offer.margin or 0.0 for offer in hidden), default=0.0)
    layers = tuple(dict.fromkeys(other.layer for other in alike))
    return Operation(number, len(alike), op, tuple(shown), len(hidden), worst, layers)


def plan_explanation(plan: Plan) -> Explanation:
    """Return the explanation of a plan alone, as a compiled module carries it: rivals are the
    runner-up and the best of each backend, and other objectives choose among them."""
    # Only the selected candidate of each operation is known.
    wholes = [Subgraph(c.subgraph, (c.subgraph,), (), c.workload, c.subgraph) for c in plan.choices]
    offers = {
        choice.workload: Offers(choice.workload, list(_shown(choice))) for choice in plan.choices
    }
    known = bool(plan.choices) and not plan.untimed()
    others = {
        name: _under(plan, name)
        for name in objectives.OBJECTIVES
        if known and name != plan.objective
    }
    return explanation_of(plan, wholes, offers, others)


def _under(plan: Plan, objective: str) -> Plan:
    """Return the plan of the cheapest candidates shown; the plan itself if that is not cheaper
    (under ``stream``, the best choice of each operation need not minimize the larger of the two
    sums)."""
    choices = [
        dataclasses.replace(
            choice,
            chosen=min(
                (s for s in _shown(choice) if s.measurement.ok),
                key=lambda s: objectives.own_cost(s.measurement, objective)[0],
            ),
        )
        for choice in plan.choices
    ]
    other = dataclasses.replace(plan, objective=objective, choices=tuple(choices))
    same = dataclasses.replace(plan, objective=objective)
    return other if other.total_us() < same.total_us() else same


def _shown(choice: Choice) -> list[Offer]:
    """Return the winner, the runner-up and the best of each backend, each once."""
    others = [choice.runner_up] if choice.runner_up else []
    every = {s.candidate.key: s for s in (choice.chosen, *others, *choice.best_by_backend)}
    return list(every.values())
