"""Links of chains in schedules: which launches start early, and what that is worth."""

from __future__ import annotations

import dataclasses

import pytest

from convoy.ir.candidate import Candidate
from convoy.ir.device import Device
from convoy.ir.measurement import Measurement
from convoy.ir.offer import Offer
from convoy.ir.plan import Choice, Plan
from convoy.ir.schedule import Schedule
from convoy.ir.schedule_parts import Event, Occupancy, Op
from convoy.ir.workload import Workload
from convoy.streams import chains, durations
from convoy.streams.costs import EAGER, GRAPH
from convoy.streams.dependence import Dependences
from convoy.streams.planner import multi_stream, single_stream
from convoy.streams.simulate import Layout, linked, simulate

NARROW = Occupancy(waves=0.1)


def op(
    name: str,
    us: float = 5.0,
    chained: float | None = None,
    depends: tuple[int, ...] = (),
    stream: int = 0,
) -> Op:
    return Op(name, name, "offloaded", us, NARROW, stream, depends=depends, chained_us=chained)


def test_only_what_follows_an_early_kernel_is_a_link() -> None:
    ops = [
        op("first", chained=3.0),
        op("second", chained=3.0, depends=(0,)),
        op("library", depends=(1,)),
        op("behind", chained=3.0, depends=(2,)),
        op("last", chained=3.0, depends=(3,)),
    ]
    schedule = single_stream(ops, ())
    assert [o.linked for o in schedule.ops] == [False, True, False, False, True]
    assert schedule.makespan_us == schedule.single_us == 5 + 3 + 5 + 5 + 3
    assert [o.scheduled_us for o in schedule.ops] == [5, 3, 5, 5, 3]


def test_links_behind_events() -> None:
    """In a graph what follows early kernels alone starts early, those of other streams too."""
    ops = [
        op("a", chained=3.0),
        op("b", chained=3.0, depends=(0,)),
        op("c", chained=3.0, depends=(0,), stream=1),
        op("d", chained=3.0, depends=(1, 2)),
    ]
    events = [Event(0, 2), Event(2, 3)]
    edges = [(event.record, event.wait) for event in events]
    both = Layout.of([0, 0, 1, 0], edges)
    assert linked(ops, both) == [False, True, True, True]
    assert linked(ops, both, EAGER) == [False, True, False, False]
    assert linked(ops, Layout.of([0] * 4, ())) == [False, True, True, True]
    library = [*ops[:2], dataclasses.replace(ops[2], chained_us=None), ops[3]]
    assert linked(library, both) == [False, True, False, False]
    start, end, makespan = simulate(ops, events)
    assert start[2] == start[1] + GRAPH.cross_us
    assert end[2] - start[2] >= 3.0 and end[3] - start[3] == 3.0
    assert makespan == start[3] + 3.0 == end[2] + GRAPH.cross_us + 3.0


def test_of_two_successors_the_link_stays_in_the_chain() -> None:
    """Both have the same path behind them; one saves 2 us behind the first op."""
    for link in (1, 2):
        ops = [op("a", chained=3.0), op("b", depends=(0,)), op("c", depends=(0,))]
        ops[link] = dataclasses.replace(ops[link], chained_us=3.0)
        graph = Dependences([o.depends for o in ops])
        found = chains.cover(graph, graph.bottom_levels([o.duration_us for o in ops]), ops)
        assert found[0] == found[link] != found[3 - link]


def test_a_chain_that_pays_stays_on_one_stream() -> None:
    """Three ops that could run side by side: crossing to another stream takes longer than all of
    them as links on the first one."""
    ops = [op(f"k{i}", 5.0, 0.1, depends=(0,) if i else ()) for i in range(4)]
    assert multi_stream(ops, ()).streams == 1
    assert multi_stream(ops, ()).makespan_us == pytest.approx(5.3)
    libraries = [dataclasses.replace(o, chained_us=None) for o in ops]
    assert multi_stream(libraries, ()).streams > 1


def test_schedules_of_earlier_versions_have_no_links() -> None:
    schedule = single_stream([op("a", chained=3.0), op("b", chained=3.0, depends=(0,))], ())
    assert Schedule.loads(schedule.dumps()) == schedule
    data = schedule.to_json()
    for entry in data["ops"]:  # type: ignore[attr-defined]
        entry["early"] = True
    assert Schedule.from_json(data) == schedule
    for entry in data["ops"]:  # type: ignore[attr-defined]
        del entry["early"], entry["chained_us"], entry["linked"]
    assert not any(o.linked or o.early for o in Schedule.from_json(data).ops)


def test_the_plan_tells_which_kernels_start_early() -> None:
    workload = Workload("fprop", 1, 14, 14, 256, 256, 3, 3, padding=(1, 1, 1, 1))
    offer = Offer(Candidate("hopper", "k"), Measurement(6.0, cold_us=7.0, chained_us=4.5))
    plan = Plan("graph", Device(), (Choice("conv", workload, offer),))
    ops = [Op("0", "pool", "native", 2.0), Op("1", "convoy_0_fprop", "offloaded", 9.0)]
    pool, conv = durations.from_plan(ops, plan)
    assert (pool.early, pool.chained_us, pool.duration_us) == (False, None, 2.0)
    assert conv.early and conv.duration_us == pytest.approx(6.55)
    assert conv.chained_us == pytest.approx(4.5)
