"""Ancestors, reduction and chains against brute force."""

from __future__ import annotations

import itertools

import networkx
import pytest
from graphs import graphs, reachable
from hypothesis import given, settings

from convoy.errors import InvalidOption
from convoy.ir.schedule_parts import Occupancy, Op
from convoy.streams.chains import cover
from convoy.streams.dependence import Dependences


def edges_of(depends):
    return {(before, op) for op, earlier in enumerate(depends) for before in earlier}


@given(graphs)
@settings(max_examples=60, deadline=None)
def test_ancestors_and_reduction(case) -> None:
    ops, _ = case
    depends = [op.depends for op in ops]
    graph = Dependences(depends)
    full = reachable(edges_of(depends), len(ops))
    assert [{i for i in range(len(ops)) if bits >> i & 1} for bits in graph.ancestors] == full
    kept = edges_of(graph.reduced)
    assert reachable(kept, len(ops)) == full
    for edge in kept:
        assert reachable(kept - {edge}, len(ops)) != full
    parallel = any(
        a not in full[b] and b not in full[a] for a, b in itertools.combinations(range(len(ops)), 2)
    )
    assert graph.width_exceeds_one() == parallel


@given(graphs)
@settings(max_examples=40, deadline=None)
def test_bottom_levels_are_longest_paths(case) -> None:
    ops, _ = case
    graph = Dependences([op.depends for op in ops])
    flow = networkx.DiGraph()
    flow.add_nodes_from([*range(len(ops)), "end"])
    for op in range(len(ops)):
        for after in [*graph.successors[op], "end"]:
            flow.add_edge(op, after, weight=ops[op].duration_us)
    levels = graph.bottom_levels([op.duration_us for op in ops])
    assert max(levels) == pytest.approx(networkx.dag_longest_path_length(flow))


@given(graphs)
@settings(max_examples=40, deadline=None)
def test_chains_are_paths_and_as_few_as_can_be(case) -> None:
    ops, _ = case
    graph = Dependences([op.depends for op in ops])
    chains = cover(graph, graph.bottom_levels([op.duration_us for op in ops]), ops)
    for number in set(chains):
        members = [op for op in range(len(ops)) if chains[op] == number]
        for earlier, later in itertools.pairwise(members):
            assert earlier in graph.reduced[later]
    both_sides = networkx.Graph()
    left = [("before", op) for op in range(len(ops))]
    both_sides.add_nodes_from(left)
    both_sides.add_nodes_from(("after", op) for op in range(len(ops)))
    for op, earlier in enumerate(graph.reduced):
        both_sides.add_edges_from((("before", e), ("after", op)) for e in earlier)
    matching = networkx.bipartite.hopcroft_karp_matching(both_sides, left)
    assert len(set(chains)) == len(ops) - len(matching) // 2


def test_critical_path_stays_together() -> None:
    """Of two branches behind a fork the longer one keeps the chain of what is before it."""
    graph, durations = Dependences([(), (0,), (0,), (1, 2)]), [1.0, 2.0, 9.0, 1.0]
    ops = [Op("o", "o", "native", us, Occupancy()) for us in durations]
    chains = cover(graph, graph.bottom_levels(durations), ops)
    assert chains[0] == chains[2]


def test_later_ops_are_refused() -> None:
    with pytest.raises(InvalidOption, match="op 1 that depends on"):
        Dependences([(), (1,)])
