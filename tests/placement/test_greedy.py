"""How much to fuse: by cost, operations taken once, no root left out for lack of choice."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

from convoy.cost.native import SMALLEST_KERNEL_US, leftover_us
from convoy.ir.candidate import Decline
from convoy.ir.device import Device
from convoy.ir.epilogue import Epilogue
from convoy.ir.workload import Workload
from convoy.partition.alternatives import plausible
from convoy.partition.match_graph import MatchGraph, Op, Subgraph
from convoy.placement.greedy import fuse

DEVICE = Device()
INFINITE = float("inf")


def part(root: str, ops: str, **epilogue: object) -> Subgraph:
    workload = Workload("fprop", 8, 56, 56, 64, 256, 1, 1, epilogue=Epilogue(**epilogue))
    names = tuple(ops.split())
    return Subgraph(f"{root}#{ops}", names, names[-1:], workload, root)


def groups_of(
    subgraphs: Sequence[Subgraph], accepts: Sequence[Callable[[Workload], bool]]
) -> list[list[Subgraph]]:
    """The plausible ones, with a backend for each function."""
    ops = (Op("a"), Op("b"), Op("sum", ("a", "b")), Op("relu", ("sum",)))
    asked = [
        dataclasses.replace(
            subgraph,
            declines=tuple(
                Decline(str(i), "no")
                for i, accept in enumerate(accepts)
                if not accept(subgraph.workload)
            ),
        )
        for subgraph in subgraphs
    ]
    graph = MatchGraph(ops, tuple(asked), (), ())
    return plausible(graph, [str(i) for i in range(len(accepts))])


def sum_of_two_convolutions() -> list[Subgraph]:
    return [
        part("a", "a sum relu", residual=True, affine_relu=True),
        part("a", "a sum", residual=True),
        part("a", "a"),
        part("b", "b sum relu", residual=True, affine_relu=True),
        part("b", "b sum", residual=True),
        part("b", "b"),
    ]


def test_both_convolutions_of_a_sum_are_taken() -> None:
    groups = groups_of(sum_of_two_convolutions(), [lambda w: True])
    chosen = fuse(groups, lambda w: 5.0, DEVICE)
    assert [r.root for r in chosen] == ["a", "b"]
    covered = [op for s in chosen for op in s.ops]
    assert len(covered) == len(set(covered))


def test_each_backend_contributes_its_longest() -> None:
    takes_all = [lambda w: True, lambda w: not w.epilogue.affine_relu]
    groups = groups_of(sum_of_two_convolutions(), takes_all)
    assert [len(s.ops) for s in groups[0]] == [3, 2, 1]


def test_roots_that_nobody_accepts_are_left_out() -> None:
    assert groups_of(sum_of_two_convolutions(), [lambda w: False]) == []


def test_cost_decides_between_fusing_and_not() -> None:
    groups = groups_of(
        sum_of_two_convolutions()[:3], [lambda w: True, lambda w: not w.epilogue.affine_relu]
    )
    longest = groups[0][0]
    saved = leftover_us(groups[0][1], longest, DEVICE)
    assert saved > 1.5

    def cost(extra: float):  # type: ignore[no-untyped-def]
        return lambda w: 10.0 + extra * w.epilogue.affine_relu if w.epilogue.residual else INFINITE

    assert fuse(groups, cost(saved - 0.1), DEVICE) == [longest]
    assert fuse(groups, cost(saved + 0.1), DEVICE) == [groups[0][1]]


def test_without_figures_the_longest_is_taken() -> None:
    groups = groups_of(sum_of_two_convolutions(), [lambda w: True])
    assert len(fuse(groups, lambda w: None, DEVICE)[0].ops) == 3


def test_what_cannot_run_is_avoided() -> None:
    groups = groups_of(
        sum_of_two_convolutions()[:3], [lambda w: True, lambda w: not w.epilogue.affine_relu]
    )
    chosen = fuse(groups, lambda w: INFINITE if w.epilogue.affine_relu else 5.0, DEVICE)
    assert not chosen[0].workload.epilogue.affine_relu


def test_leftover_counts_passes_over_memory() -> None:
    whole, raw = sum_of_two_convolutions()[0], sum_of_two_convolutions()[2]
    half = sum_of_two_convolutions()[1]
    tensor_us = 8 * 56 * 56 * 256 * 2 / (0.85 * DEVICE.memory_bandwidth) * 1e6
    assert leftover_us(whole, whole, DEVICE) == 0.0
    assert abs(leftover_us(half, whole, DEVICE) - (SMALLEST_KERNEL_US + 2 * tensor_us)) < 1e-6
    assert abs(leftover_us(raw, whole, DEVICE) - (SMALLEST_KERNEL_US + 4 * tensor_us)) < 1e-6
