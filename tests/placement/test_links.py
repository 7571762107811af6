"""Placement of chains: the search against brute force, and what a link is.

``CONVOY_COVER_EXAMPLES`` sets how many random graphs are tried (default 50).
"""

from __future__ import annotations

import itertools
import os
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from convoy.errors import NoCandidate
from convoy.ir.candidate import Candidate
from convoy.ir.measurement import Measurement
from convoy.ir.offer import Offer
from convoy.partition.match_graph import MatchGraph, Op, Subgraph
from convoy.placement.cover import find_cover
from convoy.placement.simulated import cover_ops, scheduled_us
from convoy.placement.solve import WIDTH
from convoy.streams.planner import single_stream

from ..helpers.synthetic import BACKENDS, random_graph, with_chains
from .test_cover_exact import check_legal, has_cycle, partitions

EXAMPLES = int(os.environ.get("CONVOY_COVER_EXAMPLES", "50"))


def is_view(graph: MatchGraph, name: str) -> bool:
    """Whether no kernel takes time for an operation."""
    covering = [s for s in graph.subgraphs if name in s.ops]
    alone = all(len(s.ops) == 1 for s in covering)
    return alone and not any(o.measurement.kernel_us for s in covering for o in s.offers)


def predecessor(graph: MatchGraph, names: list[str]) -> str | None:
    """The last operation whose kernel makes one of these values, looking through views."""
    ops = {op.name: op for op in graph.ops}
    made: set[str] = set()
    while names:
        name = names.pop()
        if name in ops:
            if is_view(graph, name):
                names += ops[name].inputs
            else:
                made.add(name)
    order = [op.name for op in graph.ops]
    return max(made, key=order.index, default=None)


def cost_of(graph: MatchGraph, launches: list[tuple[Subgraph, Offer]]) -> float:
    """Sum of the kernels' times, of links that of a link."""
    owner = {name: offer for subgraph, offer in launches for name in subgraph.ops}
    total = 0.0
    for subgraph, offer in launches:
        measured = offer.measurement
        before = owner.get(predecessor(graph, graph.reads(subgraph)) or "")
        early = before is not None and before.measurement.chained_us is not None
        linked = early and measured.chained_us is not None
        total += measured.chained_us if linked else measured.kernel_us
    return total


def least(graph: MatchGraph) -> float | None:
    """The cost of the cheapest cover, of all of them; None where there is none."""
    best = None
    for numbers in partitions(graph):
        if has_cycle(graph, numbers):
            continue
        chosen = [graph.subgraphs[number] for number in numbers]
        for offers in itertools.product(*(subgraph.offers for subgraph in chosen)):
            cost = cost_of(graph, list(zip(chosen, offers, strict=True)))
            best = cost if best is None else min(best, cost)
    return best


@pytest.mark.parametrize("width", [WIDTH, 0], ids=["cuts", "integer"])
@settings(max_examples=EXAMPLES)
@given(seed=st.integers(0, 2**32), ops=st.integers(1, 7), groups=st.integers(0, 5))
def test_equal_to_brute_force(width: int, seed: int, ops: int, groups: int) -> None:
    rng = random.Random(seed)
    graph = with_chains(rng, random_graph(rng, ops, groups))
    best = least(graph)
    if best is None:
        with pytest.raises(NoCandidate):
            find_cover(graph, "graph", BACKENDS, width=width)
        return
    cover = find_cover(graph, "graph", BACKENDS, width=width)
    check_legal(cover)
    assert cover.exact
    assert cover.total_us() == cover.optimum_us == best == cost_of(graph, cover.launches)


@settings(max_examples=EXAMPLES)
@given(seed=st.integers(0, 2**32), ops=st.integers(1, 7), groups=st.integers(0, 5))
def test_ties_cost_at_most_the_spreads(seed: int, ops: int, groups: int) -> None:
    """A tie that leaves a chain is charged with what that costs the kernel behind it."""
    rng = random.Random(seed)
    graph = with_chains(rng, random_graph(rng, ops, groups, spread=2.0))
    try:
        exact = find_cover(graph, "graph", BACKENDS, decide_ties=False)
    except NoCandidate:
        return
    cover = find_cover(graph, "graph", BACKENDS)
    check_legal(cover)
    slack = sum(measured.kernel_spread_us or 0.0 for measured in exact.measurements())
    assert exact.total_us() <= cover.total_us() <= exact.total_us() + slack + 1e-5


def chain(*times: tuple[float, float | None]) -> MatchGraph:
    """Ops in a row, each with a library's kernel of 4 us and one that takes (alone, as a link)."""
    names = [f"op{i}" for i in range(len(times))]
    ops = [Op(name, (before,)) for name, before in zip(names, ["x", *names], strict=False)]
    subgraphs = [
        Subgraph(
            name,
            (name,),
            (name,),
            offers=(
                Offer(Candidate("cudnn", "plain"), Measurement(4.0, samples=1)),
                Offer(Candidate("hopper", "own"), Measurement(us, samples=1, chained_us=chained)),
            ),
        )
        for name, (us, chained) in zip(names, times, strict=True)
    ]
    return MatchGraph(tuple(ops), tuple(subgraphs), ("x",), (names[-1],))


def test_a_chain_is_taken_where_no_link_is_faster_alone() -> None:
    """One link is slower than the library, a second one makes good for both."""
    one = find_cover(chain((5.0, 3.0)))
    assert one.backends() == {"cudnn": 1} and one.total_us() == 4.0
    three = find_cover(chain((5.0, 3.0), (5.0, 3.0), (5.0, 3.0)))
    assert three.backends() == {"hopper": 3} and three.total_us() == 11.0
    assert three.linked == [False, True, True]


def test_a_link_behind_a_library_is_none() -> None:
    """The kernel in the middle is too slow in any case."""
    cover = find_cover(chain((4.5, 3.8), (9.0, 8.0), (4.5, 3.8)))
    assert cover.backends() == {"cudnn": 3} and not any(cover.linked)


def test_only_a_graph_counts_links() -> None:
    graph = chain(*[(5.0, 3.0)] * 3)
    assert find_cover(graph, "stream").backends() == {"cudnn": 3}


@pytest.mark.parametrize(("backend", "chained", "links"), [("tvm", None, 0), ("hopper", 1.0, 1)])
def test_kernels_of_tvm_let_no_successor_start_early(
    backend: str, chained: float | None, links: int
) -> None:
    """Neither in the cover nor in its simulated schedule."""
    first = Offer(Candidate(backend, "first"), Measurement(1.5, chained_us=chained))
    own = Offer(Candidate("hopper", "own"), Measurement(5.0, samples=1, chained_us=3.0))
    graph = MatchGraph(
        (Op("a", ("x",)), Op("b", ("a",))),
        (
            Subgraph("a", ("a",), ("a",), offers=(first,)),
            Subgraph("b", ("b",), ("b",), offers=(own,)),
        ),
        ("x",),
        ("b",),
    )
    cover = find_cover(graph)
    assert sum(cover.linked) == links
    ops = cover_ops(cover)
    assert sum(op.linked for op in single_stream(ops, ()).ops) == links
    assert scheduled_us(cover) == cover.total_us() == 6.5 - 2.0 * links
