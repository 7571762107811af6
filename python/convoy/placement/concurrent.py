"""Select kernels and streams together.

The fastest kernel of an op often occupies the whole device, so that no other kernel runs
concurrently. A slower one with fewer CTAs may leave room for an op on another stream, so that both
end earlier. Kernels are exchanged if this shortens the simulated schedule of the network on several
streams; nothing is compiled or measured.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..ir.device import Device
from ..ir.objective import device_us, saved_us
from ..ir.offer import Offer
from ..ir.plan import Choice, Plan
from ..ir.schedule import Schedule
from ..ir.schedule_parts import Occupancy, Op
from ..streams import occupancy
from ..streams.dependence import Dependences
from ..streams.planner import LEAST_GAIN, close_schedules, multi_stream, retime, single_stream
from ..streams.simulate import Layout, Simulator, simulate
from .cover import Cover
from .rank import NEAR
from .simulated import cover_ops, fastest

#: Kernels are exchanged for a predicted speedup above this.
LEAST_EXCHANGE = 1.01
#: An op shares the device where it takes this many times as long in the schedule as alone.
SHARING = 1.05
#: Up to this many combinations of kernels are all tried; of more, a descent finds one.
MOST_COMBINATIONS = 512
#: Combinations for which streams are planned anew.
PLANNED = 6
#: Passes of the descent over all ops, each trying every alternative of each.
PASSES = 2
#: A step of the descent must shorten the predicted time by this fraction.
LEAST_STEP = 1e-3


@dataclass(frozen=True)
class Alternative:
    """Another kernel for an op; ``added_us`` is that of copies behind it."""

    offer: Offer
    added_us: float
    occupancy: Occupancy

    @property
    def duration_us(self) -> float:
        return device_us(self.offer.measurement) + self.added_us

    def apply(self, op: Op) -> Op:
        """The op as this kernel runs it."""
        kernel = self.offer.candidate.key
        timed = op.timed(self.offer.measurement, self.added_us)
        return dataclasses.replace(timed, kernel=kernel, occupancy=self.occupancy)


Exchange = Mapping[str, Alternative]  # by symbol


def choose_for_streams(plan: Plan, cover: Cover) -> Plan:
    """Exchange kernels of a plan where that makes its schedule on several streams shorter.

    Args:
        plan: The plan of ``cover``, with the cheapest kernels.

    Returns:
        The plan with other kernels, each with the one that it replaces as runner-up; ``plan``
        itself if one stream, or the kernels as they are, serve as well.
    """
    ops = cover_ops(cover)
    parallel = Dependences([op.depends for op in ops]).width_exceeds_one()
    if cover.objective != "graph" or not parallel:  # other objectives launch one after another
        return plan
    single = single_stream(ops, ()).makespan_us
    if least_us(ops, plan) >= single / LEAST_GAIN:  # no schedule can be short enough
        return plan
    planned = close_schedules(ops, (), most=2)[0]
    choices = {choice.subgraph: choice for choice in plan.choices}
    best, exchange, streams = planned.makespan_us / LEAST_EXCHANGE, {}, 1
    for schedule, found in _exchanges(ops, planned, choices, plan.device):
        if schedule.streams > 1 and schedule.makespan_us < min(best, single / LEAST_GAIN):
            best, exchange, streams = schedule.makespan_us, dict(found), schedule.streams
    if not exchange:
        return plan
    return dataclasses.replace(plan, choices=_exchanged(plan.choices, exchange), streams=streams)


def least_us(ops: Sequence[Op], plan: Plan) -> float:
    """The longest path through the ops, each as short as its fastest kernel, linked."""
    choices = {choice.subgraph: choice for choice in plan.choices}

    def shortest(op: Op) -> float:
        known = op.duration_us if op.chained_us is None else min(op.duration_us, op.chained_us)
        choice = choices.get(op.symbol)
        others = [] if choice is None else [offer.measurement for offer in choice.kept()]
        return min([known, *(device_us(m) - saved_us(m) for m in others)])

    parallel = Dependences([op.depends for op in ops])
    return max(parallel.bottom_levels([shortest(op) for op in ops]), default=0.0)


def _exchanged(choices: Sequence[Choice], exchange: Exchange) -> tuple[Choice, ...]:
    return tuple(
        dataclasses.replace(c, chosen=exchange[c.subgraph].offer, runner_up=c.chosen)
        if c.subgraph in exchange
        else c
        for c in choices
    )


def _exchanges(
    ops: Sequence[Op], planned: Schedule, choices: Mapping[str, Choice], device: Device
) -> list[tuple[Schedule, Exchange]]:
    """Promising exchanges, each with a schedule that is planned for it.

    Where kernels occupy so much that several streams do not pay, no schedule shows where they
    would with others; so the streams of kernels that occupy nothing are a second start.
    """
    free = [dataclasses.replace(op, occupancy=Occupancy(waves=0.0)) for op in ops]
    found: dict[tuple[tuple[str, str], ...], tuple[Schedule, Exchange]] = {}
    for start in (planned, retime(multi_stream(free, ()), ops)):
        offered = {
            op.symbol: alternatives(op, choices[op.symbol], device)
            for op in sharing(start)
            if op.symbol in choices
        }
        for exchange in combinations(start, offered, PLANNED):
            key = tuple(sorted((s, a.offer.candidate.key) for s, a in exchange.items()))
            if key not in found:
                other = [exchange[o.symbol].apply(o) if o.symbol in exchange else o for o in ops]
                found[key] = multi_stream(other, ()), exchange
    return list(found.values())


def alternatives(op: Op, choice: Choice, device: Device) -> list[Alternative]:
    """Other kernels for an op, from those that its choice keeps, that no other one equals or beats
    both in time and in occupancy."""
    added = op.duration_us - device_us(choice.chosen.measurement)  # copies behind the kernel
    limit = NEAR * (choice.chosen.measurement.kernel_us or 0.0)
    others = {
        offer.candidate.key: offer
        for offer in choice.kept()
        if (offer.measurement.kernel_us or 0.0) <= limit
    }
    others.pop(choice.chosen.candidate.key, None)
    known = fastest(choice.best_by_backend)
    return undominated(
        [
            Alternative(
                other,
                added,
                occupancy.of_workload(choice.workload, device, other.candidate, known),
            )
            for other in others.values()
        ]
    )


def undominated(found: Sequence[Alternative]) -> list[Alternative]:
    """Remove kernels that another one equals or beats both in time and in the fraction of the
    device that it occupies; fastest first."""

    def fraction(alternative: Alternative) -> float:
        return min(1.0, alternative.occupancy.waves)

    kept: list[Alternative] = []
    for alternative in sorted(found, key=lambda a: (a.duration_us, fraction(a))):
        if not kept or fraction(alternative) < fraction(kept[-1]):
            kept.append(alternative)
    return kept


def sharing(schedule: Schedule) -> list[Op]:
    """Offloaded ops that take longer in the schedule than alone, because they share the device."""
    return [
        op
        for op in schedule.ops
        if op.kind == "offloaded" and op.end_us - op.start_us > SHARING * op.duration_us
    ]


def descend(schedule: Schedule, offered: Mapping[str, Sequence[Alternative]]) -> Exchange:
    """Find an exchange that shortens a schedule's predicted time: one op at a time takes the best
    kernel while all others, the streams and the order are kept."""
    ops = list(schedule.ops)
    layout = Layout.of_ops(ops, schedule.events)
    best = Simulator(ops).run(layout).makespan_us
    chosen: dict[str, Alternative] = {}
    for _ in range(PASSES):
        before = best
        for i, op in enumerate(ops):
            for alternative in offered.get(op.symbol, ()):
                if alternative.offer.candidate.key == ops[i].kernel:
                    continue
                tried = [*ops[:i], alternative.apply(ops[i]), *ops[i + 1 :]]
                makespan = Simulator(tried).run(layout, best).makespan_us
                if makespan < best * (1 - LEAST_STEP):
                    best, ops = makespan, tried
                    chosen[op.symbol] = alternative
        if best == before:
            break
    return chosen


def combinations(
    schedule: Schedule, offered: Mapping[str, Sequence[Alternative]], most: int
) -> list[Exchange]:
    """Up to ``most`` exchanges, shortest predicted time first, with streams and order kept: all
    combinations if they are few, otherwise those that :func:`descend` finds."""
    if math.prod(1 + len(found) for found in offered.values()) > MOST_COMBINATIONS:
        exchange = descend(schedule, offered)
        return [exchange] if exchange else []
    ranked: list[tuple[float, int, Exchange]] = []
    options = [[None, *found] for found in offered.values()]
    for number, picked in enumerate(itertools.product(*options)):
        chosen = {s: a for s, a in zip(offered, picked, strict=True) if a is not None}
        ops = [chosen[op.symbol].apply(op) if op.symbol in chosen else op for op in schedule.ops]
        if chosen:
            ranked.append((simulate(ops, schedule.events).makespan_us, number, chosen))
    return [chosen for _, _, chosen in sorted(ranked, key=lambda entry: entry[:2])[:most]]
