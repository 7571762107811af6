"""Making a schedule better by small changes, as the simulator sees it."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Sequence

from ..ir.schedule import Op
from . import events
from .costs import LaunchCosts
from .simulate import simulate

#: Ops simulated in all, over all steps: a second or two.
EFFORT = 150_000


def improve(ops: Sequence[Op], streams: int, costs: LaunchCosts, seed: int = 0) -> list[Op]:
    """Ops in launch order with other streams, on at most ``streams``, so that the predicted time is
    no longer than before. The order stays.

    In each step up to three ops that follow one another on a stream move to another one; a step
    that makes the prediction longer is taken back. The same seed gives the same result.
    """
    rng = random.Random(seed)
    current = list(ops)
    depends = [op.depends for op in current]
    best = _predicted(current, depends, costs)
    for _ in range(EFFORT // max(1, len(current)) if streams > 1 else 0):
        tried = _moved(current, rng, streams)
        makespan = _predicted(tried, depends, costs)
        if makespan <= best:
            best, current = makespan, tried
    return _renumbered(current)


def _moved(ops: Sequence[Op], rng: random.Random, streams: int) -> list[Op]:
    first, target = rng.randrange(len(ops)), rng.randrange(streams)
    left, home = rng.choice((1, 1, 2, 3)), ops[first].stream
    result = list(ops)
    for i in range(first, len(ops)):
        if left and ops[i].stream == home:
            result[i] = dataclasses.replace(ops[i], stream=target)
            left -= 1
    return result


def _predicted(ops: Sequence[Op], depends: Sequence[tuple[int, ...]], costs: LaunchCosts) -> float:
    needed = events.needed(depends, [op.stream for op in ops])
    return simulate(ops, needed, costs)[2]


def _renumbered(ops: Sequence[Op]) -> list[Op]:
    """Streams numbered by first use, so that what starts first is on the caller's."""
    names: dict[int, int] = {}
    for op in ops:
        names.setdefault(op.stream, len(names))
    return [dataclasses.replace(op, stream=names[op.stream]) for op in ops]
