"""A squeeze-and-excitation block in one kernel against the kernels of its parts, some of which are
TVM's."""

from __future__ import annotations

import dataclasses

import pytest
from tvm.relax import op

import convoy
from convoy.backends.registry import get
from convoy.cost import native
from convoy.cost.model import CostModel
from convoy.ir.candidate import Candidate
from convoy.ir.device import Device
from convoy.ir.epilogue import Epilogue
from convoy.ir.kernel_words import NATIVE
from convoy.ir.measurement import Measurement
from convoy.ir.offer import Offer, Offers
from convoy.ir.plan import Plan
from convoy.ir.squeeze_excite import squeeze_and_excite
from convoy.ir.workload import Workload
from convoy.normalize.forms import normal_forms
from convoy.normalize.normal_form import normalize
from convoy.partition.match_graph import MatchGraph
from convoy.partition.partition import partition
from convoy.placement.cover import Cover, find_cover
from convoy.placement.explain import shape_text
from convoy.placement.placement import placement_of_cover
from convoy.placement.priced import priced

from ..graph.nets import Net
from ..helpers.gated_images import block, dense_gates
from ..helpers.placer import Placer
from ..partition.test_wide_heads import Only

DEVICE = Device()
BACKENDS = [Only("joint", "squeeze_excite"), Only("single", "fprop")]
#: A kernel for each convolution.
APART = {"conv": 3.0, "squeeze": 2.5, "excite": 2.5}


def graph_of(n: int = 8, residual: bool = False) -> MatchGraph:
    """A block between two convolutions; with a residual and ReLU a convolution beside it."""
    net = Net((n, 16, 28, 28))
    x = net.conv(net.x, 96, bias=True)
    y = block(net, x, 16)
    y = net.relu(net.add(y, net.conv(net.x, 96, 1))) if residual else y
    module = normalize(net.finish(net.conv(y, 8, 1)), dtype="float16")
    return partition(module, BACKENDS)  # type: ignore[arg-type]


def kind(workload: Workload) -> str:
    if workload.squeeze_excite is not None:
        return "long" if workload.epilogue.residual else "block"
    if workload.h * workload.w > 1:
        return "conv"
    return "squeeze" if workload.k == 16 else "excite"


def offers_of(graph: MatchGraph, us: dict[str, float]) -> dict[Workload, Offers]:
    found = {}
    for workload in graph.workloads():
        found[workload] = Offers(workload)
        if kind(workload) in us:
            time = us[kind(workload)]
            measured = Measurement(kernel_us=time, enqueue_us=2.0, e2e_us=time + 8)
            name = "joint" if workload.op == "squeeze_excite" else "single"
            found[workload].measured.append(Offer(Candidate(name, "k"), measured))
    return found


def cover_of(graph: MatchGraph, **us: float) -> Cover:
    cover = find_cover(priced(graph, offers_of(graph, us)))
    assert cover.exact
    ops = sorted(name for item, _ in cover.launches for name in item.ops)
    assert ops == sorted(op.name for op in graph.ops)
    return cover


def chosen(cover: Cover) -> list[str]:
    """The kinds of the workloads of a cover."""
    launches = cover.launches
    mine = [s.require_workload() for s, o in launches if o.candidate.backend != NATIVE]
    return sorted(kind(workload) for workload in mine)


def apart_us(graph: MatchGraph) -> float:
    """The least time of the block with a kernel for each of its parts: TVM's mean, the first
    product, and the second with the image times it or without."""
    (w,) = {s.require_workload() for s in graph.subgraphs if s.is_alternative}
    image, gates = 2 * w.pixels * w.c, 2 * w.n * w.c
    squeeze, excite = squeeze_and_excite(w)
    mean_us = native.moving_us(image + gates, DEVICE)
    scaling_us = native.moving_us(2 * image + gates, DEVICE)
    gates_us = native.gates_us(excite, w.h * w.w)
    assert not native.is_gemv(squeeze) and gates_us is not None
    return mean_us + APART["squeeze"] + scaling_us + min(gates_us, APART["excite"])


def test_every_part_of_a_block_counts() -> None:
    """TVM's mean and multiplication beside the products."""
    graph = graph_of()
    apart, together = (cover_of(graph, **APART, **us) for us in ({}, {"block": 4.0}))
    assert "block" not in chosen(apart) and chosen(together) == ["block", "conv", "conv"]
    saved_us = apart.total_us() - together.total_us()
    assert saved_us == pytest.approx(apart_us(graph) - 4.0, abs=1e-3)


def test_gates_are_still_computed_where_the_image_is_scaled() -> None:
    """A block that nobody takes leaves TVM's kernel for its second product and the image."""
    graph = graph_of()
    apart = cover_of(graph, **APART, block=1000.0)
    (own,) = (s for s in graph.subgraphs if s.is_alternative)
    assert chosen(apart) == ["conv", "conv", "squeeze"]
    assert any(set(own.ops[-4:]) == set(s.ops) for s, _ in apart.launches)


@pytest.mark.parametrize("n", [8, 32])
@pytest.mark.parametrize("more_us", [-0.1, 0.1])
def test_a_block_is_taken_where_it_is_cheaper(n: int, more_us: float) -> None:
    graph = graph_of(n)
    found = chosen(cover_of(graph, **APART, block=apart_us(graph) + more_us))
    assert ("block" in found) == (more_us < 0)


@pytest.mark.parametrize("missing", ["squeeze", "excite"])
def test_without_a_kernel_for_each_product_there_is_no_choice(missing: str) -> None:
    """But for gates, which TVM computes where it scales the image."""
    us = {name: time for name, time in APART.items() if name != missing}
    found = chosen(cover_of(graph_of(), block=1000.0, **us))
    assert ("block" in found) == (missing == "squeeze")


@pytest.mark.parametrize(
    ("us", "wanted"),
    [
        ({"block": 4.0, "long": 5.0}, ["block", "conv", "conv", "conv"]),
        ({"block": 5.0, "long": 4.0}, ["conv", "conv", "conv", "long"]),
        ({"long": 5.0}, ["conv", "conv", "conv", "long"]),
    ],
    ids=str,
)
def test_with_a_residual_or_without(us: dict[str, float], wanted: list[str]) -> None:
    """The convolution beside it adds the block's result, or the block adds that of it."""
    assert chosen(cover_of(graph_of(residual=True), **APART, **us)) == wanted


def test_as_a_plan() -> None:
    graph = graph_of()
    offers = offers_of(graph, {**APART, "block": 4.0})
    cover = find_cover(priced(graph, offers))
    plan = placement_of_cover(graph, cover, offers, "measured").plan
    assert Plan.loads(plan.dumps()) == plan
    texts = [shape_text(choice.workload) for choice in plan.choices]
    assert "8x28x28x96 mean -> 16 -> gates" in texts and len(texts) == 3


class Times(CostModel):
    """A time for blocks, and one for all other workloads."""

    source = "made"

    def __init__(self, us: float) -> None:
        self._us = us

    def measurements(self, workload, candidates):
        us = self._us if workload.op == "squeeze_excite" else 4.0
        return [Measurement(kernel_us=us, enqueue_us=2.0, e2e_us=us + 8) for _ in candidates]


OPTIONS = {
    "backends": ("cutlass", "hopper", "depthwise", "tvm"), "device": DEVICE, "kernels": "all",
}  # fmt: skip


def network(n: int = 8) -> Net:
    """Two blocks, of convolutions and of linear layers."""
    net = Net((n, 16, 28, 28))
    x = net.conv(block(net, net.conv(net.x, 64, bias=True), 16), 32, 1, bias=True)
    vectors = net.emit(op.reshape(dense_gates(net, x, 8), (n, 32, 1, 1)))
    return net.finish(net.conv(net.emit(op.multiply(x, vectors)), 16, 1))


@pytest.mark.parametrize("search", ["exact", "evolve", "greedy"])
@pytest.mark.parametrize("us", [3.0, 30.0])
def test_placement_of_a_network(us: float, search: str) -> None:
    placed = convoy.place(network(), costs=Times(us), search=search, **OPTIONS)
    blocks = [c.workload for c in placed.plan.choices if c.workload.op == "squeeze_excite"]
    taken = us < 10 and search != "greedy"
    assert [w.squeeze_excite.channels for w in blocks] == ([16, 8] if taken else [])
    assert placed.plan == convoy.place(network(), plan=placed.plan, **OPTIONS).plan


def test_an_explanation_names_what_another_objective_takes() -> None:
    """The block by time on the device, its parts by time on the host."""

    class Enqueued(Times):
        def measurements(self, workload, candidates):
            found = super().measurements(workload, candidates)
            us = 900.0 if workload.op == "squeeze_excite" else 2.0
            return [dataclasses.replace(m, enqueue_us=us) for m in found]

    net = Net((8, 16, 28, 28))
    y = block(net, net.conv(net.x, 64, bias=True), 16)
    forms = list(normal_forms(net.finish(net.conv(y, 16, 1)), None, "float16"))
    placer = Placer(forms, [get("cutlass"), get("hopper")], DEVICE, Enqueued(4.0))
    ops = placer.explain(placer.place("stream", "exact"), "exact").explanation.ops
    assert "squeeze_excite" not in [op.workload.op for op in ops]
    ops = placer.explain(placer.place("graph", "exact"), "exact").explanation.ops
    assert [op.workload.op for op in ops].count("squeeze_excite") == 1


@pytest.mark.parametrize(
    ("n", "size", "is_taken"), [(1, 14, False), (8, 56, True), (64, 56, False)]
)
def test_without_records_it_is_taken_with_caution(n: int, size: int, is_taken: bool) -> None:
    """Not where a few small kernels take as long as it may, and not for large images."""
    net = Net((n, 16, size, size))
    y = block(net, net.conv(net.x, 96, bias=True), 16)
    placed = convoy.place(net.finish(net.conv(y, 16, 1)), costs=Unmeasured(), **OPTIONS)
    assert ("squeeze_excite" in [c.workload.op for c in placed.plan.choices]) == is_taken


class Unmeasured(CostModel):
    """The estimates of cost/unrecorded.py, as if nothing were recorded."""

    source = "made"

    def measurements(self, workload, candidates):
        from convoy.cost.unrecorded import unrecorded

        return [unrecorded(workload, candidate, DEVICE) for candidate in candidates]


def test_it_declines_what_the_kernel_does_not_compute() -> None:
    """Each product is then placed as without the pattern."""
    net = Net((8, 16, 9, 9))
    y = block(net, net.conv(net.x, 16, bias=True), 8, "tanh")
    placed = convoy.place(net.finish(net.conv(y, 16, 1)), costs=Times(1.0), **OPTIONS)
    assert not any(c.workload.op == "squeeze_excite" for c in placed.plan.choices)
    activations = [c.workload.epilogue for c in placed.plan.choices]
    assert Epilogue(bias=True, activation="tanh") in activations
