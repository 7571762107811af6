"""Kernel and stream chosen together: other kernels for ops that share the device with others.

The fastest kernel of an op often fills the device, so that nothing runs beside it. A slower one
with fewer blocks may leave room for a neighbour, and the pair is over earlier.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..ir.schedule import Footprint, Op, Schedule
from .machine import Machine
from .simulate import simulate

#: Combinations of kernels that are all looked at; where there are more, a descent finds one.
MOST_COMBINATIONS = 512
#: Passes over all ops, each trying every variant of each.
PASSES = 2
#: A change must shorten the predicted time by this fraction to be made.
LEAST = 1e-3


@dataclass(frozen=True)
class Variant:
    """Another kernel for an offloaded op; ``kernel`` is its candidate's key."""

    kernel: str
    duration_us: float
    footprint: Footprint
    source: str = "recorded"

    def apply(self, op: Op) -> Op:
        """The op as this kernel runs it."""
        return dataclasses.replace(
            op,
            kernel=self.kernel,
            duration_us=self.duration_us,
            footprint=self.footprint,
            source=self.source,
        )


def undominated(variants: Sequence[Variant]) -> list[Variant]:
    """Without those that another one equals or beats both in time and in the share of the device
    that it fills; fastest first."""

    def share(variant: Variant) -> float:
        return min(1.0, variant.footprint.waves)

    kept: list[Variant] = []
    for variant in sorted(variants, key=lambda v: (v.duration_us, share(v))):
        if not kept or share(variant) < share(kept[-1]):
            kept.append(variant)
    return kept


def crowded(schedule: Schedule, least: float = 1.05) -> list[Op]:
    """Offloaded ops that take longer in the schedule than alone: those that share the device."""
    return [
        op
        for op in schedule.ops
        if op.kind == "offloaded" and op.end_us - op.start_us > least * op.duration_us
    ]


def refine(
    schedule: Schedule, variants: Mapping[str, Sequence[Variant]], machine: Machine
) -> dict[str, Variant]:
    """Variants by symbol that make a schedule's predicted time shorter, found by descent: one op
    after the other takes whichever kernel is best while all others stay, streams and order kept.
    """
    ops = list(schedule.ops)
    best = simulate(ops, schedule.events, machine)[2]
    chosen: dict[str, Variant] = {}
    for _ in range(PASSES):
        before = best
        for i, op in enumerate(ops):
            for variant in variants.get(op.symbol, ()):
                if variant.kernel == ops[i].kernel:
                    continue
                tried = [*ops[:i], variant.apply(ops[i]), *ops[i + 1 :]]
                makespan = simulate(tried, schedule.events, machine)[2]
                if makespan < best * (1 - LEAST):
                    best, ops = makespan, tried
                    chosen[op.symbol] = variant
        if best == before:
            break
    return chosen


def combinations(
    schedule: Schedule, variants: Mapping[str, Sequence[Variant]], machine: Machine, most: int
) -> list[dict[str, Variant]]:
    """Up to ``most`` exchanges of kernels, by symbol, shortest predicted time first, streams and
    order kept: of all combinations where they are few, otherwise what :func:`refine` finds."""
    count = math.prod(1 + len(found) for found in variants.values())
    if count > MOST_COMBINATIONS:
        exchanged = refine(schedule, variants, machine)
        return [exchanged] if exchanged else []
    ranked: list[tuple[float, int, dict[str, Variant]]] = []
    options = [[None, *found] for found in variants.values()]
    for number, picked in enumerate(itertools.product(*options)):
        chosen = {s: v for s, v in zip(variants, picked, strict=True) if v is not None}
        ops = [chosen[op.symbol].apply(op) if op.symbol in chosen else op for op in schedule.ops]
        if chosen:
            ranked.append((simulate(ops, schedule.events, machine)[2], number, chosen))
    return [chosen for _, _, chosen in sorted(ranked, key=lambda entry: entry[:2])[:most]]
