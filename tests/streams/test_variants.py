"""Other kernels for ops that share the device."""

from __future__ import annotations

import dataclasses

import pytest
from graphs import graphs
from hypothesis import given, settings
from hypothesis import strategies as st

from convoy.ir.schedule import Footprint, Op
from convoy.streams.machine import Machine
from convoy.streams.planner import multi_stream
from convoy.streams.simulate import simulate
from convoy.streams.variants import Variant, combinations, crowded, refine, undominated

WIDE, NARROW = Footprint(waves=1.0), Footprint(waves=0.4)


def pair() -> list[Op]:
    fork = Op("fork", "fork", "native", 1.0, NARROW)
    wide = [
        Op(f"conv{i}", f"conv{i}", "offloaded", 10.0, WIDE, kernel="a:wide", depends=(0,))
        for i in range(2)
    ]
    return [fork, *wide]


def test_narrower_kernels_for_neighbours() -> None:
    schedule = multi_stream(pair(), [], Machine())
    assert {op.symbol for op in crowded(schedule)} == {"conv0", "conv1"}
    narrow = Variant("b:narrow", 12.0, NARROW)
    found = refine(schedule, {"conv0": [narrow], "conv1": [narrow]}, Machine())
    assert found == {"conv0": narrow, "conv1": narrow}
    swapped = [found[o.symbol].apply(o) if o.symbol in found else o for o in pair()]
    assert swapped[1].kernel == "b:narrow"
    assert multi_stream(swapped, [], Machine()).makespan_us < schedule.makespan_us - 5


def test_combinations_are_ranked_by_prediction() -> None:
    schedule = multi_stream(pair(), [], Machine())
    narrow, slow = Variant("b:narrow", 12.0, NARROW), Variant("c:slow", 15.0, NARROW)
    variants = {"conv0": [narrow, slow], "conv1": [narrow, slow]}
    found = combinations(schedule, variants, Machine(), 20)
    assert len(found) == 3 * 3 - 1, "all but the kernels as they are"
    assert found[0] == {"conv0": narrow, "conv1": narrow}
    times = []
    for chosen in found:
        ops = [chosen[o.symbol].apply(o) if o.symbol in chosen else o for o in schedule.ops]
        times.append(simulate(ops, schedule.events, Machine())[2])
    assert times == sorted(times)
    assert combinations(schedule, variants, Machine(), 3) == found[:3]
    assert combinations(schedule, {}, Machine(), 3) == []


def test_where_combinations_are_many_a_descent_finds_one() -> None:
    schedule = multi_stream(pair(), [], Machine())
    narrow = Variant("b:narrow", 12.0, NARROW)
    many = [narrow, *(Variant(f"c{i}", 30.0 + i, NARROW) for i in range(40))]
    found = combinations(schedule, {"conv0": many, "conv1": many}, Machine(), 5)
    assert found == [{"conv0": narrow, "conv1": narrow}]


def test_undominated_are_faster_or_narrower() -> None:
    figures = [(10.0, 1.0), (11.0, 0.6), (10.5, 3.0), (12.0, 0.6), (14.0, 0.2), (13.0, 0.7)]
    variants = [Variant(f"{us}", us, Footprint(waves=waves)) for us, waves in figures]
    assert [v.duration_us for v in undominated(variants)] == [10.0, 11.0, 14.0]
    assert undominated([]) == []


def test_slower_kernels_are_not_taken_for_nothing() -> None:
    schedule = multi_stream(pair()[:2], [], Machine())
    assert crowded(schedule) == []
    narrow = Variant("b:narrow", 12.0, NARROW)
    assert refine(schedule, {"conv0": [narrow]}, Machine()) == {}


@given(graphs, st.integers(0, 10**6))
@settings(max_examples=30, deadline=None)
def test_never_worse(case, seed: int) -> None:
    ops, buffers = case
    machine = Machine()
    schedule = multi_stream(ops, buffers, machine, 4)
    variants = {
        op.symbol: [Variant("other", op.duration_us * (0.9 + (seed + i) % 5 / 5), NARROW)]
        for i, op in enumerate(ops)
        if op.kind == "offloaded"
    }
    found = refine(schedule, variants, machine)
    swapped = [found[o.symbol].apply(o) if o.symbol in found else o for o in schedule.ops]
    assert simulate(swapped, schedule.events, machine)[2] <= schedule.makespan_us + 1e-3
    unchanged = dataclasses.replace(schedule, ops=tuple(swapped))
    assert [o.name for o in unchanged.ops] == [o.name for o in schedule.ops]
    assert all(v in variants[s] for s, v in found.items())
    assert simulate(schedule.ops, schedule.events, machine)[2] == pytest.approx(
        schedule.makespan_us, abs=1e-3
    )
