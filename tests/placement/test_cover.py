"""Properties of covers: legality, ties, single backends, determinism, scale."""

from __future__ import annotations

import dataclasses
import json
import random
import subprocess
import sys
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from convoy.errors import InvalidMatchGraph, InvalidOption, NoCandidate
from convoy.ir.candidate import Candidate
from convoy.ir.device import Device
from convoy.ir.measurement import Measurement
from convoy.ir.objective import OBJECTIVES
from convoy.ir.offer import Offer
from convoy.partition.match_graph import Form, Match, MatchGraph, Op, split_legal
from convoy.placement.cover import find_cover, single_backend
from convoy.placement.synthetic import (
    BACKENDS,
    FAMILIES,
    FORMS,
    network,
    random_graph,
    random_transitions,
)
from convoy.placement.transition import BandwidthTransitions, NoTransitions, TableTransitions

TRANSITIONS = BandwidthTransitions()


def option(kernel: float, backend: str = "a", spread: float = 0.0, **extra: object) -> Offer:
    figure = Measurement(
        kernel_us=kernel,
        kernel_spread_us=spread,
        enqueue_us=1.0,
        enqueue_spread_us=0.0,
        e2e_us=kernel + 5,
        e2e_spread_us=spread,
    )
    return Offer(Candidate(backend, "k", **extra), figure)


def match(ops: str, outputs: str, *options: Offer, **extra: object) -> Match:
    return Match(
        ops, tuple(ops.split()), tuple(outputs.split()), options or (option(1.0),), **extra
    )


def chain(*matches: Match) -> MatchGraph:
    """conv -> relu -> pool"""
    ops = (Op("conv", ("x",)), Op("relu", ("conv",)), Op("pool", ("relu",)))
    return MatchGraph(ops, matches, (("x", Form()),), (("pool", None),))


SINGLE = (match("conv", "conv"), match("relu", "relu"), match("pool", "pool"))


# -- legal matches --------------------------------------------------------------------------------


def test_match_that_is_left_and_entered_again_is_illegal() -> None:
    graph = chain(*SINGLE)
    assert "not convex" in graph.why_illegal(match("conv pool", "conv pool"))
    with pytest.raises(InvalidMatchGraph, match="back through 'relu'"):
        chain(*SINGLE, match("conv pool", "conv pool"))


def test_value_with_other_users_must_be_written() -> None:
    ops = (Op("conv"), Op("relu", ("conv",)), Op("other", ("conv",)))
    graph = MatchGraph(ops, (), (), (("relu", None), ("other", None)))
    legal, declined = split_legal(
        graph, [match("conv relu", "relu"), match("conv relu", "conv relu")]
    )
    assert [m.outputs for m in legal] == [("conv", "relu")]
    assert "'conv' is needed outside" in declined[0][1]


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
    assert reason in chain(*SINGLE).why_illegal(match(ops, outputs))


def test_ops_out_of_order_or_twice_are_refused() -> None:
    for ops in ((Op("b", ("a",)), Op("a")), (Op("a"), Op("a"))):
        with pytest.raises(InvalidMatchGraph):
            _ = MatchGraph(ops, ()).dependencies


@given(seed=st.integers(0, 10**6))
@settings(max_examples=30)
def test_graph_round_trips_through_json(seed: int) -> None:
    graph = random_graph(random.Random(seed), 6, forms=3)
    assert MatchGraph.from_json(json.loads(json.dumps(graph.to_json()))) == graph


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
    triple = (match("w0 w", "w"), match("m1 m2", "m1 m2"), match("q t", "q t"))
    results = (("m2", None), ("t", None))
    with pytest.raises(NoCandidate):
        find_cover(MatchGraph(ops, triple, (), results), objective, width=width)
    alone = (match("q", "q", option(50.0)), match("t", "t", option(50.0)))
    cover = find_cover(MatchGraph(ops, triple + alone, (), results), objective, width=width)
    assert [m.pattern for m, _ in cover.matches].count("q t") == 0


# -- costs ----------------------------------------------------------------------------------------


def test_fusing_wins_where_it_is_cheaper_and_only_there() -> None:
    cheap = chain(*SINGLE, match("conv relu", "relu", option(1.5)))
    dear = chain(*SINGLE, match("conv relu", "relu", option(2.5)))
    assert [m.pattern for m, _ in find_cover(cheap).matches] == ["conv relu", "pool"]
    assert [m.pattern for m, _ in find_cover(dear).matches] == ["conv", "relu", "pool"]


def test_one_transition_serves_all_readers_of_a_form() -> None:
    nhwc, nchw = Form("NHWC"), Form("NCHW")
    ops = (Op("a"), Op("b", ("a",)), Op("c", ("a",)))
    matches = (
        match("a", "a", output_forms=(("a", nhwc),)),
        match("b", "b", input_forms=(("a", nchw),)),
        match("c", "c", input_forms=(("a", nchw),)),
    )
    graph = MatchGraph(ops, matches, (), (("b", None), ("c", None)))
    moves = TableTransitions({(nhwc, nchw): Measurement(kernel_us=2.0, e2e_us=3.0)})
    cover = find_cover(graph, transitions=moves)
    assert [(t.value, str(t.source), str(t.target)) for t in cover.transitions] == [
        ("a", "NHWC", "NCHW")
    ]
    assert cover.total_us() == 5.0
    with pytest.raises(NoCandidate, match="possible transitions"):
        find_cover(graph, transitions=NoTransitions())


def test_empty_layout_or_dtype_fits_any() -> None:
    moves = BandwidthTransitions()
    free = moves.between(10, Form("NHWC", "float16"), Form("", "float16"))
    assert free is not None and free.kernel_us == 0.0
    small = moves.between(10, Form("NHWC", "float16"), Form("NCHW", "float16"))
    large = moves.between(10**7, Form("NHWC", "float16"), Form("NCHW", "float32"))
    assert small is not None and large is not None
    assert large.kernel_us == pytest.approx(moves.launch_us + 6e7 / moves.bytes_per_us)
    assert small.kernel_us < large.kernel_us


def test_transitions_follow_the_bandwidth_of_the_device() -> None:
    slow = BandwidthTransitions.on(Device(memory_bandwidth=1e12))
    fast = BandwidthTransitions.on(Device(memory_bandwidth=4e12))
    figures = [t.between(10**8, Form("NHWC"), Form("NCHW")) for t in (slow, fast)]
    times = [f.kernel_us - slow.launch_us for f in figures if f and f.kernel_us]
    assert times[0] == pytest.approx(4 * times[1])


def test_failed_and_unknown_figures_are_never_placed() -> None:
    failed = Offer(Candidate("a", "bad"), Measurement(failure="illegal address"))
    unknown = Offer(Candidate("a", "new"), Measurement())
    conv = match("conv", "conv", failed, unknown, option(9.0, "b"))
    cover = find_cover(chain(conv, *SINGLE[1:]))
    assert cover.backends() == {"a": 2, "b": 1}
    with pytest.raises(NoCandidate, match="conv, which no match"):
        find_cover(chain(match("conv", "conv", failed, unknown), *SINGLE[1:]))


def test_unknown_objective() -> None:
    with pytest.raises(InvalidOption, match="graph, stream, sync"):
        find_cover(chain(*SINGLE), "fastest")


# -- ties -----------------------------------------------------------------------------------------


def test_ties_go_by_the_written_priority() -> None:
    unsure = option(5.0, "a", 0.4, deterministic=False)
    sure = option(5.3, "b", 0.4)
    cover = find_cover(chain(match("conv", "conv", unsure, sure), *SINGLE[1:]))
    assert cover.backends() == {"a": 2, "b": 1}, "deterministic first"
    assert (cover.optimum_us, cover.total_us()) == (7.0, 7.3)

    fused = match("conv relu", "relu", option(2.3))
    apart = (match("conv", "conv", option(1, "a", 0.2)), match("relu", "relu", option(1, "a", 0.2)))
    cover = find_cover(chain(*apart, SINGLE[2], fused))
    assert len(cover.picks) == 2, "then fewer launches"

    for dearer, others in ((0.0, {"a": 2, "b": 1}), (0.3, {"a": 3})):
        pair = match("conv", "conv", option(5.0, "a", 0.4), option(5.0 + dearer, "b", 0.4))
        cover = find_cover(chain(pair, *SINGLE[1:]), backend_order=["a", "b"])
        assert cover.backends() == {"a": 3}
        cover = find_cover(chain(pair, *SINGLE[1:]), backend_order=["b", "a"])
        assert cover.backends() == others, "then the cheaper, then the order of the backends"


def test_outside_the_spread_the_cheaper_stays() -> None:
    unsure = option(5.0, "a", 0.2, deterministic=False)
    cover = find_cover(chain(match("conv", "conv", unsure, option(5.3, "b", 0.2)), *SINGLE[1:]))
    assert cover.total_us() == cover.optimum_us == 7.0


def test_luck_inside_the_spread_does_not_leave_home() -> None:
    for spread, backends in ((0.4, {"a": 3}), (0.1, {"a": 2, "b": 1})):
        conv = match("conv", "conv", option(5.0, "a", spread), option(5.3, "b", spread))
        relu = match("relu", "relu", option(2.0, "a", spread), option(1.8, "b", spread))
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
        match(
            name,
            name,
            *(
                option(rng.uniform(1, 9), backend, spread)
                for backend in rng.sample(["a", "b", "c"], rng.randint(1, 3))
                for _ in range(rng.randint(1, 3))
            ),
        )
        for name in names
    ]
    graph = MatchGraph(ops, tuple(matches), (("x", Form()),), ((names[-1], None),))
    cover = find_cover(graph, objective, backend_order=["c", "a", "b"])
    for backend in "abc":
        single = single_backend(graph, [backend, *{"a", "b", "c"} - {backend}], objective)
        if {s.candidate.backend for _, s in single.matches} == {backend}:
            rounding = 1e-6 * len(names)  # each op's cost is counted in whole picoseconds
            assert cover.total_us() <= single.optimum_us + rounding


@pytest.mark.parametrize("objective", OBJECTIVES)
@settings(max_examples=25)
@given(seed=st.integers(0, 10**6))
def test_ties_cost_no_more_than_the_spreads(objective: str, seed: int) -> None:
    rng = random.Random(seed)
    graph = random_graph(rng, 9, groups=6, spread=3.0)
    transitions = random_transitions(rng, FORMS)
    try:
        plain = find_cover(graph, objective, transitions, BACKENDS, decide_ties=False)
    except NoCandidate:
        return
    cover = find_cover(graph, objective, transitions, BACKENDS)
    side = {"graph": "kernel", "sync": "e2e"}.get(objective)
    left = [graph.matches[n].options[i].measurement for n, i in set(plain.picks) - set(cover.picks)]
    slack = sum(
        getattr(figure, f"{side}_spread_us")
        if side
        else max(figure.kernel_spread_us, figure.enqueue_spread_us)
        for figure in left
    )
    assert plain.total_us() <= cover.total_us() <= plain.total_us() + slack + 1e-9

    def nondeterministic(found) -> int:
        return sum(not s.candidate.deterministic for _, s in found.matches)

    assert nondeterministic(cover) <= nondeterministic(plain)


# -- single backends and determinism --------------------------------------------------------------


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("objective", OBJECTIVES)
def test_never_worse_than_a_single_backend(family: str, objective: str) -> None:
    graph = network(family, 80, seed=11)
    best = find_cover(graph, objective, TRANSITIONS, BACKENDS)
    assert best.exact
    for name in BACKENDS:
        cover = single_backend(graph, [name, "tvm"], objective, TRANSITIONS)
        assert best.optimum_us <= cover.optimum_us
        convs = [s.candidate.backend for m, s in cover.matches if m.ops[0].startswith("conv")]
        assert set(convs) == {name}


@settings(max_examples=25)
@given(seed=st.integers(0, 10**6), objective=st.sampled_from(OBJECTIVES))
def test_never_worse_than_a_single_backend_on_any_graph(seed: int, objective: str) -> None:
    rng = random.Random(seed)
    graph = random_graph(rng, 10)
    transitions = random_transitions(rng, FORMS)
    for name in BACKENDS:
        others = [other for other in BACKENDS if other != name]
        try:
            cover = single_backend(graph, [name, *others], objective, transitions)
        except NoCandidate:
            continue
        assert find_cover(graph, objective, transitions).optimum_us <= cover.optimum_us


_PRINT_COVER = """
import sys
from convoy.placement.cover import find_cover
from convoy.placement.synthetic import network
from convoy.placement.transition import BandwidthTransitions
for family, objective in (("nasnet", "graph"), ("randwire", "stream")):
    print(find_cover(network(family, 120), objective, BandwidthTransitions()).picks)
"""


def test_same_cover_in_every_process() -> None:
    outputs = {
        subprocess.run(
            [sys.executable, "-c", _PRINT_COVER],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(outputs) == 1 and outputs.pop().count("(") > 100


def test_order_of_the_matches_does_not_change_the_cost() -> None:
    graph = network("nasnet", 100)
    turned = dataclasses.replace(graph, matches=graph.matches[::-1])
    assert (
        find_cover(graph, "graph", TRANSITIONS).optimum_us
        == find_cover(turned, "graph", TRANSITIONS).optimum_us
    )


# -- both solvers, and scale ----------------------------------------------------------------------


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("objective", ["graph", "sync"])
def test_both_solvers_agree_on_networks(family: str, objective: str) -> None:
    graph = network(family, 60, seed=2, forms=2 if family == "randwire" else 3)
    cuts = find_cover(graph, objective, TRANSITIONS, BACKENDS, False, width=10**5)
    program = find_cover(graph, objective, TRANSITIONS, BACKENDS, False, width=0)
    assert cuts.states > 0 and program.states == 0
    assert cuts.optimum_us == pytest.approx(program.optimum_us, abs=1e-5)
    assert cuts.exact and program.exact


@pytest.mark.parametrize("family", ["nasnet", "randwire"])
def test_a_thousand_ops_are_solved_exactly_in_seconds(family: str) -> None:
    graph = network(family, 1000)
    start = time.process_time()
    cover = find_cover(graph, "graph", TRANSITIONS)
    assert cover.exact
    assert time.process_time() - start < 20, "5 s on an idle core; four times that where it is busy"


def test_where_time_runs_out_the_bound_holds() -> None:
    graph = network("randwire", 300, speed=4)
    best = find_cover(graph, "stream", TRANSITIONS, decide_ties=False)
    try:
        hasty = find_cover(graph, "stream", TRANSITIONS, decide_ties=False, width=0, seconds=0.02)
    except NoCandidate:
        return
    assert hasty.bound_us <= best.optimum_us <= hasty.optimum_us
    assert 0.0 <= hasty.gap < 1.0
