"""Properties of covers: legality, ties, single backends, determinism, scale."""

from __future__ import annotations

import dataclasses
import random
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from convoy.errors import InvalidMatchGraph, InvalidOption, NoCandidate
from convoy.ir.candidate import Candidate
from convoy.ir.measurement import Measurement
from convoy.ir.objective import OBJECTIVES
from convoy.ir.offer import Offer
from convoy.partition.match_graph import MatchGraph, Op, Subgraph
from convoy.placement.cover import find_cover, single_backend

from ..helpers.synthetic import BACKENDS, FAMILIES, network, random_graph


def offer(kernel: float, backend: str = "a", spread: float = 0.0, **extra: object) -> Offer:
    measured = Measurement(
        kernel_us=kernel,
        kernel_spread_us=spread,
        enqueue_us=1.0,
        enqueue_spread_us=0.0,
        e2e_us=kernel + 5,
        e2e_spread_us=spread,
    )
    return Offer(Candidate(backend, "k", **extra), measured)


def subgraph(ops: str, outputs: str, *offers: Offer) -> Subgraph:
    return Subgraph(ops, tuple(ops.split()), tuple(outputs.split()), offers=offers or (offer(1.0),))


def chain(*subgraphs: Subgraph) -> MatchGraph:
    """conv -> relu -> pool"""
    ops = (Op("conv", ("x",)), Op("relu", ("conv",)), Op("pool", ("relu",)))
    return MatchGraph(ops, subgraphs, ("x",), ("pool",))


SINGLE = (subgraph("conv", "conv"), subgraph("relu", "relu"), subgraph("pool", "pool"))


# -- legal matches --------------------------------------------------------------------------------


def test_match_that_is_left_and_entered_again_is_illegal() -> None:
    graph = chain(*SINGLE)
    assert "not convex" in graph.why_illegal(subgraph("conv pool", "conv pool"))
    with pytest.raises(InvalidMatchGraph, match="back through 'relu'"):
        chain(*SINGLE, subgraph("conv pool", "conv pool"))


def test_value_with_other_users_must_be_written() -> None:
    ops = (Op("conv"), Op("relu", ("conv",)), Op("other", ("conv",)))
    graph = MatchGraph(ops, (), (), ("relu", "other"))
    silent, writing = subgraph("conv relu", "relu"), subgraph("conv relu", "conv relu")
    assert graph.legal([silent, writing]) == (writing,)
    assert "'conv' is needed outside" in graph.why_illegal(silent)


@pytest.mark.parametrize(
    ("ops", "outputs", "reason"),
    [
        ("conv nothing", "conv", "no op 'nothing'"),
        ("conv", "relu", "does not cover"),
        ("conv conv", "conv", "one twice"),
        ("", "", "covers no op"),
        ("pool", "", "'pool' is needed outside"),
    ],
)
def test_other_illegal_matches(ops: str, outputs: str, reason: str) -> None:
    assert reason in chain(*SINGLE).why_illegal(subgraph(ops, outputs))


def test_ops_out_of_order_or_twice_are_refused() -> None:
    for ops in ((Op("b", ("a",)), Op("a")), (Op("a"), Op("a"))):
        with pytest.raises(InvalidMatchGraph):
            _ = MatchGraph(ops, ()).dependencies


# -- cycles ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("width", [256, 0])
@pytest.mark.parametrize("objective", OBJECTIVES)
def test_three_matches_that_wait_for_each_other(objective: str, width: int) -> None:
    """W = {w0, w}, M = {m1, m2} and T = {t, q} are convex each and in pairs without a cycle:
    w reads m1, t reads w, m2 reads q. Only an expensive match breaks the circle."""
    ops = (
        Op("w0"),
        Op("m1"),
        Op("q"),
        Op("w", ("w0", "m1")),
        Op("m2", ("q",)),
        Op("t", ("w",)),
    )
    triple = (subgraph("w0 w", "w"), subgraph("m1 m2", "m1 m2"), subgraph("q t", "q t"))
    results = ("m2", "t")
    with pytest.raises(NoCandidate):
        find_cover(MatchGraph(ops, triple, (), results), objective, width=width)
    alone = (subgraph("q", "q", offer(50.0)), subgraph("t", "t", offer(50.0)))
    cover = find_cover(MatchGraph(ops, triple + alone, (), results), objective, width=width)
    assert [s.id for s, _ in cover.launches].count("q t") == 0


# -- costs ----------------------------------------------------------------------------------------


def test_fusing_wins_where_it_is_cheaper_and_only_there() -> None:
    cheap = chain(*SINGLE, subgraph("conv relu", "relu", offer(1.5)))
    dear = chain(*SINGLE, subgraph("conv relu", "relu", offer(2.5)))
    assert [s.id for s, _ in find_cover(cheap).launches] == ["conv relu", "pool"]
    assert [s.id for s, _ in find_cover(dear).launches] == ["conv", "relu", "pool"]


def test_failed_and_unmeasured_candidates_are_never_placed() -> None:
    failed = Offer(Candidate("a", "bad"), Measurement(failure="illegal address"))
    unknown = Offer(Candidate("a", "new"), Measurement())
    conv = subgraph("conv", "conv", failed, unknown, offer(9.0, "b"))
    cover = find_cover(chain(conv, *SINGLE[1:]))
    assert cover.backends() == {"a": 2, "b": 1}
    with pytest.raises(NoCandidate, match="conv, which no measured candidate"):
        find_cover(chain(subgraph("conv", "conv", failed, unknown), *SINGLE[1:]))


def test_unknown_objective() -> None:
    with pytest.raises(InvalidOption, match="graph, stream, sync"):
        find_cover(chain(*SINGLE), "fastest")


# -- ties -----------------------------------------------------------------------------------------


def test_ties_go_by_the_written_priority() -> None:
    unsure = offer(5.0, "a", 0.4, deterministic=False)
    sure = offer(5.3, "b", 0.4)
    cover = find_cover(chain(subgraph("conv", "conv", unsure, sure), *SINGLE[1:]))
    assert cover.backends() == {"a": 2, "b": 1}, "deterministic first"
    assert (cover.optimum_us, cover.total_us()) == (7.0, 7.3)

    fused = subgraph("conv relu", "relu", offer(2.3))
    apart = (
        subgraph("conv", "conv", offer(1, "a", 0.2)),
        subgraph("relu", "relu", offer(1, "a", 0.2)),
    )
    cover = find_cover(chain(*apart, SINGLE[2], fused))
    assert len(cover.picks) == 2, "then fewer launches"

    for dearer, others in ((0.0, {"a": 2, "b": 1}), (0.3, {"a": 3})):
        pair = subgraph("conv", "conv", offer(5.0, "a", 0.4), offer(5.0 + dearer, "b", 0.4))
        cover = find_cover(chain(pair, *SINGLE[1:]), backend_order=["a", "b"])
        assert cover.backends() == {"a": 3}
        cover = find_cover(chain(pair, *SINGLE[1:]), backend_order=["b", "a"])
        assert cover.backends() == others, "then the cheaper, then the order of the backends"


def test_outside_the_spread_the_cheaper_stays() -> None:
    unsure = offer(5.0, "a", 0.2, deterministic=False)
    cover = find_cover(chain(subgraph("conv", "conv", unsure, offer(5.3, "b", 0.2)), *SINGLE[1:]))
    assert cover.total_us() == cover.optimum_us == 7.0


def test_luck_inside_the_spread_does_not_leave_home() -> None:
    for spread, backends in ((0.4, {"a": 3}), (0.1, {"a": 2, "b": 1})):
        conv = subgraph("conv", "conv", offer(5.0, "a", spread), offer(5.3, "b", spread))
        relu = subgraph("relu", "relu", offer(2.0, "a", spread), offer(1.8, "b", spread))
        cover = find_cover(chain(conv, relu, SINGLE[2]), backend_order=["b", "a"])
        assert cover.backends() == backends
        assert cover.optimum_us == pytest.approx(7.8)
        assert cover.total_us() == pytest.approx(8.0 if backends == {"a": 3} else 7.8)


@pytest.mark.parametrize("objective", ["graph", "sync"])
@settings(max_examples=60)
@given(seed=st.integers(0, 10**6), spread=st.floats(0.0, 4.0))
def test_ties_are_never_dearer_than_the_best_single_backend(
    objective: str, seed: int, spread: float
) -> None:
    rng = random.Random(seed)
    names = [f"op{i}" for i in range(rng.randint(1, 12))]
    ops = tuple(Op(name, (names[i - 1] if i else "x",)) for i, name in enumerate(names))
    matches = [
        subgraph(
            name,
            name,
            *(
                offer(rng.uniform(1, 9), backend, spread)
                for backend in rng.sample(["a", "b", "c"], rng.randint(1, 3))
                for _ in range(rng.randint(1, 3))
            ),
        )
        for name in names
    ]
    graph = MatchGraph(ops, tuple(matches), ("x",), (names[-1],))
    cover = find_cover(graph, objective, backend_order=["c", "a", "b"])
    for backend in "abc":
        single = single_backend(graph, [backend, *{"a", "b", "c"} - {backend}], objective)
        if {o.candidate.backend for _, o in single.launches} == {backend}:
            rounding = 1e-6 * len(names)  # each op's cost is counted in whole picoseconds
            assert cover.total_us() <= single.optimum_us + rounding


@pytest.mark.parametrize("objective", OBJECTIVES)
@settings(max_examples=25)
@given(seed=st.integers(0, 10**6))
def test_ties_cost_no_more_than_the_spreads(objective: str, seed: int) -> None:
    rng = random.Random(seed)
    graph = random_graph(rng, 9, groups=6, spread=3.0)
    try:
        plain = find_cover(graph, objective, BACKENDS, decide_ties=False)
    except NoCandidate:
        return
    cover = find_cover(graph, objective, BACKENDS)
    side = {"graph": "kernel", "sync": "e2e"}.get(objective)
    left = [
        graph.subgraphs[n].offers[i].measurement for n, i in set(plain.picks) - set(cover.picks)
    ]
    slack = sum(
        getattr(measured, f"{side}_spread_us")
        if side
        else max(measured.kernel_spread_us, measured.enqueue_spread_us)
        for measured in left
    )
    assert plain.total_us() <= cover.total_us() <= plain.total_us() + slack + 1e-9

    def nondeterministic(found) -> int:
        return sum(not o.candidate.deterministic for _, o in found.launches)

    assert nondeterministic(cover) <= nondeterministic(plain)


# -- single backends and determinism --------------------------------------------------------------


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("objective", OBJECTIVES)
def test_never_worse_than_a_single_backend(family: str, objective: str) -> None:
    graph = network(family, 80, seed=11)
    best = find_cover(graph, objective, BACKENDS)
    assert best.exact
    for name in BACKENDS:
        cover = single_backend(graph, [name, "tvm"], objective)
        assert best.optimum_us <= cover.optimum_us
        convs = [o.candidate.backend for s, o in cover.launches if s.ops[0].startswith("conv")]
        assert set(convs) == {name}


@settings(max_examples=25)
@given(seed=st.integers(0, 10**6), objective=st.sampled_from(OBJECTIVES))
def test_never_worse_than_a_single_backend_on_any_graph(seed: int, objective: str) -> None:
    rng = random.Random(seed)
    graph = random_graph(rng, 10)
    for name in BACKENDS:
        others = [other for other in BACKENDS if other != name]
        try:
            cover = single_backend(graph, [name, *others], objective)
        except NoCandidate:
            continue
        assert find_cover(graph, objective).optimum_us <= cover.optimum_us


HELPERS = Path(__file__).resolve().parents[1] / "helpers"
_PRINT_COVER = """
import sys
from convoy.placement.cover import find_cover
from synthetic import network
for family, objective in (("nasnet", "graph"), ("randwire", "stream")):
    print(find_cover(network(family, 120), objective).picks)
"""


def test_same_cover_in_every_process() -> None:
    outputs = {
        subprocess.run(
            [sys.executable, "-c", _PRINT_COVER],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join([str(HELPERS), *sys.path])},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(outputs) == 1 and outputs.pop().count("(") > 100


def test_order_of_the_subgraphs_does_not_change_the_cost() -> None:
    graph = network("nasnet", 100)
    turned = dataclasses.replace(graph, subgraphs=graph.subgraphs[::-1])
    assert find_cover(graph, "graph").optimum_us == find_cover(turned, "graph").optimum_us


# -- both solvers, and scale ----------------------------------------------------------------------


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("objective", ["graph", "sync"])
def test_both_solvers_agree_on_networks(family: str, objective: str) -> None:
    graph = network(family, 60, seed=2)
    cuts = find_cover(graph, objective, BACKENDS, False, width=10**5)
    program = find_cover(graph, objective, BACKENDS, False, width=0)
    assert cuts.states > 0 and program.states == 0
    assert cuts.optimum_us == pytest.approx(program.optimum_us, abs=1e-5)
    assert cuts.exact and program.exact


@pytest.mark.parametrize("family", ["nasnet", "randwire"])
def test_a_thousand_ops_are_solved_exactly_with_few_states(family: str) -> None:
    """The time of the search is that of its states: a few for each op."""
    graph = network(family, 1000)
    cover = find_cover(graph, "graph")
    assert cover.exact
    assert cover.states < 20 * len(graph.ops)


def test_where_time_runs_out_the_bound_holds() -> None:
    graph = network("randwire", 300, speed=4)
    best = find_cover(graph, "stream", decide_ties=False)
    try:
        hasty = find_cover(graph, "stream", decide_ties=False, width=0, seconds=0.02)
    except NoCandidate:
        return
    assert hasty.bound_us <= best.optimum_us <= hasty.optimum_us
    assert 0.0 <= hasty.gap < 1.0
