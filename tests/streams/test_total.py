"""The predicted time of a network: that of its schedule, with every kernel of the module in it."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tvm import relax

from convoy import relay
from convoy.graph.function import bindings_of, main_function
from convoy.ir.device import Device
from convoy.ir.measurement import Measurement
from convoy.ir.offer import Offer
from convoy.ir.plan import Plan
from convoy.ir.schedule import Schedule
from convoy.ir.schedule_parts import Occupancy, Op
from convoy.lower.lowered import Lowered
from convoy.lower.target import cuda_target
from convoy.pipeline import place, predict_schedule
from convoy.placement import explain
from convoy.placement.placement import Placement
from convoy.relay.convert import to_relax
from convoy.report import html, timeline
from convoy.streams.costs import GRAPH, REPLAY
from convoy.streams.planner import multi_stream, single_stream
from convoy.streams.simulate import simulate

#: A grouped convolution that no backend takes is left to TVM, as the pool is.
TEXT = """#[version = "0.0.5"]
def @main(%data: Tensor[(3, 64, 20, 20), float32], %v: Tensor[(64, 64, 3, 3), float32],
          %w: Tensor[(72, 64, 1, 1), float32], %g: Tensor[(64, 2, 3, 3), float32]) {
  %0 = nn.relu(nn.conv2d(%data, %v, padding=[1, 1, 1, 1], channels=64, kernel_size=[3, 3]));
  %1 = nn.conv2d(%0, %g, padding=[1, 1, 1, 1], groups=32, channels=64, kernel_size=[3, 3]);
  %2 = nn.max_pool2d(%1, pool_size=[2, 2], strides=[2, 2]);
  nn.softmax(nn.conv2d(%2, %w, padding=[0, 0, 0, 0], channels=72, kernel_size=[1, 1]), axis=1)
}
"""
SOURCES = ("measured", "recorded", "estimated", "unknown")


@st.composite
def ops(draw: st.DrawFn) -> list[Op]:
    found: list[Op] = []
    for i in range(draw(st.integers(1, 12))):
        before = draw(st.sets(st.integers(0, i - 1), max_size=3)) if i else set()
        source = draw(st.sampled_from(SOURCES))
        us = 0.0 if source == "unknown" else draw(st.floats(1.0, 50.0))
        waves = draw(st.floats(0.01, 4.0))
        kind = draw(st.sampled_from(("native", "offloaded")))
        depends = tuple(sorted(before))
        found.append(
            Op(f"k#{i}", f"k{i}", kind, us, Occupancy(waves=waves), source=source, depends=depends)
        )
    return found


@given(ops(), st.integers(1, 4))
def test_total_is_the_makespan_of_the_simulated_streams(found: list[Op], streams: int) -> None:
    schedule = multi_stream(found, (), streams) if streams > 1 else single_stream(found, ())
    total = schedule.total
    assert total.us == pytest.approx(
        simulate(schedule.ops, schedule.events, GRAPH).makespan_us, abs=1e-3
    )
    assert total.us == max(op.end_us for op in schedule.ops) or schedule.streams > 1
    assert total.kernels == len(found)
    for name, count in (("estimated", total.estimated), ("unknown", total.untimed)):
        assert count == sum(op.source == name for op in found)
    assert Schedule.loads(schedule.dumps()).total == total


@pytest.fixture(scope="module")
def options(tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    records: Path = tmp_path_factory.mktemp("records") / "own.jsonl"
    return {"device": Device(), "records": records, "backends": ("cutlass", "tvm")}


@pytest.fixture(scope="module")
def placed(options: dict[str, object]) -> Placement:
    return place(to_relax(relay.parse(TEXT)), **options)


def calls_of(placement: Placement) -> list[str]:
    """What the lowered network calls, in program order."""
    lowered = Lowered.of(placement.rewritten(), cuda_target(placement.plan.device))
    found = []
    for binding in bindings_of(main_function(lowered.calls)[1]):
        if isinstance(binding.value, relax.Call):
            callee = binding.value.op
            if isinstance(callee, relax.GlobalVar):
                found.append(str(callee.name_hint))
            elif isinstance(callee, relax.ExternFunc):
                found.append(str(callee.global_symbol))
    return found


def test_every_kernel_of_the_module_is_there_once(placed: Placement) -> None:
    schedule = predict_schedule(placed, 1)
    assert sorted(op.symbol for op in schedule.ops) == sorted(calls_of(placed))
    assert all(op.duration_us > 0 for op in schedule.ops)
    assert schedule.total.kernels > len(placed.plan.choices) and not schedule.total.untimed


def test_table_summary_and_report_have_the_same_total(placed: Placement) -> None:
    schedule, plan = predict_schedule(placed, 1), placed.plan
    table = explain.table(plan, schedule, most=None)
    assert table.rows[0][:3] == ["start of the graph", table.rows[0][1], f"{REPLAY.start_us:.2f}"]
    assert len(table.rows) == 1 + len(schedule.ops)
    assert sum(float(row[2]) for row in table.rows) == pytest.approx(schedule.total.us, abs=0.1)
    assert f"predicted {schedule.total.us:.0f} us" in explain.summary(plan, schedule)
    assert timeline.predicted(schedule, plan).makespan_us == schedule.total.us
    assert explain.predicted_us(plan, schedule, "graph") == schedule.total.us
    assert explain.predicted_us(plan, schedule, "sync") > schedule.total.us
    tiles = html._tiles(html.Report("x", plan, schedule), schedule, timeline.predicted(schedule))
    assert tiles[0][:2] == ("predicted", f"{schedule.total.us:.1f} us")


def test_estimates_are_counted(placed: Placement) -> None:
    schedule = predict_schedule(placed, 1)
    assert placed.plan.source == "predicted"
    assert schedule.total.estimated == len(schedule.ops)
    assert f"({len(schedule.ops)} estimated)" in str(schedule.total)
    first, *others = placed.plan.choices
    measured = Offer(first.chosen.candidate, Measurement(kernel_us=5.0, samples=20))
    plan = dataclasses.replace(
        placed.plan,
        source="measured",
        choices=(dataclasses.replace(first, chosen=measured), *others),
    )
    again = predict_schedule(dataclasses.replace(placed, plan=plan), 1)
    assert again.total.estimated == len(schedule.ops) - 1
    assert plan.estimated() == others and not plan.untimed()


def test_a_plan_alone_says_what_it_lacks(options: dict[str, object]) -> None:
    nothing: Plan = place(to_relax(relay.parse(TEXT)), costs="recorded", **options).plan
    total = timeline.sequential(nothing).total
    assert total.untimed == len(nothing.choices) == len(nothing.untimed()) and total.us == 0.0
    assert "2 without a time" in str(total)
