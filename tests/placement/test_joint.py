"""Parallel branches as one convolution: when it is chosen, what is charged, what a plan says."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import tvm
from tvm import relax

from convoy import pipeline
from convoy.cost.model import CostModel
from convoy.cost.native import NATIVE_ENQUEUE_US, SMALLEST_KERNEL_US, SYNCHRONISE_US
from convoy.ir.candidate import Candidate
from convoy.ir.measurement import Measurement
from convoy.ir.objective import OBJECTIVES
from convoy.ir.plan import Plan
from convoy.ir.workload import Workload
from convoy.normalize.forms import normal_forms
from convoy.partition.rewrite import rewrite
from convoy.placement.explanation_text import details
from convoy.placement.placement import restore

from ..helpers.placer import Placer
from ..helpers.random_cost import RandomCost
from .test_placer import DEVICE, Simple

BACKENDS = (Simple("all"),)
WIDTHS = (64, 96, 16)


class PerLaunch(CostModel):
    """Every kernel takes ``base`` microseconds and a little for each channel that it writes."""

    def __init__(self, base: float) -> None:
        self._base = base

    def measurements(
        self, workload: Workload, candidates: Sequence[Candidate]
    ) -> list[Measurement | None]:
        us = self._base + 0.001 * workload.k
        return [Measurement(us, 0.0, None, 2.0, 0.0, us + 6.0, 0.0, 1) for _ in candidates]


def inception() -> tvm.IRModule:
    import numpy as np

    rng = np.random.default_rng(0)
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((1, 192, 14, 14), "float32"))

    def conv(data: relax.Expr, k: int, r: int) -> relax.Expr:
        c = int(data.ty.shape.values[1])
        w = relax.const(rng.normal(0, 0.1, (k, c, r, r)).astype("float32"))
        return builder.emit(
            relax.op.nn.relu(builder.emit(relax.op.nn.conv2d(data, w, padding=r // 2)))
        )

    with builder.function("main", [x]):
        with builder.dataflow():
            first, second, third = (conv(x, k, 1) for k in WIDTHS)
            parts = [first, conv(second, 128, 3), conv(third, 32, 5)]
            out = builder.emit_output(relax.op.concat(parts, axis=1))
        builder.emit_func_output(out)
    return builder.get()


@pytest.fixture(scope="module")
def forms() -> list[tvm.IRModule]:
    return list(normal_forms(inception(), None, "float16"))


def splits(placed) -> list[tuple[int, ...]]:
    return [subgraph.split for subgraph in placed.subgraphs if subgraph.split]


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_joined_where_launches_are_dear(forms: list[tvm.IRModule], objective: str) -> None:
    """Three launches of 10 us against one and two copies of some 4 (14 us when synchronized)."""
    placed = Placer(forms, BACKENDS, DEVICE, PerLaunch(10.0)).place(objective, "exact")
    assert splits(placed) == [WIDTHS]
    assert len(placed.plan.choices) == 3 and not placed.native
    assert placed.plan.choices[0].workload.k == sum(WIDTHS)


def test_not_joined_where_copies_cost_more(forms: list[tvm.IRModule]) -> None:
    """A copy takes 1.3 us and more; joining all three saves two launches and costs two copies,
    joining the first with another saves one and costs one."""
    placed = Placer(forms, BACKENDS, DEVICE, PerLaunch(1.2)).place("graph", "exact")
    assert splits(placed) == [] and len(placed.plan.choices) == 5


def test_greedy_never_joins(forms: list[tvm.IRModule]) -> None:
    placed = Placer(forms, BACKENDS, DEVICE, PerLaunch(50.0)).place("graph", "greedy")
    assert splits(placed) == [] and len(placed.plan.choices) == 5


def test_copies_are_charged_but_not_to_the_candidate(forms: list[tvm.IRModule]) -> None:
    placed = Placer(forms, BACKENDS, DEVICE, PerLaunch(10.0)).place("sync", "exact")
    (joint,) = [c for c in placed.plan.choices if c.workload.k == sum(WIDTHS)]
    assert joint.chosen.measurement.e2e_us == pytest.approx(16.0 + 0.001 * sum(WIDTHS))
    apart = Placer(forms, BACKENDS, DEVICE, PerLaunch(1.2)).place("sync", "exact")
    assert splits(apart) == []
    left = [p.total_us() - p.plan.total_us() for p in (placed, apart)]
    two_copies = 2 * (NATIVE_ENQUEUE_US + SYNCHRONISE_US + SMALLEST_KERNEL_US)
    assert two_copies < left[0] - left[1] < two_copies + 0.5


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("objective", OBJECTIVES)
def test_never_worse_than_without_and_can_be_taken_over(
    forms: list[tvm.IRModule], seed: int, objective: str
) -> None:
    network_placer = Placer(forms, BACKENDS, DEVICE, RandomCost(seed))
    placed = network_placer.place(objective, "exact")
    greedy = network_placer.place(objective, "greedy")
    covered = [name for subgraph in placed.subgraphs for name in subgraph.ops]
    assert len(covered) == len(set(covered)) and not placed.native and not greedy.native
    assert placed.cover is not None
    again = restore(network_placer.graphs, Plan.loads(placed.plan.dumps()))
    assert [r.id for r in again.subgraphs] == [r.id for r in placed.subgraphs] and not again.native
    rewrite(placed.module, {c.subgraph: f"f{i}" for i, c in enumerate(placed.plan.choices)})


def test_explained_under_the_other_objectives(forms: list[tvm.IRModule]) -> None:
    """With copies that are dear when synchronized and cheap in a graph the plans differ."""

    class Mixed(PerLaunch):
        def measurements(self, workload, candidates):  # type: ignore[no-untyped-def]
            (measured, *_) = super().measurements(workload, candidates)
            assert measured is not None
            e2e = 5.0 if workload.k in WIDTHS else 40.0
            made = Measurement(measured.kernel_us, 0.0, None, 2.0, 0.0, e2e, 0.0, 1)
            return [made for _ in candidates]

    network_placer = Placer(forms, BACKENDS, DEVICE, Mixed(10.0))
    placed = network_placer.place("graph", "exact")
    explained = network_placer.explain(placed, "exact").explanation
    (joint,) = [op for op in explained.ops if op.workload.k == sum(WIDTHS)]
    assert joint.branches == 3 and joint.to_json()["branches"] == 3
    assert {op.branches for op in explained.ops if op is not joint} == {1}
    text = " ".join(" ".join(details(explained)).split())
    assert "3 branches side by side" in text
    assert "sync" in dict(joint.elsewhere) and "channels" in dict(joint.elsewhere)["sync"]


def test_workloads_of_a_search_hold_the_joint_ones() -> None:
    device = {"device": DEVICE, "backends": ("cudnn",)}
    alone = pipeline.workloads_of(inception(), search="greedy", **device)
    exact = pipeline.workloads_of(inception(), search="exact", **device)
    assert exact == pipeline.workloads_of(inception(), **device)
    joint = {w.k for w in set(exact) - set(alone)}
    assert joint == {176, 160, 80, 112} and set(alone) < set(exact)
