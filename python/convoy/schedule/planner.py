"""From ops and buffers to a schedule."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence

from . import chains, events, memory
from .assign import assign
from .dependence import Dependences
from .machine import Machine
from .plan import Buffer, Event, Op, Schedule
from .simulate import simulate

#: Numbers of streams that are tried where the number is free.
STREAMS = (2, 3, 4, 6, 8)


def single_stream(ops: Sequence[Op], buffers: Sequence[Buffer], machine: Machine) -> Schedule:
    """The schedule on one stream, in program order."""
    ops = [dataclasses.replace(op, stream=0) for op in ops]
    return _finish(ops, (), buffers, range(len(ops)), machine)


def multi_stream(
    ops: Sequence[Op],
    buffers: Sequence[Buffer],
    machine: Machine,
    streams: int | None = None,
) -> Schedule:
    """The best schedule found by the simulator on at most ``streams`` streams.

    ``ops`` are in program order, with ``depends``; ``buffers`` name ops by their numbers there.
    Tried are several numbers of streams, each with whole chains and with single ops as what is
    assigned; fewer streams and events win among equals.
    """
    graph = Dependences([op.depends for op in ops])
    durations = [op.duration_us for op in ops]
    priorities = graph.bottom_levels(durations)
    cover = chains.cover(graph, priorities)
    limit = streams or max(STREAMS)
    counts = sorted({min(n, limit) for n in (*STREAMS, limit)})
    best: tuple[tuple[float, int, int], list[Op], tuple[Event, ...], list[int]] | None = None
    for count in counts:
        for units in (cover, range(len(ops))):
            order, stream_of = assign(ops, graph, priorities, units, count, machine)
            tried = _in_order(ops, order, stream_of)
            found = events.needed([op.depends for op in tried], [op.stream for op in tried])
            _, _, makespan = simulate(tried, found, machine)
            score = (round(makespan, 3), count, len(found))
            if best is None or score < best[0]:
                best = (score, tried, found, order)
    assert best is not None
    _, tried, found, order = best
    return _finish(tried, found, buffers, order, machine)


def retime(schedule: Schedule, ops: Sequence[Op], machine: Machine) -> Schedule:
    """Streams, order and events of a schedule with the kernels, durations and footprints of
    ``ops``, which are the same by name; its storage stays."""
    by_name = {op.name: op for op in ops}
    changed = [
        dataclasses.replace(by_name[op.name], stream=op.stream, depends=op.depends)
        for op in schedule.ops
    ]
    start, end, makespan = simulate(changed, schedule.events, machine)
    return dataclasses.replace(
        schedule,
        ops=tuple(
            dataclasses.replace(op, start_us=round(start[i], 3), end_us=round(end[i], 3))
            for i, op in enumerate(changed)
        ),
        makespan_us=round(makespan, 3),
        single_us=round(sum(op.duration_us for op in changed), 3),
    )


def _in_order(ops: Sequence[Op], order: Sequence[int], stream_of: Sequence[int]) -> list[Op]:
    """Ops in launch order with their streams, ``depends`` renumbered. Streams are renumbered by
    first use, so that what starts first stays on the caller's."""
    place = {op: i for i, op in enumerate(order)}
    names: dict[int, int] = {}
    for op in order:
        names.setdefault(stream_of[op], len(names))
    return [
        dataclasses.replace(
            ops[op],
            stream=names[stream_of[op]],
            depends=tuple(sorted(place[d] for d in ops[op].depends)),
        )
        for op in order
    ]


def _finish(
    ops: Sequence[Op],
    found: tuple[Event, ...],
    buffers: Sequence[Buffer],
    order: Iterable[int],
    machine: Machine,
) -> Schedule:
    """Predicted times and storage for ops in launch order; ``order`` are their program numbers."""
    start, end, makespan = simulate(ops, found, machine)
    timed = tuple(
        dataclasses.replace(op, start_us=round(start[i], 3), end_us=round(end[i], 3))
        for i, op in enumerate(ops)
    )
    place = {op: i for i, op in enumerate(order)}
    moved = [
        dataclasses.replace(
            b,
            writers=tuple(sorted(place[w] for w in b.writers)),
            readers=tuple(sorted(place[r] for r in b.readers)),
        )
        for b in buffers
    ]
    before = events.happens_before([op.stream for op in timed], found)
    alone = [(1 << i) - 1 for i in range(len(timed))]
    return Schedule(
        ops=timed,
        events=found,
        memory=memory.plan(moved, before, alone),
        makespan_us=round(makespan, 3),
        single_us=round(sum(op.duration_us for op in timed), 3),
    )
