"""Schedules as a whole: complete, legal, and worth it where the graph allows."""

from __future__ import annotations

import itertools
import math
import random

import pytest
from graphs import complete, graphs, random_ops
from hypothesis import given, settings
from hypothesis import strategies as st

from convoy.errors import CorruptArtefact, InvalidOption
from convoy.ir.schedule import Schedule, Trial
from convoy.ir.schedule_parts import Occupancy, Op
from convoy.progress import Stages
from convoy.streams import events
from convoy.streams.costs import GRAPH
from convoy.streams.planner import CLOSE, close_schedules, multi_stream, single_stream
from convoy.streams.schedule import check_streams
from convoy.streams.simulate import _TOGETHER, Layout, Simulator


def op(name: str, us: float, *depends: int, waves: float = 0.1) -> Op:
    return Op(name, name, "native", us, Occupancy(waves=waves), depends=depends)


@given(graphs, st.integers(1, 8))
@settings(max_examples=60, deadline=None)
def test_schedules_are_complete_and_legal(case, streams: int) -> None:
    ops, buffers = case
    schedule = multi_stream(ops, buffers, streams)
    assert sorted(o.name for o in schedule.ops) == sorted(o.name for o in ops)
    assert schedule.streams <= streams
    assert {o.stream for o in schedule.ops} == set(range(schedule.streams))
    assert schedule.ops[0].stream == 0
    before = {o.name: {ops[d].name for d in o.depends} for o in ops}
    for i, o in enumerate(schedule.ops):
        assert {schedule.ops[d].name for d in o.depends} == before[o.name]
        assert all(d < i for d in o.depends)


@given(graphs)
@settings(max_examples=30, deadline=None)
def test_json_round_trip(case) -> None:
    ops, buffers = case
    for schedule in (single_stream(ops, buffers), multi_stream(ops, buffers)):
        assert Schedule.loads(schedule.dumps()) == schedule


def test_branches_overlap() -> None:
    ops = [op("fork", 2), *(op(f"b{i}", 10, 0) for i in range(4)), op("join", 2, 1, 2, 3, 4)]
    schedule = multi_stream(ops, [])
    assert schedule.streams == 4
    assert schedule.predicted_speedup > 2.4


def test_wide_branches_stay_apart() -> None:
    """Kernels that fill the device gain nothing from streams, so the fewest events win."""
    ops = [op("fork", 2), *(op(f"b{i}", 10, 0, waves=4.0) for i in range(4))]
    schedule = multi_stream(ops, [])
    assert schedule.predicted_speedup < 1.01


@given(graphs, st.integers(0, 3), st.floats(0.5, 1.5))
@settings(max_examples=60, deadline=None)
def test_only_schedules_beyond_a_bound_are_left_unfinished(case, seed: int, factor: float) -> None:
    ops, rng = case[0], random.Random(seed)
    streams = [rng.randrange(3) for _ in ops]
    edges = events.fewest(events.latest_first([o.depends for o in ops]), streams)
    simulator, layout = Simulator(ops), Layout.of(streams, edges)
    whole = simulator.run(layout)
    bound = whole[2] * factor
    bounded = simulator.run(layout, bound)
    assert bounded == whole if factor >= 1 else bounded[2] in (whole[2], math.inf)
    assert not math.isfinite(bounded[2]) or bounded == whole


def test_trials_of_schedules_are_counted() -> None:
    ops = [op("fork", 2), *(op(f"b{i}", 10, 0) for i in range(4)), op("join", 2, 1, 2, 3, 4)]
    steps: list[tuple[str, int, int]] = []
    with Stages(lambda *one: steps.append(one)).stage("select kernels"):
        close_schedules(ops, ())
    counts = [done for label, done, _ in steps if label == "improve streams"]
    assert len(counts) > 2
    assert counts == sorted(counts)


def test_critical_path_goes_first() -> None:
    """The long branch is launched before the short ones although it comes last."""
    ops = [
        op("fork", 1),
        op("s0", 1, 0),
        op("s1", 1, 0),
        op("l0", 9, 0),
        op("l1", 9, 3),
        op("end", 1, 1, 2, 4),
    ]
    schedule = multi_stream(ops, [], 2)
    order = [o.name for o in schedule.ops]
    assert order.index("l0") == 1
    by_name = {o.name: o for o in schedule.ops}
    assert by_name["fork"].stream == by_name["l0"].stream == by_name["l1"].stream
    beside = 2 * 2 * 0.1 * _TOGETHER  # while the short ones run, each 0.1 of the device
    expected = 20.0 + GRAPH.cross_us + beside
    assert schedule.makespan_us == pytest.approx(expected, abs=0.01)


def test_planning_is_deterministic() -> None:
    ops, buffers = random_ops(3, 60)
    first, second = (multi_stream(ops, buffers) for _ in range(2))
    assert first == second


@given(graphs, st.integers(2, 6))
@settings(max_examples=20, deadline=None)
def test_close_schedules_are_legal_and_in_order(case, streams: int) -> None:
    ops, buffers = case
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("convoy.streams.descent.EFFORT", 2000)
        found = close_schedules(ops, buffers, streams)
    times = [schedule.makespan_us for schedule in found]
    assert times == sorted(times) and times[-1] <= CLOSE * times[0] + 0.01
    assert times[0] <= multi_stream(ops, buffers, streams).makespan_us + 0.01
    assert len({tuple((o.name, o.stream) for o in s.ops) for s in found}) == len(found)
    before = {o.name: {ops[d].name for d in o.depends} for o in ops}
    for schedule in found:
        assert schedule.streams <= streams
        assert complete(schedule.ops, schedule.events)
        for o in schedule.ops:
            assert {schedule.ops[d].name for d in o.depends} == before[o.name]


def test_trial_needs_more_than_the_spread() -> None:
    assert Trial(100.0, 90.0, 2.0, 3.0).faster
    assert not Trial(100.0, 98.0, 2.0, 3.0).faster
    assert not Trial(100.0, 105.0).faster


@pytest.mark.parametrize("wrong", [0, -1, 33, "many", None, 1.5j])
def test_options_that_make_no_sense(wrong) -> None:
    with pytest.raises(InvalidOption, match="streams="):
        check_streams(wrong)
    assert [check_streams(s) for s in ("auto", 1, "4")] == ["auto", 1, 4]


def test_json_that_is_no_schedule() -> None:
    ops, buffers = random_ops(1, 4)
    good = single_stream(ops, buffers).to_json()
    for key in ("ops", "events", "memory", "format", "trial"):
        with pytest.raises(CorruptArtefact):
            Schedule.from_json({k: v for k, v in good.items() if k != key})
    for text in ("", "[]", '{"format": 99}'):
        with pytest.raises(CorruptArtefact):
            Schedule.loads(text)


def test_large_graphs_are_planned_in_seconds() -> None:
    """A thousand ops in parallel chains, as an unrolled NASNet has."""
    ops = [op("fork", 1)]
    for _chain, length in itertools.product(range(20), [0]):
        previous = length
        for _ in range(50):
            ops.append(op(f"o{len(ops)}", 3, previous))
            previous = len(ops) - 1
    schedule = multi_stream(ops, [], 4)
    assert schedule.predicted_speedup > 3
