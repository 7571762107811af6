"""Timelines from schedules, and the trace that viewers open."""

from __future__ import annotations

import itertools
import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from report_examples import plan, schedule

from convoy.report import timeline, trace
from convoy.report.measured import Calls, in_order


def test_predicted_timeline_has_every_op_with_a_name_for_people() -> None:
    line = timeline.predicted(schedule(), plan())
    assert [s.label for s in line.spans] == [
        "cast transpose",
        "3x3 64→96",
        "1x1 64→96",
        "concatenate",
    ]
    assert [s.backend for s in line.spans] == ["tvm", "cudnn", "cutlass", "tvm"]
    assert line.streams == (0, 1)
    assert (line.makespan_us, line.busy_us) == (8.0, 10.5)
    assert line.waits == ((0, 2), (2, 3)), "the fork on the caller's stream is no arrow"


def test_observed_timeline_keeps_names_and_says_what_was_predicted() -> None:
    times = [(0.5, 1.0), (2.0, 5.0), (2.0, 3.0), (7.0, 1.0)]
    line = timeline.observed(schedule(), times, 9.0, "by a clock", plan())
    assert [(s.start_us, s.duration_us) for s in line.spans] == times
    assert ("predicted", "4.00 us") in line.spans[1].details
    with pytest.raises(ValueError):
        timeline.observed(schedule(), times[:-1], 9.0, "by a clock", plan())


def test_plan_without_schedule_is_drawn_in_a_row() -> None:
    line = timeline.predicted(timeline.sequential(plan()), plan())
    assert [(s.start_us, s.end_us, s.stream) for s in line.spans] == [(0, 4, 0), (4, 7, 0)]


def check_trace(data: dict[str, Any]) -> None:
    """What viewers rely on: named rows, no overlap within a row, arrows with both ends inside of
    slices."""
    rows = {(e["pid"], e["tid"]) for e in data["traceEvents"] if e["name"] == "thread_name"}
    slices: dict[tuple[int, int], list[tuple[float, float]]] = defaultdict(list)
    for event in data["traceEvents"]:
        if event["ph"] == "X":
            slices[event["pid"], event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
    assert set(slices) == rows
    for found in slices.values():
        found.sort()
        for (_, end), (start, _) in itertools.pairwise(found):
            assert end <= start + 1e-6
    ends: dict[str, set[str]] = defaultdict(set)
    for event in data["traceEvents"]:
        if event["ph"] in "sf":
            ends[event["id"]].add(event["ph"])
            inside = slices[event["pid"], event["tid"]]
            assert any(start <= event["ts"] <= end for start, end in inside)
    assert all(both == {"s", "f"} for both in ends.values())


def test_trace_has_a_row_for_each_stream_and_an_arrow_for_each_event(tmp_path: Path) -> None:
    predicted = timeline.predicted(schedule(), plan())
    times = [(0.5, 1.0), (2.0, 5.0), (2.0, 3.0), (7.0, 1.0)]
    measured = timeline.observed(schedule(), times, 9.0, "by a clock", plan())
    trace.write(tmp_path / "trace.json", [predicted, measured], "net")
    data = json.loads((tmp_path / "trace.json").read_text())
    check_trace(data)
    names = [e["args"]["name"] for e in data["traceEvents"] if e["name"] == "process_name"]
    assert names == ["predicted (8.0 us)", "measured (9.0 us)"]
    assert sum(e["ph"] == "s" for e in data["traceEvents"]) == 4
    assert len({e["tid"] for e in data["traceEvents"] if e["ph"] == "X"}) == 4


def test_calls_of_the_machine_are_told_from_those_of_the_schedule() -> None:
    enqueued: list[int] = []
    calls = Calls(schedule(), enqueued.append)
    names = ["convoy_body", "vm.builtin.alloc_storage"]
    for op in schedule().ops:
        names += ["convoy.streams.on", op.symbol, "convoy.streams.record"]
    for _ in range(2):
        calls.start()
        for name in names:
            calls.watch(None, name, True, None)
            calls.watch(None, name, False, None)
    assert enqueued == [0, 1, 2, 3] * 2


def test_ops_start_when_what_they_wait_for_is_over() -> None:
    for ends, starts in (
        ([2.0, 7.0, 6.0, 9.0], [0.0, 2.0, 2.0, 7.0]),
        ([2.0, 5.0, 6.0, 9.0], [0.0, 2.0, 2.0, 6.0]),
    ):
        times = in_order(schedule(), ends)
        assert [start for start, _ in times] == starts
        assert [start + duration for start, duration in times] == ends


def test_noise_of_the_ends_does_not_turn_ops_around() -> None:
    # Op 0 seems to end last: those that follow take no time, the last of them neither.
    assert in_order(schedule(), [8.0, 7.0, 6.0, 7.5]) == [(0.0, 8.0), *[(8.0, 0.0)] * 3]
