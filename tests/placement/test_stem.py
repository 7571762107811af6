"""A whole stem against its convolution alone: what the latter leaves to TVM, and which is taken."""

from __future__ import annotations

import dataclasses
import math

import pytest
import tvm
from tvm.relax import op

import convoy
from convoy.cost import native
from convoy.cost.model import CostModel
from convoy.cost.native import SMALLEST_KERNEL_US, Leftover, leftover_us, leftovers, moving_us
from convoy.ir.candidate import Candidate
from convoy.ir.device import Device
from convoy.ir.epilogue import Epilogue
from convoy.ir.kernel_words import NATIVE
from convoy.ir.measurement import Measurement
from convoy.ir.offer import Offer, Offers
from convoy.ir.plan import Plan
from convoy.ir.stem import Stem
from convoy.ir.workload import Workload
from convoy.partition.match_graph import MatchGraph, Op, Subgraph
from convoy.placement.cover import find_cover
from convoy.placement.priced import priced

from ..graph.nets import Net
from ..sm90.stem_cases import usual

DEVICE = Device()
IMAGE, SUMS, MAXIMA = 3 * 224 * 224, 112 * 112 * 64, 56 * 56 * 64
PADDED = 4 * 224 * 224
FRONT, EPILOGUE = ("cast", "permuted", "padded"), ("bias", "relu")
OPS = (
    Op("cast", ("x",), IMAGE),
    Op("permuted", ("cast",), IMAGE),
    Op("padded", ("permuted",), PADDED),
    Op("conv", ("padded",), SUMS),
    Op("bias", ("conv",), SUMS),
    Op("relu", ("bias",), SUMS),
    Op("pool", ("relu",), MAXIMA),
)
STEM = next(usual())
CONVOLUTION = dataclasses.replace(STEM, op="fprop", stem=None)


def subgraph(name: str, ops: tuple[str, ...], workload: Workload) -> Subgraph:
    return Subgraph(name, ops, ops[-1:], workload, "conv")


WHOLE = subgraph("whole", (*FRONT, "conv", *EPILOGUE, "pool"), STEM)
UNPOOLED = subgraph("unpooled", WHOLE.ops[:-1], dataclasses.replace(STEM, stem=Stem(3)))
FUSED = subgraph("fused", ("conv", *EPILOGUE), CONVOLUTION)
BARE = subgraph("bare", ("conv",), dataclasses.replace(CONVOLUTION, epilogue=Epilogue()))
SUBGRAPHS = (WHOLE, UNPOOLED, FUSED, BARE)

FRONT_US = moving_us(4 * IMAGE + 2 * PADDED, DEVICE)
POOL_US = moving_us(2 * (SUMS + MAXIMA), DEVICE)
EPILOGUE_US = moving_us(2 * 2 * SUMS, DEVICE)


def kernels(mine: Subgraph) -> list[tuple[tuple[str, ...], float]]:
    return [(kernel.ops, pytest.approx(kernel.us)) for kernel in leftovers(mine, WHOLE, DEVICE)]


def test_kernels_in_front_and_behind() -> None:
    assert kernels(WHOLE) == []
    assert kernels(UNPOOLED) == [(("pool",), POOL_US)]
    assert kernels(FUSED) == [(FRONT, FRONT_US), (("pool",), POOL_US)]
    assert kernels(BARE) == [(FRONT, FRONT_US), ((*EPILOGUE, "pool"), EPILOGUE_US + POOL_US)]
    assert leftover_us(FUSED, WHOLE, DEVICE) == pytest.approx(FRONT_US + POOL_US)


def test_what_a_convolution_leaves_of_a_longer_one_is_one_kernel_behind() -> None:
    assert leftovers(BARE, FUSED, DEVICE) == [Leftover(EPILOGUE, pytest.approx(EPILOGUE_US))]
    assert leftovers(FUSED, FUSED, DEVICE) == [] and leftover_us(FUSED, FUSED, DEVICE) == 0.0


def test_an_operation_reads_what_its_operands_have() -> None:
    elements = {op.name: op.elements for op in OPS}
    us = native.elementwise_us(OPS[-1], elements, "float16", DEVICE)
    assert us == pytest.approx(POOL_US)
    first = native.elementwise_us(OPS[0], elements, "float32", DEVICE)
    assert first == pytest.approx(moving_us(2 * 4 * IMAGE, DEVICE)), "as many as it writes"


def chosen(
    ops: tuple[Op, ...] = OPS, subgraphs: tuple[Subgraph, ...] = SUBGRAPHS, **kernel_us: float
) -> dict[str, float]:
    """The kernels of the cheapest cover, with their times."""
    offers = {}
    for item in subgraphs:
        found = offers[item.require_workload()] = Offers(item.require_workload())
        if item.id in kernel_us:
            measured = Measurement(kernel_us=kernel_us[item.id], enqueue_us=2.0)
            found.measured.append(Offer(Candidate("cudnn", "k"), measured))
    graph = MatchGraph(ops, subgraphs, ("x",), (ops[-1].name,), backends=("cudnn",), device=DEVICE)
    cover = find_cover(priced(graph, offers))
    assert cover.exact
    launches = cover.launches
    assert sorted(name for item, _ in launches for name in item.ops) == sorted(o.name for o in ops)
    return {
        item.id: offer.measurement.kernel_us
        for item, offer in launches
        if offer.candidate.backend != NATIVE or offer.measurement.kernel_us
    }


def test_takes_the_whole_where_it_costs_less_than_the_parts() -> None:
    parts = {"fused": 4.0, "bare": 3.9}
    together = 4.0 + FRONT_US + POOL_US
    assert set(chosen(whole=together - 0.1, **parts)) == {"whole"}
    found = chosen(whole=together + 0.1, **parts)
    assert set(found) == {"native padded", "fused", "native pool"}
    assert math.fsum(found.values()) == pytest.approx(together)


def test_takes_the_image_alone_where_the_pool_makes_it_slow() -> None:
    found = chosen(whole=9.0, unpooled=5.0, fused=4.0)
    assert set(found) == {"unpooled", "native pool"}
    assert found["native pool"] == pytest.approx(POOL_US)


def test_without_a_kernel_the_parts_are_paid_for() -> None:
    assert set(chosen(fused=60.0, bare=59.0)) == {"native padded", "fused", "native pool"}
    assert FRONT_US > SMALLEST_KERNEL_US
    assert set(chosen(whole=1000.0)) == {"whole"}, "there is no choice"


class Times(CostModel):
    """A time for stems, and one for all other workloads."""

    source = "made"

    def __init__(self, stem: float) -> None:
        self._stem = stem

    def measurements(self, workload, candidates):
        us = self._stem if workload.op == "stem" else 4.0
        return [Measurement(kernel_us=us, enqueue_us=2.0, e2e_us=us + 8) for _ in candidates]


def network() -> tvm.IRModule:
    net = Net((1, 3, 224, 224))
    sums = net.relu(net.conv(net.x, 64, 7, 2, bias=True))
    pool = net.emit(op.nn.max_pool2d(sums, (3, 3), (2, 2), (1, 1)))
    return net.finish(net.conv(pool, 64, 1))


@pytest.mark.parametrize(("stem_us", "is_taken"), [(2.0, True), (40.0, False)])
def test_placement_of_a_network(stem_us: float, is_taken: bool) -> None:
    options = {"backends": ("cutlass", "hopper", "tvm"), "device": DEVICE}
    placed = convoy.place(network(), costs=Times(stem_us), **options)
    first, second = placed.plan.choices
    assert (first.workload.op, second.workload.op) == ("stem" if is_taken else "fprop", "fprop")
    plan = Plan.loads(placed.plan.dumps())
    assert plan == placed.plan == convoy.place(network(), plan=plan, **options).plan
