"""Kernels that are chosen for several streams, because they share the device."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from convoy.ir.candidate import Candidate
from convoy.ir.device import Device
from convoy.ir.measurement import Measurement
from convoy.ir.offer import Offer
from convoy.ir.plan import Choice, Plan
from convoy.ir.schedule_parts import Occupancy, Op
from convoy.ir.workload import Workload
from convoy.placement.concurrent import (
    Alternative,
    alternatives,
    combinations,
    descend,
    least_us,
    sharing,
    undominated,
)
from convoy.streams.planner import multi_stream
from convoy.streams.simulate import simulate

sys.path.insert(0, str(Path(__file__).parents[1] / "streams"))
from graphs import graphs

WIDE, NARROW = Occupancy(waves=1.0), Occupancy(waves=0.4)


def other(kernel: str, us: float, occupancy: Occupancy) -> Alternative:
    offer = Offer(Candidate("made", kernel), Measurement(kernel_us=us))
    return Alternative(offer, 0.0, occupancy)


def pair() -> list[Op]:
    fork = Op("fork", "fork", "native", 1.0, NARROW)
    wide = [
        Op(f"conv{i}", f"conv{i}", "offloaded", 10.0, WIDE, kernel="a:wide", depends=(0,))
        for i in range(2)
    ]
    return [fork, *wide]


def test_narrower_kernels_for_neighbours() -> None:
    schedule = multi_stream(pair(), [])
    assert {op.symbol for op in sharing(schedule)} == {"conv0", "conv1"}
    narrow = other("narrow", 12.0, NARROW)
    found = descend(schedule, {"conv0": [narrow], "conv1": [narrow]})
    assert found == {"conv0": narrow, "conv1": narrow}
    swapped = [found[o.symbol].apply(o) if o.symbol in found else o for o in pair()]
    assert swapped[1].kernel == "made:narrow"
    assert multi_stream(swapped, []).makespan_us < schedule.makespan_us - 5


def test_combinations_are_ranked_by_prediction() -> None:
    schedule = multi_stream(pair(), [])
    narrow, slow = other("narrow", 12.0, NARROW), other("slow", 15.0, NARROW)
    offered = {"conv0": [narrow, slow], "conv1": [narrow, slow]}
    found = combinations(schedule, offered, 20)
    assert len(found) == 3 * 3 - 1, "all but the kernels as they are"
    assert found[0] == {"conv0": narrow, "conv1": narrow}
    times = []
    for chosen in found:
        ops = [chosen[o.symbol].apply(o) if o.symbol in chosen else o for o in schedule.ops]
        times.append(simulate(ops, schedule.events).makespan_us)
    assert times == sorted(times)
    assert combinations(schedule, offered, 3) == found[:3]
    assert combinations(schedule, {}, 3) == []


def test_where_combinations_are_many_a_descent_finds_one() -> None:
    schedule = multi_stream(pair(), [])
    narrow = other("narrow", 12.0, NARROW)
    many = [narrow, *(other(f"c{i}", 30.0 + i, NARROW) for i in range(40))]
    found = combinations(schedule, {"conv0": many, "conv1": many}, 5)
    assert found == [{"conv0": narrow, "conv1": narrow}]


def test_undominated_are_faster_or_narrower() -> None:
    kernels = [(10.0, 1.0), (11.0, 0.6), (10.5, 3.0), (12.0, 0.6), (14.0, 0.2), (13.0, 0.7)]
    offered = [other(f"{us}", us, Occupancy(waves=waves)) for us, waves in kernels]
    assert [v.duration_us for v in undominated(offered)] == [10.0, 11.0, 14.0]
    assert undominated([]) == []


def test_slower_kernels_are_not_taken_for_nothing() -> None:
    schedule = multi_stream(pair()[:2], [])
    assert sharing(schedule) == []
    narrow = other("narrow", 12.0, NARROW)
    assert descend(schedule, {"conv0": [narrow]}) == {}


@given(graphs, st.integers(0, 10**6))
@settings(max_examples=30, deadline=None)
def test_never_worse(case, seed: int) -> None:
    ops, buffers = case
    schedule = multi_stream(ops, buffers, 4)
    offered = {
        op.symbol: [other("other", op.duration_us * (0.9 + (seed + i) % 5 / 5), NARROW)]
        for i, op in enumerate(ops)
        if op.kind == "offloaded"
    }
    found = descend(schedule, offered)
    swapped = [found[o.symbol].apply(o) if o.symbol in found else o for o in schedule.ops]
    assert simulate(swapped, schedule.events).makespan_us <= schedule.makespan_us + 1e-3
    unchanged = dataclasses.replace(schedule, ops=tuple(swapped))
    assert [o.name for o in unchanged.ops] == [o.name for o in schedule.ops]
    assert all(v in offered[s] for s, v in found.items())
    assert simulate(schedule.ops, schedule.events).makespan_us == pytest.approx(
        schedule.makespan_us, abs=1e-3
    )


@given(graphs, st.lists(st.tuples(st.floats(0.5, 2.0), st.booleans()), min_size=1, max_size=4))
@settings(max_examples=30, deadline=None)
def test_no_schedule_is_shorter_than_the_longest_path(case, others) -> None:
    """Whatever kernels are exchanged: graphs without a short path are not planned at all."""
    ops, buffers = case
    factors = {op.symbol: others[i % len(others)] for i, op in enumerate(ops)}
    offered = {
        op.symbol: Measurement(
            op.duration_us * factor, chained_us=op.duration_us * factor / 2 if chained else None
        )
        for op in ops
        for factor, chained in [factors[op.symbol]]
    }
    workload = Workload("fprop", 1, 28, 28, 64, 64, 3, 3, padding=(1, 1, 1, 1))
    choices = []
    for symbol, measurement in offered.items():
        offer = Offer(Candidate("made", "other"), measurement)
        choices.append(Choice(symbol, workload, offer, best_by_backend=(offer,)))
    least = least_us(ops, Plan("graph", Device(), tuple(choices)))
    for exchanged in (ops, [op.timed(offered[op.symbol]) for op in ops]):
        assert multi_stream(exchanged, buffers, 4).makespan_us >= least - 1e-3


def choice(*near: tuple[str, float]) -> Choice:
    def offer(kernel: str, us: float | None) -> Offer:
        return Offer(Candidate("made", kernel), Measurement(kernel_us=us))

    workload = Workload("fprop", 1, 28, 28, 64, 64, 3, 3, padding=(1, 1, 1, 1))
    first, second = offer("wide", 10.0), offer("narrow", 12.0)
    kept = tuple(offer(kernel, us) for kernel, us in near)
    best = (first, offer("unknown", None))
    return Choice("r", workload, first, second, best_by_backend=best, near=kept)


@pytest.fixture
def occupied(monkeypatch: pytest.MonkeyPatch) -> None:
    waves = {"wide": 1.0, "narrow": 0.4, "slow": 0.1, "near": 0.3}
    monkeypatch.setattr(
        "convoy.streams.occupancy.of_workload",
        lambda workload, device, candidate, others=(): Occupancy(waves=waves[candidate.kernel]),
    )


def test_alternatives_are_what_the_choice_keeps(occupied) -> None:
    """Without what has no measurement, and what is too slow by itself."""
    op = Op("r", "r", "offloaded", 10.0, WIDE, kernel="made:wide")
    found = alternatives(op, choice(("near", 13.0), ("slow", 17.0)), Device())
    assert [a.offer.candidate.kernel for a in found] == ["narrow", "near"]
    assert [a.duration_us for a in found] == [12.0, 13.0]


def test_copies_behind_a_kernel_stay(occupied) -> None:
    op = Op("r", "r", "offloaded", 14.0, WIDE, kernel="made:wide")
    assert [a.duration_us for a in alternatives(op, choice(), Device())] == [16.0]
