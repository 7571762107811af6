"""What a prediction must never violate, and cases small enough to work out by hand."""

from __future__ import annotations

import dataclasses

import pytest
from graphs import graphs
from hypothesis import given, settings
from hypothesis import strategies as st

from convoy.ir.schedule_parts import ORIGIN, Event, Occupancy, Op
from convoy.streams.costs import LaunchCosts
from convoy.streams.dependence import Dependences
from convoy.streams.planner import multi_stream, single_stream
from convoy.streams.simulate import _TOGETHER, simulate

FREE = LaunchCosts(cross_us=0.0, fork_us=0.0)


def op(us: float, stream: int = 0, waves: float = 1.0) -> Op:
    return Op("o", "o", "native", us, Occupancy(waves=waves), stream)


@given(graphs, st.integers(1, 6))
@settings(max_examples=80, deadline=None)
def test_bounds(case, streams: int) -> None:
    ops, buffers = case
    costs = LaunchCosts()
    schedule = multi_stream(ops, buffers, streams)
    durations = [o.duration_us for o in schedule.ops]
    graph = Dependences([o.depends for o in schedule.ops])
    assert schedule.makespan_us >= max(graph.bottom_levels(durations)) - 0.01
    work = sum(o.duration_us * min(1.0, o.occupancy.waves) for o in schedule.ops)
    assert schedule.makespan_us >= work - 0.01
    crossings = len(schedule.events) * max(costs.cross_us, costs.fork_us)
    assert schedule.makespan_us <= (1 + _TOGETHER) * schedule.single_us + crossings + 0.01
    for i, o in enumerate(schedule.ops):
        assert o.end_us - o.start_us >= o.duration_us - 0.01
        assert all(schedule.ops[d].end_us <= o.start_us + 0.01 for d in o.depends)
        for later in schedule.ops[i + 1 :]:
            if later.stream == o.stream:
                assert later.start_us >= o.end_us - 0.01


@given(graphs)
@settings(max_examples=40, deadline=None)
def test_one_stream_is_the_sum(case) -> None:
    ops, buffers = case
    schedule = single_stream(ops, buffers)
    assert schedule.makespan_us == pytest.approx(sum(o.duration_us for o in ops), abs=0.01)
    assert schedule.makespan_us == schedule.single_us
    assert schedule.events == ()


@given(graphs)
@settings(max_examples=40, deadline=None)
def test_narrower_ops_are_never_slower(case) -> None:
    ops, buffers = case
    schedule = multi_stream(ops, buffers, 4, costs=FREE)
    narrow = [dataclasses.replace(o, occupancy=Occupancy(waves=0.02)) for o in schedule.ops]
    assert simulate(narrow, schedule.events, FREE).makespan_us <= schedule.makespan_us + 0.01


def test_small_ops_overlap_and_large_ones_do_not() -> None:
    events = (Event(ORIGIN, 1), Event(1, ORIGIN))
    for waves, slow in ((0.5, 1.0), (1.0, 2.0), (7.0, 2.0), (0.75, 1.5), (0.1, 1.0)):
        expected = 10 * (slow + _TOGETHER * min(1.0, 2 * min(1.0, waves)))
        pair = [op(10, 0, waves), op(10, 1, waves)]
        assert simulate(pair, events, FREE).makespan_us == pytest.approx(expected)


def test_sharing_lasts_as_long_as_both_run() -> None:
    pair = [op(10, 0, 1.0), op(2, 1, 1.0)]
    start, end, makespan = simulate(pair, (Event(ORIGIN, 1), Event(1, ORIGIN)), FREE)
    assert start == [0.0, 0.0]
    shared = 2 * (2 + _TOGETHER)
    assert end == pytest.approx([shared + 8, shared])
    assert makespan == pytest.approx(shared + 8)


def test_crossing_costs() -> None:
    costs = LaunchCosts(cross_us=1.5, fork_us=0.5)
    chain = [op(2, 0, 0.1), op(3, 1, 0.1)]
    assert simulate(chain, (Event(0, 1), Event(1, ORIGIN)), costs).makespan_us == pytest.approx(8.0)
    roots = [op(2, 0, 0.1), op(3, 1, 0.1)]
    together = 1.5 * 0.2 * _TOGETHER  # from the fork to the end of the first one
    assert simulate(
        roots, (Event(ORIGIN, 1), Event(1, ORIGIN)), costs
    ).makespan_us == pytest.approx(5.0 + together)


def test_each_edge_from_another_stream_costs() -> None:
    """The last op waits for two streams beside its own; one of them follows the other."""
    costs = LaunchCosts(cross_us=1.0, fork_us=0.0)
    ops = [op(2, 0, 0.02), op(2, 1, 0.02), op(2, 2, 0.02), op(2, 0, 0.02)]
    for events, crossing in (
        ((Event(0, 1), Event(0, 2), Event(1, 3), Event(2, 3)), 2.0),
        ((Event(0, 1), Event(1, 2), Event(1, 3), Event(2, 3)), 1.0),
    ):
        start, end, _ = simulate(ops, events, costs)
        assert start[3] == pytest.approx(max(end[:3]) + crossing)


def test_a_replay_starts_later() -> None:
    start, _, makespan = simulate([op(2), op(3)], (), LaunchCosts(start_us=4.5))
    assert start == [4.5, 6.5]
    assert makespan == 9.5


def test_host_bound_launches_are_spaced() -> None:
    costs = LaunchCosts(cross_us=0.0, fork_us=0.0, enqueue_us=5.0)
    start, _, makespan = simulate([op(1), op(1), op(1)], (), costs)
    assert start == pytest.approx([5.0, 10.0, 15.0])
    assert makespan == pytest.approx(16.0)
