"""A bottleneck in one kernel against a kernel for each of its convolutions."""

from __future__ import annotations

import dataclasses

import pytest
from tvm import relax

import convoy
from convoy.backends.registry import get
from convoy.cost.model import CostModel
from convoy.ir.candidate import Candidate
from convoy.ir.device import Device
from convoy.ir.epilogue import Epilogue
from convoy.ir.kernel_words import NATIVE
from convoy.ir.measurement import Measurement
from convoy.ir.offer import Offer, Offers
from convoy.ir.plan import Plan
from convoy.ir.workload import Workload
from convoy.normalize.forms import normal_forms
from convoy.normalize.normal_form import normalize
from convoy.partition.match_graph import MatchGraph
from convoy.partition.partition import partition
from convoy.placement.cover import find_cover
from convoy.placement.explain import shape_text
from convoy.placement.placement import placement_of_cover
from convoy.placement.priced import priced

from ..graph.nets import Net
from ..helpers.placer import Placer
from ..partition.test_bottleneck import head, stage, tail
from ..partition.test_wide_heads import Only

DEVICE = Device()
BACKENDS = [Only("joint", "bottleneck"), Only("single", "fprop")]
#: A kernel for each convolution.
APART = {"head": 2.0, "conv": 3.0, "expand": 4.0}


def graph_of(blocks: int = 2) -> MatchGraph:
    """Bottlenecks whose shortcuts are their inputs."""
    net = Net((1, 256, 14, 14))
    x = net.x
    for _ in range(blocks):
        x = tail(net, head(net, x, 64), 256, x)
    return partition(normalize(net.finish(x), dtype="float16"), BACKENDS)  # type: ignore[arg-type]


def kind(workload: Workload) -> str:
    if workload.bottleneck is not None:
        return "three" if workload.bottleneck.reduce else "two"
    if workload.r == 3:
        return "conv"
    return "expand" if workload.k == 256 else "head"


def offers_of(graph: MatchGraph, us: dict[str, float]) -> dict[Workload, Offers]:
    found = {}
    for workload in graph.workloads():
        found[workload] = Offers(workload)
        if kind(workload) in us:
            time = us[kind(workload)]
            measured = Measurement(kernel_us=time, enqueue_us=2.0, e2e_us=time + 8)
            name = "joint" if workload.op == "bottleneck" else "single"
            found[workload].measured.append(Offer(Candidate(name, "k"), measured))
    return found


def chosen(graph: MatchGraph, **us: float) -> list[str]:
    """The kinds of the workloads of the cheapest cover, in program order."""
    cover = find_cover(priced(graph, offers_of(graph, us)))
    assert cover.exact
    ops = sorted(name for item, _ in cover.launches for name in item.ops)
    assert ops == sorted(op.name for op in graph.ops)
    mine = [
        item.require_workload()
        for item, offer in cover.launches
        if offer.candidate.backend != NATIVE
    ]
    return [kind(workload) for workload in mine]


@pytest.mark.parametrize(
    ("us", "wanted"),
    [
        ({"two": 6.9, "three": 8.9}, ["head", "three", "two"]),
        ({"two": 6.9, "three": 9.1}, ["head", "two", "head", "two"]),
        ({"two": 7.1, "three": 8.9}, ["head", "three", "conv", "expand"]),
        ({"two": 7.1, "three": 9.1}, ["head", "conv", "expand"] * 2),
        ({"two": 6.9}, ["head", "two", "head", "two"]),
        ({"three": 8.9}, ["head", "three", "conv", "expand"]),
        ({}, ["head", "conv", "expand"] * 2),
    ],
    ids=str,
)
def test_the_cheapest_cover_is_taken(us: dict[str, float], wanted: list[str]) -> None:
    assert sorted(chosen(graph_of(), **APART, **us)) == sorted(wanted)


@pytest.mark.parametrize("missing", ["conv", "expand"])
def test_without_a_kernel_for_each_there_is_no_choice(missing: str) -> None:
    costs = {name: us for name, us in APART.items() if name != missing}
    assert sorted(chosen(graph_of(), two=1000.0, **costs)) == ["head", "head", "two", "two"]


def test_as_a_plan() -> None:
    graph = graph_of()
    offers = offers_of(graph, {**APART, "two": 4.0, "three": 4.5})
    cover = find_cover(priced(graph, offers))
    plan = placement_of_cover(graph, cover, offers, "measured").plan
    assert Plan.loads(plan.dumps()) == plan
    texts = [shape_text(choice.workload) for choice in plan.choices]
    assert texts == [
        "1x14x14x256 1x1 -> 64",
        "1x14x14x64 3x3 -> 64, 1x1 -> 256, 1x1 -> 64",
        "1x14x14x64 3x3 -> 64, 1x1 -> 256",
    ]


class Times(CostModel):
    """A time for each kind of bottleneck, and one for all other workloads."""

    source = "made"

    def __init__(self, two: float, three: float) -> None:
        self._us = {"two": two, "three": three}

    def measurements(self, workload, candidates):
        us = self._us.get(kind(workload), 4.0)
        return [Measurement(kernel_us=us, enqueue_us=2.0, e2e_us=us + 8) for _ in candidates]


OPTIONS = {
    "backends": ("cutlass", "hopper", "depthwise", "tvm"), "device": DEVICE, "kernels": "all",
}  # fmt: skip


@pytest.mark.parametrize("search", ["exact", "evolve", "greedy"])
@pytest.mark.parametrize(
    ("us", "wanted"),
    [
        ((7.0, 10.0), ["bottleneck", "bottleneck"]),
        ((7.0, 13.0), ["bottleneck", "fprop", "bottleneck"]),
        ((9.0, 13.0), ["fprop"] * 5),
    ],
)
def test_placement_of_a_network(us: tuple[float, float], wanted: list[str], search: str) -> None:
    net = Net((1, 64, 28, 28))
    shortcut = net.max_pool(net.conv(net.x, 256, 1), 3, 1)
    y = tail(net, net.x, 256, shortcut)
    module = net.finish(tail(net, head(net, y, 64), 256, y))
    placed = convoy.place(module, costs=Times(*us), search=search, **OPTIONS)
    if search == "greedy":
        wanted = ["fprop"] * 5
    elif search == "evolve" and us == (7.0, 13.0):  # its 3x3 runs beside the shortcut
        wanted = ["fprop"] * 3 + ["bottleneck"]
    ops = [choice.workload.op for choice in placed.plan.choices]
    assert sorted(ops) == sorted(["fprop", *wanted]), "and the shortcut"
    assert placed.plan == convoy.place(module, plan=placed.plan, **OPTIONS).plan


def test_an_explanation_names_what_another_objective_takes() -> None:
    """All convolutions together by time on the device, each alone by time on the host."""

    class Enqueued(Times):
        def measurements(self, workload, candidates):
            found = super().measurements(workload, candidates)
            us = 90.0 if workload.op == "bottleneck" else 2.0
            return [dataclasses.replace(m, enqueue_us=us) for m in found]

    net = Net((1, 64, 28, 28))
    y = net.conv(net.conv(net.x, 64, bias=True), 256, 1, bias=True)
    forms = list(normal_forms(net.finish(net.conv(y, 64, 1, bias=True)), None, "float16"))
    placer = Placer(forms, [get("cutlass"), get("hopper")], DEVICE, Enqueued(7.0, 7.5))
    for objective, other, text in (
        ("stream", "graph", "bottleneck 3x3 64→64→256→64"),
        ("graph", "stream", "3x3 64→64"),
    ):
        ops = placer.explain(placer.place(objective, "exact"), "exact").explanation.ops
        changes = [dict(op.elsewhere)[other] for op in ops]
        assert len(ops) == (3 if objective == "stream" else 1)
        assert all(change.endswith(f" for {text}") for change in changes), changes


def test_it_declines_what_the_kernel_does_not_compute() -> None:
    """Each convolution is then placed as without the pattern."""
    net = Net((1, 16, 9, 9))
    y = net.emit(relax.op.nn.silu(net.conv(net.x, 16, bias=True)))
    module = net.finish(net.conv(y, 64, 1, bias=True))
    placed = convoy.place(module, costs=Times(1.0, 1.0), **OPTIONS)
    assert [c.workload.op for c in placed.plan.choices] == ["fprop", "fprop"]


def test_every_block_of_a_stage_can_be_one() -> None:
    net = Net((2, 16, 14, 14))
    placed = convoy.place(net.finish(stage(net, net.x)), costs=Times(2.0, 2.5), **OPTIONS)
    found = [c.workload.bottleneck for c in placed.plan.choices if c.workload.bottleneck]
    assert [b.reduce for b in found] == [8, 8, 0]
    relu = Epilogue(bias=True, activation="relu")
    assert {b.expand_epilogue for b in found} == {dataclasses.replace(relu, residual=True)}
