"""Insert the fewest events that preserve all dependences, and compute the happens-before relation.

An edge between two streams needs an event unless it follows from the order inside streams and
from other events. Because the order of ops is fixed, the set of edges that remain is unique (the
transitive reduction of the union of both orders, restricted to edges between streams).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ..ir.schedule_parts import ORIGIN, Event


def needed(depends: Sequence[Iterable[int]], streams: Sequence[int]) -> tuple[Event, ...]:
    """The minimal set of events for ops in launch order.

    Stream 0 is the caller's: side streams start after the fork (an event recorded at ORIGIN), and
    at the end it waits for them (waits at ORIGIN).
    """
    return tuple(Event(*edge) for edge in fewest(latest_first(depends), streams))


def latest_first(depends: Sequence[Iterable[int]]) -> list[list[int]]:
    """Return the ops that each op waits for, the fork among them; the latest first, which may bring
    the others."""
    return [sorted({*own, ORIGIN}, reverse=True) for own in depends]


def fewest(wanted: Sequence[Sequence[int]], streams: Sequence[int]) -> list[tuple[int, int]]:
    """The events of :func:`needed` as (op that records, op that waits); ``wanted`` are of
    :func:`latest_first`."""
    done = [1]  # what is over behind the fork, and behind each op; bit 0 is the fork, bit i+1 op i
    last: dict[int, int] = {0: ORIGIN}  # stream -> its latest op
    found: list[tuple[int, int]] = []
    for op, stream in enumerate(streams):
        before = done[last[stream] + 1] if stream in last else 0
        for earlier in wanted[op]:
            if not before >> (earlier + 1) & 1:
                found.append((earlier, op))
                before |= done[earlier + 1]
        done.append(before | 1 << (op + 1))
        last[stream] = op
    before = done[last[0] + 1]
    for op in sorted((op for stream, op in last.items() if stream != 0), reverse=True):
        if not before >> (op + 1) & 1:
            found.append((op, ORIGIN))
            before |= done[op + 1]
    return found


def happens_before(streams: Sequence[int], events: Iterable[Event]) -> list[int]:
    """Return the set of ops (as bits) that end before each op starts, by stream order and
    events."""
    waits: dict[int, list[int]] = {}
    for event in events:
        if event.is_inner:
            waits.setdefault(event.wait, []).append(event.record)
    sets: list[int] = []
    last: dict[int, int] = {}
    for op, stream in enumerate(streams):
        before = 0
        for earlier in [*waits.get(op, ()), *([last[stream]] if stream in last else ())]:
            before |= sets[earlier] | 1 << earlier
        sets.append(before)
        last[stream] = op
    return sets
