"""Make a schedule from ops and buffers."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ..ir.schedule import Schedule
from ..ir.schedule_parts import Buffer, Event, Op
from . import chains, events, memory
from .assign import assign
from .costs import GRAPH, LaunchCosts
from .dependence import Dependences
from .descent import improve, renumbered
from .simulate import Layout, Simulator, linked, simulate

#: Numbers of streams that are tried where the number is free.
STREAMS = (2, 3, 4, 6, 8)
#: A predicted speedup of several streams over one below this is not believed without a trial.
LEAST_GAIN = 1.03
#: Schedules up to this many times the best predicted time are close to it.
CLOSE = 1.15


def single_stream(
    ops: Sequence[Op], buffers: Sequence[Buffer], costs: LaunchCosts = GRAPH
) -> Schedule:
    """The schedule on one stream, in program order."""
    ops = [dataclasses.replace(op, stream=0) for op in ops]
    return _finish(ops, (), buffers, range(len(ops)), costs)


def multi_stream(
    ops: Sequence[Op],
    buffers: Sequence[Buffer],
    streams: int | None = None,
    costs: LaunchCosts = GRAPH,
) -> Schedule:
    """The best schedule found by the simulator on at most ``streams`` streams: the first of
    :func:`close_schedules`."""
    return close_schedules(ops, buffers, streams, 1, costs)[0]


def close_schedules(
    ops: Sequence[Op],
    buffers: Sequence[Buffer],
    streams: int | None = None,
    most: int = 4,
    costs: LaunchCosts = GRAPH,
) -> list[Schedule]:
    """Schedules that differ, shortest predicted time first; all within CLOSE of the best.

    ``ops`` are in program order, with ``depends``; ``buffers`` name ops by their numbers there.
    Tried are several numbers of streams, each with whole chains and with single ops as what is
    assigned; fewer streams and events win among equals. With ``most`` above 1 the best one is also
    improved by small changes (:mod:`descent`).
    """
    graph = Dependences([op.depends for op in ops])
    priorities = graph.bottom_levels([op.duration_us for op in ops])
    cover = chains.cover(graph, priorities, ops)
    limit = streams or max(STREAMS)
    counts = sorted({min(n, limit) for n in (*STREAMS, limit)})
    tried: dict[tuple[tuple[str, int], ...], _Draft] = {}
    for count in counts:
        for units in (cover, range(len(ops))):
            order, stream_of = assign(ops, graph, priorities, units, count, costs)
            draft = _Draft.of(_in_order(ops, order, stream_of), order, costs)
            tried.setdefault(draft.key, draft)
    ranked = sorted(tried.values(), key=lambda draft: draft.score)
    if most > 1:
        better = improve(ranked[0].ops, limit, costs)
        draft = _Draft.of(better, ranked[0].order, costs)
        if draft.key not in tried:
            ranked = sorted([draft, *ranked], key=lambda draft: draft.score)
    close = [d for d in ranked if d.score[0] <= CLOSE * ranked[0].score[0]]
    return [_finish(d.ops, d.events, buffers, d.order, costs) for d in close[:most]]


@dataclass(frozen=True)
class _Draft:
    """Ops in launch order with streams and events; ``order`` are their program numbers, ``score``
    what is compared: predicted time, streams, events."""

    ops: list[Op]
    order: list[int]
    events: tuple[Event, ...]
    score: tuple[float, int, int]

    @classmethod
    def of(cls, ops: list[Op], order: list[int], costs: LaunchCosts) -> _Draft:
        found = events.needed([op.depends for op in ops], [op.stream for op in ops])
        makespan_us = simulate(ops, found, costs).makespan_us
        streams = 1 + max((op.stream for op in ops), default=0)
        return cls(ops, order, found, (round(makespan_us, 3), streams, len(found)))

    @property
    def key(self) -> tuple[tuple[str, int], ...]:
        return tuple((op.name, op.stream) for op in self.ops)


def retime(schedule: Schedule, ops: Sequence[Op]) -> Schedule:
    """Streams, order and events of a schedule with the kernels, durations and occupancies of
    ``ops``, which are the same by name; its storage stays."""
    by_name = {op.name: op for op in ops}
    changed = [
        dataclasses.replace(by_name[op.name], stream=op.stream, depends=op.depends)
        for op in schedule.ops
    ]
    timed, makespan = _timed(changed, schedule.events, GRAPH)
    return dataclasses.replace(
        schedule, ops=timed, makespan_us=makespan, single_us=_one_after_another_us(timed, GRAPH)
    )


def _in_order(ops: Sequence[Op], order: Sequence[int], stream_of: Sequence[int]) -> list[Op]:
    """Ops in launch order with their streams, ``depends`` renumbered."""
    place = {op: i for i, op in enumerate(order)}
    return renumbered(
        [
            dataclasses.replace(
                ops[op],
                stream=stream_of[op],
                depends=tuple(sorted(place[d] for d in ops[op].depends)),
            )
            for op in order
        ]
    )


def _finish(
    ops: Sequence[Op],
    found: tuple[Event, ...],
    buffers: Sequence[Buffer],
    order: Iterable[int],
    costs: LaunchCosts,
) -> Schedule:
    """Predicted times and storage for ops in launch order; ``order`` are their program numbers."""
    timed, makespan = _timed(ops, found, costs)
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
        makespan_us=makespan,
        single_us=_one_after_another_us(timed, costs),
    )


def _timed(
    ops: Sequence[Op], found: Sequence[Event], costs: LaunchCosts
) -> tuple[tuple[Op, ...], float]:
    """Ops in launch order with their predicted times and links of chains, and the makespan."""
    layout = Layout.of_ops(ops, found)
    start, end, makespan = Simulator(ops, costs).run(layout)
    links = linked(ops, layout, costs)
    timed = tuple(
        dataclasses.replace(
            op, start_us=round(start[i], 3), end_us=round(end[i], 3), linked=links[i]
        )
        for i, op in enumerate(ops)
    )
    return timed, round(makespan, 3)


def _one_after_another_us(ops: Sequence[Op], costs: LaunchCosts) -> float:
    """Time of ops on one stream, in launch order."""
    links = linked(ops, Layout.of([0] * len(ops), ()))
    alone = (dataclasses.replace(op, linked=link) for op, link in zip(ops, links, strict=True))
    return round(costs.start_us + sum(op.scheduled_us for op in alone), 3)
