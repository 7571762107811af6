"""Events: enough, and not one too many."""

from __future__ import annotations

from graphs import complete, graphs, reachable, stream_edges
from hypothesis import given, settings
from hypothesis import strategies as st

from convoy.ir.schedule_parts import ORIGIN, Event
from convoy.streams import events
from convoy.streams.planner import multi_stream


@given(graphs, st.integers(1, 6))
@settings(max_examples=80, deadline=None)
def test_events_are_enough_and_none_is_implied(case, streams: int) -> None:
    ops, buffers = case
    schedule = multi_stream(ops, buffers, streams)
    assert complete(schedule.ops, schedule.events)
    for event in schedule.events:
        rest = tuple(e for e in schedule.events if e != event)
        assert not complete(schedule.ops, rest), event


@given(graphs, st.integers(2, 5))
@settings(max_examples=40, deadline=None)
def test_happens_before_is_reachability(case, streams: int) -> None:
    ops, buffers = case
    schedule = multi_stream(ops, buffers, streams)
    sets = events.happens_before([op.stream for op in schedule.ops], schedule.events)
    edges = stream_edges(schedule.ops, schedule.events)
    expected = reachable(edges, len(ops))
    assert [{i for i in range(len(ops)) if bits >> i & 1} for bits in sets] == expected


def test_diamond() -> None:
    """Fork and join inside: one event out, one back, and the side stream needs no other."""
    found = events.needed([(), (0,), (0,), (1, 2)], [0, 1, 0, 0])
    assert found == (Event(0, 1), Event(1, 3))


def test_branches_from_the_start_are_forked_and_joined() -> None:
    found = events.needed([(), ()], [0, 1])
    assert found == (Event(ORIGIN, 1), Event(1, ORIGIN))


def test_one_stream_needs_none() -> None:
    assert events.needed([(), (0,), (0,), (1, 2)], [0] * 4) == ()
