"""The match graph of a module: its operations, subgraphs, and who declines them."""

from __future__ import annotations

from collections.abc import Sequence

from convoy.backends.base import Backend, Binary
from convoy.ir.candidate import Candidate, Decline
from convoy.ir.device import Device
from convoy.ir.workload import Workload
from convoy.normalize.normal_form import normalize
from convoy.partition.match_graph import MatchGraph
from convoy.partition.partition import partition
from convoy.partition.subgraphs import find_subgraphs

from ..graph.nets import Net


class Plain(Backend):
    """Takes what has no activation; notes what it is asked for."""

    name = "plain"

    def __init__(self) -> None:
        self.asked: list[Workload] = []

    def accepts(self, workload: Workload, device: Device) -> Decline | None:
        self.asked.append(workload)
        if workload.epilogue.activation != "none":
            return Decline(self.name, "an activation")
        return None

    def propose(self, workload: Workload, device: Device) -> Sequence[Candidate] | Decline:
        raise NotImplementedError

    def build(self, workload: Workload, candidate: Candidate, device: Device) -> Binary:
        raise NotImplementedError


def graph_of(backends: Sequence[Backend]) -> MatchGraph:
    """Two equal branches of a convolution and relu, added; the input is returned as well."""
    net = Net((1, 4, 6, 6))
    sides = [net.relu(net.conv(net.x, 8, 3, bias=True)) for _ in range(2)]
    return partition(normalize(net.finish(net.add(*sides), net.x)), backends)


def test_operations_and_subgraphs_are_those_of_the_module() -> None:
    graph = graph_of([])
    assert list(graph.subgraphs) == find_subgraphs(graph.module)
    assert len(graph.inputs) == 1
    names = {op.name for op in graph.ops}
    assert set(graph.results) <= names, "an input that is a result is none of an operation"
    covered = {name for subgraph in graph.subgraphs for name in subgraph.ops}
    assert not any(op.moved_bytes for op in graph.ops if op.name in covered)


def test_each_workload_is_asked_for_once_and_declines_stay_with_it() -> None:
    backend = Plain()
    graph = graph_of([backend])
    assert graph.backends == ("plain",)
    assert len(backend.asked) == len(set(backend.asked)) == len(graph.workloads())
    for subgraph in graph.subgraphs:
        declines = subgraph.require_workload().epilogue.activation != "none"
        assert [d.reason for d in subgraph.declines] == ["an activation"] * declines
        assert subgraph.accepted_by("plain") is not declines
    assert {subgraph.accepted_by("plain") for subgraph in graph.subgraphs} == {True, False}
