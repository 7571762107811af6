"""From a priced graph to a cover to a plan: how much to fuse, and what is left to TVM."""

from __future__ import annotations

import pytest

from convoy.ir.candidate import Candidate, Decline
from convoy.ir.device import Device
from convoy.ir.epilogue import Epilogue
from convoy.ir.measurement import Measurement
from convoy.ir.offer import Offer, Offers
from convoy.ir.plan import Plan
from convoy.ir.workload import Workload
from convoy.partition.match_graph import MatchGraph, Op, Subgraph
from convoy.placement.cover import find_cover
from convoy.placement.placement import placement_of_cover
from convoy.placement.priced import priced

DEVICE = Device()
# x -> conv -> add(bias) -> relu, and a second convolution that is summed into it.
OPS = (
    Op("conv", ("x",), 12544),
    Op("bias", ("conv",), 12544),
    Op("side", ("x",), 12544),
    Op("sum", ("bias", "side"), 12544),
    Op("relu", ("sum",), 12544),
    Op("softmax", ("relu",), 12544),
)


def subgraph(root: str, covered: str, **epilogue: object) -> Subgraph:
    ops = tuple(covered.split())
    workload = Workload(
        "fprop", 1, 14, 14, 64 if root == "conv" else 32, 64, 1, 1, epilogue=Epilogue(**epilogue)
    )
    return Subgraph(f"{root}_{len(ops)}", ops, ops[-1:], workload, root)


SUBGRAPHS = (
    subgraph("conv", "conv bias sum relu", bias=True, residual=True, activation="relu"),
    subgraph("conv", "conv bias", bias=True),
    subgraph("conv", "conv"),
    subgraph("side", "side sum relu", residual=True, activation="relu"),
    subgraph("side", "side"),
)


def offers_of(**kernel_us: float) -> dict[Workload, Offers]:
    found = {}
    for item in SUBGRAPHS:
        offers = found[item.workload] = Offers(item.workload)
        if item.id in kernel_us:
            cost = kernel_us[item.id]
            measured = Measurement(kernel_us=cost, enqueue_us=2.0, e2e_us=cost + 8)
            offers.measured.append(Offer(Candidate("cudnn", "k"), measured))
        else:
            offers.declines.append(Decline("cudnn", "no such epilogue"))
    return found


def placed(**kernel_us: float) -> Plan:
    offers = offers_of(**kernel_us)
    graph = MatchGraph(OPS, SUBGRAPHS, ("x",), ("softmax",), backends=("cudnn",), device=DEVICE)
    cover = find_cover(priced(graph, offers))
    return placement_of_cover(graph, cover, offers, "measured").plan


def subgraphs_of(plan: Plan) -> list[str]:
    return [choice.subgraph for choice in plan.choices]


def test_sum_of_two_convolutions_goes_where_it_saves_most() -> None:
    one = placed(conv_4=6.0, conv_2=5.0, conv_1=5.0, side_3=9.0, side_1=4.0)
    assert subgraphs_of(one) == ["side_1", "conv_4"]
    other = placed(conv_4=9.0, conv_2=5.0, conv_1=5.0, side_3=4.5, side_1=4.0)
    assert subgraphs_of(other) == ["conv_2", "side_3"]


def test_what_is_left_to_tvm_is_paid_for() -> None:
    """Without its cost the bare convolutions would win here."""
    assert subgraphs_of(placed(conv_4=6.0, conv_1=5.0, side_1=4.0)) == ["side_1", "conv_4"]
    assert subgraphs_of(placed(conv_4=60.0, conv_1=5.0, side_1=4.0)) == ["conv_1", "side_1"]


def test_root_that_nobody_runs_is_left_to_tvm() -> None:
    plan = placed(side_3=4.0)
    assert subgraphs_of(plan) == ["side_3"]
    assert plan.choices[0].chosen.candidate.backend == "cudnn"


def test_plan_keeps_declines_and_survives_json() -> None:
    plan = placed(conv_4=6.0, conv_1=5.0, side_1=4.0)
    assert Plan.loads(plan.dumps()) == plan
    assert plan.total_us() == pytest.approx(10.0)
