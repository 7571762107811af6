"""Both convolutions of an inverted residual in one kernel against a kernel for each."""

from __future__ import annotations

import pytest

import convoy
from convoy.cost.model import CostModel
from convoy.cost.native import moving_us
from convoy.ir.candidate import Candidate
from convoy.ir.device import Device
from convoy.ir.kernel_words import NATIVE
from convoy.ir.measurement import Measurement
from convoy.ir.offer import Offer, Offers
from convoy.ir.plan import Plan
from convoy.ir.workload import Workload
from convoy.normalize.normal_form import normalize
from convoy.partition.match_graph import MatchGraph
from convoy.partition.partition import partition
from convoy.placement.cover import find_cover
from convoy.placement.explain import shape_text
from convoy.placement.placement import placement_of_cover
from convoy.placement.priced import priced

from ..graph.nets import Net
from ..partition.test_expand_depthwise import block
from ..partition.test_wide_heads import Only

DEVICE = Device()
#: A kernel of TVM that adds two tensors, and takes the larger of the sum and 0.
SUM_US = moving_us(3 * 2 * 28 * 28 * 96, DEVICE)
BACKENDS = [Only("joint", "expand_depthwise"), Only("single", "fprop")]


def graph_of(residual: bool = False) -> MatchGraph:
    """An inverted residual, or its first two convolutions with a residual behind them."""
    net = Net((1, 96 if residual else 16, 28, 28))
    x = net.conv(net.x, 96, 3) if residual else net.x
    y = block(net, x, "relu", k=96)
    y = net.relu(net.add(y, x)) if residual else net.conv(y, 16, 1, bias=True)
    return partition(normalize(net.finish(y), dtype="float16"), BACKENDS)  # type: ignore[arg-type]


def kind(workload: Workload) -> str:
    if workload.op == "fprop":
        expands = workload.k == 96 and workload.r == 1
        return "depthwise" if workload.is_depthwise else "expand" if expands else "other"
    return "joint"


def offers_of(graph: MatchGraph, us: dict[str, float]) -> dict[Workload, Offers]:
    found = {}
    for workload in graph.workloads():
        found[workload] = Offers(workload)
        if kind(workload) in us:
            time = us[kind(workload)]
            measured = Measurement(kernel_us=time, enqueue_us=2.0, e2e_us=time + 8)
            name = "joint" if workload.op == "expand_depthwise" else "single"
            found[workload].measured.append(Offer(Candidate(name, "k"), measured))
    return found


def chosen(graph: MatchGraph, **us: float) -> list[tuple[str, float]]:
    """The workloads of the cheapest cover, with their times; TVM's kernels that are not free."""
    cover = find_cover(priced(graph, offers_of(graph, us)))
    assert cover.exact
    ops = sorted(name for item, _ in cover.launches for name in item.ops)
    assert ops == sorted(op.name for op in graph.ops)
    found = []
    for item, offer in cover.launches:
        native = offer.candidate.backend == NATIVE
        if not native or offer.measurement.kernel_us:
            name = "native" if native else kind(item.require_workload())
            found.append((name, offer.measurement.kernel_us))
    return found


def names(found: list[tuple[str, float]]) -> set[str]:
    return {name for name, _ in found if name != "native"}


def test_the_cheaper_cover_is_taken_without_other_costs() -> None:
    graph = graph_of()
    together = chosen(graph, joint=5.9, expand=3.0, depthwise=3.0, other=4.0)
    apart = chosen(graph, joint=6.1, expand=3.0, depthwise=3.0, other=4.0)
    assert names(together) == {"joint", "other"}
    assert names(apart) == {"expand", "depthwise", "other"}
    native = sum(us for name, us in apart if name == "native")  # the network's input
    assert sum(us for _, us in together) == pytest.approx(native + 5.9 + 4.0)
    assert sum(us for _, us in apart) == pytest.approx(native + 6.0 + 4.0)


def test_without_an_offer_it_is_not_there() -> None:
    graph = graph_of()
    assert names(chosen(graph, expand=30.0, depthwise=30.0)) == {"expand", "depthwise"}
    items = priced(graph, offers_of(graph, {"expand": 3.0, "depthwise": 3.0})).subgraphs
    assert not any(s.workload and s.workload.expansion for s in items)


@pytest.mark.parametrize("alone", [{}, {"expand": 1.0}, {"depthwise": 1.0}], ids=str)
def test_without_a_kernel_for_each_there_is_no_choice(alone: dict[str, float]) -> None:
    assert names(chosen(graph_of(), joint=1000.0, **alone)) == {"joint"}


def test_what_is_behind_it_is_paid_for() -> None:
    graph = graph_of(residual=True)
    costs = {"other": 4.0, "expand": 3.0, "depthwise": 3.0}
    together = chosen(graph, joint=4.5, **costs)
    apart = chosen(graph, joint=4.6, **costs)
    assert names(together) == {"joint", "other"}
    assert names(apart) == {"expand", "depthwise", "other"}
    added = sum(us for name, us in together if name == "native") - sum(
        us for name, us in apart if name == "native"
    )
    assert added == pytest.approx(SUM_US), "a kernel of TVM adds the residual"


def test_as_a_plan() -> None:
    graph = graph_of()
    offers = offers_of(graph, {"joint": 1.0, "expand": 3.0, "depthwise": 3.0, "other": 4.0})
    cover = find_cover(priced(graph, offers))
    plan = placement_of_cover(graph, cover, offers, "measured").plan
    assert Plan.loads(plan.dumps()) == plan
    (first, _) = plan.choices
    assert shape_text(first.workload) == "1x28x28x16 1x1 -> 96, 3x3 depthwise"


class Times(CostModel):
    """A time for both convolutions together, and one for all other workloads."""

    source = "made"

    def __init__(self, joint: float) -> None:
        self._joint = joint

    def measurements(self, workload, candidates):
        us = self._joint if workload.expansion is not None else 4.0
        return [Measurement(kernel_us=us, enqueue_us=2.0, e2e_us=us + 8) for _ in candidates]


@pytest.mark.parametrize("search", ["exact", "evolve", "greedy"])
@pytest.mark.parametrize(("saved_us", "is_taken"), [(1.0, True), (-1.0, False)])
def test_placement_of_a_network(saved_us: float, is_taken: bool, search: str) -> None:
    joint_us = 2 * 4.0 - saved_us
    net = Net((1, 16, 28, 28))
    module = net.finish(net.conv(block(net, net.x, "relu", k=96), 16, 1, bias=True))
    options = {"backends": ("cutlass", "hopper", "depthwise", "tvm"), "device": DEVICE}
    options["kernels"] = "all"
    placed = convoy.place(module, costs=Times(joint_us), search=search, **options)
    ops = [choice.workload.op for choice in placed.plan.choices]
    is_taken = is_taken and search != "greedy"
    assert ops == (["expand_depthwise", "fprop"] if is_taken else ["fprop"] * 3)
    assert placed.plan == convoy.place(module, plan=placed.plan, **options).plan
