"""Evolutionary search: simulated schedules, the final round, and that a seed is never lost."""

from __future__ import annotations

import dataclasses
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from convoy.errors import CompileFailed
from convoy.ir.candidate import Candidate, make_config
from convoy.ir.measurement import Measurement
from convoy.ir.offer import Offer
from convoy.ir.workload import Workload
from convoy.partition.match_graph import MatchGraph, Op, Subgraph
from convoy.placement.cover import Cover, find_cover
from convoy.placement.evolve import Budget
from convoy.placement.refine import Refined, refine
from convoy.placement.simulated import cover_ops, scheduled_us

from ..helpers.synthetic import BACKENDS, network

SHORT = Budget(evaluations=60, patience=5)


def branches() -> MatchGraph:
    """Two convolutions that read the same input, each by a fast wide and a slower narrow kernel;
    the narrow one leaves room for the other branch."""
    workload = Workload("fprop", 1, 56, 56, 64, 128, 1, 1)
    offers = []
    for name, us, rows in (("wide", 10.0, 16), ("narrow", 12.0, 256)):
        config = make_config(kernel={"family": "x", "tile": [rows, 64, 64]}, split_k=1)
        measured = Measurement(kernel_us=us, enqueue_us=3.0, e2e_us=us + 8)
        offers.append(Offer(Candidate("cutlass", name, config), measured))
    subgraphs = tuple(
        Subgraph(op, (op,), (op,), workload, offers=tuple(offers)) for op in ("left", "right")
    )
    ops = (Op("left", ("x",)), Op("right", ("x",)))
    return MatchGraph(ops, subgraphs, ("x",), ("left", "right"))


def test_one_stream_is_the_sum_and_several_are_no_slower() -> None:
    for family in ("chain", "nasnet", "randwire"):
        cover = find_cover(network(family, 60), "graph", BACKENDS)
        assert scheduled_us(cover, 1) == pytest.approx(cover.total_us(), abs=0.01)
        assert scheduled_us(cover) <= cover.total_us() + 0.01
        for objective in ("stream", "sync"):
            other = find_cover(network(family, 60), objective, BACKENDS)
            assert scheduled_us(other) == other.total_us()


def test_ops_wait_for_what_they_read() -> None:
    graph = network("randwire", 60)
    cover = find_cover(graph, "graph", BACKENDS)
    ops = cover_ops(cover)
    assert len(ops) == len(cover.picks)
    written: dict[str, int] = {}
    for launch, (subgraph, _) in enumerate(cover.launches):
        assert ops[launch].name.split(".", 1)[1] == subgraph.id
        for value in graph.reads(subgraph):
            if value in written:
                waited, waiting = {launch}, [launch]
                while waiting:
                    for before in ops[waiting.pop()].depends:
                        if before not in waited:
                            waited.add(before)
                            waiting.append(before)
                assert written[value] in waited
        written.update(dict.fromkeys(subgraph.outputs, launch))


def test_narrow_kernels_win_where_branches_run_side_by_side() -> None:
    graph = branches()
    exact = find_cover(graph, "graph")
    assert [s.candidate.kernel for _, s in exact.launches] == ["wide", "wide"]
    found = refine(graph, "graph", ["cutlass"], budget=SHORT)
    assert "narrow" in [s.candidate.kernel for _, s in found.cover.launches]
    assert found.chosen.simulated_us < 0.8 * scheduled_us(exact)
    assert found.cover.total_us() > exact.total_us(), "slower one after the other"


def test_a_kernel_that_hides_its_tiles_is_taken_to_fill_as_much_as_the_fastest_known() -> None:
    """Else what is least known of would always seem to leave room for others."""
    graph = branches()
    hidden = Offer(Candidate("cudnn", "eng1"), Measurement(kernel_us=9.0, e2e_us=17.0))
    both = tuple(dataclasses.replace(s, offers=(*s.offers, hidden)) for s in graph.subgraphs)
    cover = find_cover(dataclasses.replace(graph, subgraphs=both), "graph")
    assert cover.backends() == {"cudnn": 2}
    wide = cover_ops(find_cover(graph, "graph"))
    assert [op.occupancy for op in cover_ops(cover)] == [op.occupancy for op in wide]
    alone = tuple(dataclasses.replace(s, offers=(hidden,)) for s in graph.subgraphs)
    (first, _) = cover_ops(find_cover(dataclasses.replace(graph, subgraphs=alone), "graph"))
    assert first.occupancy.waves > 0, "nothing is known: as with tiles of a usual size"


def decided(times: dict[str, list[float]], seconds: float = 60.0) -> Refined:
    """The final round with given samples by finalist, in the order of measuring."""
    graph = network("nasnet", 60, seed=4)
    calls: list[Cover] = []
    order = list(times)

    def measure(cover: Cover) -> list[float]:
        name = order[min(len(calls), len(order) - 1)]
        calls.append(cover)
        if not times[name]:
            raise CompileFailed(name, "something that runs")
        return times[name]

    return refine(
        graph, "graph", BACKENDS, measure,
        seconds=seconds, budget=SHORT,
    )  # fmt: skip


def test_a_finalist_must_beat_the_best_seed_by_more_than_the_spread() -> None:
    seeds = {"exact": [10.0, 10.2, 10.4], "b": [11.0] * 3, "c": [12.0] * 3, "d": [12.0] * 3}
    close = decided({**seeds, "finalist": [10.0, 10.1, 10.3]})
    assert close.chosen.name == "exact" and not close.chosen.evolved
    clear = decided({**seeds, "finalist": [9.0, 9.1, 9.2]})
    assert clear.chosen.evolved and clear.chosen.measured_us == 9.1


def test_what_does_not_run_is_no_choice() -> None:
    found = decided({"exact": [], "b": [11.0] * 3, "c": [12.0] * 3, "d": [13.0] * 3, "rest": []})
    assert found.chosen.measured_us == 11.0
    assert "something that runs" in found.finalists[0].failure
    nothing = decided({"exact": []})
    assert nothing.chosen.measured_us is None, "the simulated order is all there is"


def test_without_time_left_the_seeds_decide() -> None:
    found = decided({"exact": [10.0] * 3, "b": [9.0] * 3, "rest": [12.0] * 3}, seconds=0.0)
    assert found.chosen.measured_us == 9.0
    assert any(c.failure == "no time left" for c in found.finalists)


def test_what_gives_no_numbers_is_no_choice() -> None:
    found = decided({"exact": [float("nan")], "b": [11.0] * 3, "c": [float("inf")], "rest": [12.0]})
    assert found.chosen.measured_us == 11.0
    assert [c.failure != "" for c in found.finalists[:3]] == [True, False, True]


def test_a_finalist_is_not_begun_without_the_time_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seeds take 8 s each, four of them; 35 s leave 3 for finalists that would take as long."""
    clock = [0.0]

    class Clock:
        @staticmethod
        def monotonic() -> float:
            return clock[0]

    monkeypatch.setattr("convoy.placement.refine.time", Clock)

    def measure(cover: Cover) -> list[float]:
        clock[0] += 8.0
        return [10.0] * 3

    graph = network("nasnet", 60, seed=4)
    options = {"budget": SHORT}
    found = refine(graph, "graph", BACKENDS, measure, seconds=35.0, **options)
    seeds = [c for c in found.finalists if not c.evolved]
    later = [c for c in found.finalists if c.evolved]
    assert len(seeds) == 4 and all(c.measured_us for c in seeds)
    assert later and {c.failure for c in later} == {"no time left"} and clock[0] == 32.0
    clock[0] = 0.0
    found = refine(graph, "graph", BACKENDS, measure, seconds=41.0, **options)
    assert sum(c.measured_us is not None for c in found.finalists) == 5


@settings(max_examples=10)
@given(seed=st.integers(0, 10**6))
def test_never_one_that_measured_worse_than_its_seed(seed: int) -> None:
    graph = network("nasnet", 40, seed=seed % 5)

    def measure(cover: Cover) -> list[float]:
        rng = random.Random(f"{seed} {sorted(cover.picks)}")
        return [rng.uniform(5, 20) + rng.uniform(0, 0.5) for _ in range(5)]

    found = refine(graph, "graph", BACKENDS, measure, budget=SHORT)
    best = min(c.measured_us for c in found.finalists if not c.evolved)
    assert found.chosen.measured_us <= best
