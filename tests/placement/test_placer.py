"""One network placed in several ways: searches, costs, plans taken over, explanations."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import tvm
from tvm import relax

import convoy
from convoy.backends.base import Backend, Binary
from convoy.cost.measured import MeasuredCost
from convoy.errors import InvalidOption
from convoy.ir.candidate import Candidate, Decline
from convoy.ir.device import Device
from convoy.ir.measurement import Measurement
from convoy.ir.objective import OBJECTIVES
from convoy.ir.plan import Plan
from convoy.ir.workload import Workload
from convoy.normalize.forms import normal_forms
from convoy.partition.rewrite import rewrite
from convoy.placement.explanation_text import consequences, details
from convoy.placement.select import cover_of_plan

from ..helpers.placer import Placer
from ..helpers.random_cost import RandomCost
from ..helpers.unrecorded import Unrecorded

DEVICE = Device()


class Simple(Backend):
    """Takes everything forward, or only what has no residual."""

    def __init__(self, name: str, residual: bool = True) -> None:
        self.name, self._residual = name, residual

    def accepts(self, workload: Workload, device: Device) -> Decline | None:
        if workload.epilogue.residual and not self._residual:
            return Decline(self.name, "a residual", "add it elsewhere")
        return None

    def propose(self, workload: Workload, device: Device) -> Sequence[Candidate] | Decline:
        declined = self.accepts(workload, device)
        return declined or [Candidate(self.name, f"k{i}", priority=i) for i in range(3)]

    def build(self, workload: Workload, candidate: Candidate, device: Device) -> Binary:
        raise NotImplementedError


BOTH = (Simple("all"), Simple("plain", residual=False))


def network(channels: int = 16) -> tvm.IRModule:
    """Two residual units with a branch each."""
    import numpy as np

    rng = np.random.default_rng(0)
    x = relax.Var("x", relax.TensorType((1, channels, 12, 12), "float32"))
    builder = relax.BlockBuilder()

    def conv(data: relax.Expr, size: int) -> relax.Expr:
        weights = rng.normal(0, 0.1, (channels, channels, size, size)).astype("float32")
        return builder.emit(relax.op.nn.conv2d(data, relax.const(weights), padding=size // 2))

    with builder.function("main", [x]):
        with builder.dataflow():
            y: relax.Expr = x
            for _ in range(2):
                body = builder.emit(relax.op.nn.relu(conv(y, 3)))
                total = builder.emit(relax.op.add(conv(body, 3), conv(y, 1)))
                y = builder.emit(relax.op.nn.relu(total))
            out = builder.emit_output(relax.op.nn.max_pool2d(y, 2))
        builder.emit_func_output(out)
    return builder.get()


@pytest.fixture(scope="module")
def forms() -> list[tvm.IRModule]:
    return list(normal_forms(network(), None, "float16"))


def placer(forms: list[tvm.IRModule], seed: int = 0) -> Placer:
    return Placer(forms, BOTH, DEVICE, RandomCost(seed))


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("seed", range(4))
def test_exact_is_at_least_as_good_as_greedy_and_as_each_backend(
    forms: list[tvm.IRModule], objective: str, seed: int
) -> None:
    network_placer = placer(forms, seed)
    exact = network_placer.place(objective, "exact")
    assert exact.cover is not None
    slack = sum(
        max(f.kernel_spread_us or 0, f.e2e_spread_us or 0) for f in exact.cover.measurements()
    )
    for other in (
        network_placer.place(objective, "greedy"),
        network_placer.place(objective, "exact", ["plain"]),
        network_placer.place(objective, "exact", ["all"]),
    ):
        cover = cover_of_plan(exact.cover.graph, other.plan)
        if cover is not None:
            assert exact.cover.optimum_us <= cover.total_us() + 1e-6
            assert exact.total_us() <= cover.total_us() + slack + 1e-6


def test_every_subgraph_is_placed_once_and_the_module_can_be_rewritten(
    forms: list[tvm.IRModule],
) -> None:
    for search in ("greedy", "exact"):
        placed = placer(forms).place("graph", search)
        covered = [name for subgraph in placed.subgraphs for name in subgraph.ops]
        assert len(covered) == len(set(covered))
        rewrite(placed.module, {c.subgraph: f"f{i}" for i, c in enumerate(placed.plan.choices)})


def test_backends_can_be_restricted(forms: list[tvm.IRModule]) -> None:
    placed = placer(forms).place("graph", "exact", ["plain"])
    assert set(placed.plan.backends()) == {"plain"}
    assert {d.backend for choice in placed.plan.choices for d in choice.declines} <= {"plain"}


@pytest.mark.parametrize("search", ["greedy", "exact", "evolve"])
def test_place_with_costs_that_need_no_gpu(search: str) -> None:
    placed = convoy.place(network(), backends=("cutlass", "tvm"), costs=RandomCost(), search=search)
    assert placed.plan.source == "random" and placed.plan.backends() == {"cutlass": 6}
    again = convoy.place(network(), backends=("cutlass", "tvm"), costs=RandomCost(0), search=search)
    assert again.plan == placed.plan
    if search == "evolve":
        assert placed.refined is not None
        assert placed.refined.chosen.simulated_us <= min(
            c.simulated_us for c in placed.refined.finalists if not c.evolved
        )


def test_the_exact_cover_is_the_default() -> None:
    options = {"backends": ("cutlass", "tvm"), "costs": RandomCost()}
    placed = convoy.place(network(), **options)
    assert placed.cover is not None
    assert placed.plan == convoy.place(network(), search="exact", **options).plan
    assert convoy.place(network(), search="greedy", **options).cover is None


@pytest.mark.parametrize("backends", [("cutlass", "tvm"), ("tvm",)])
def test_a_result_that_is_an_input(backends: tuple[str, ...]) -> None:
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((1, 8, 8, 16), "float16"))
    filters = relax.const(np.ones((16, 3, 3, 16), "float16"))
    with builder.function("main", [x]):
        with builder.dataflow():
            options = {"data_layout": "NHWC", "kernel_layout": "OHWI"}
            y = builder.emit(relax.op.nn.conv2d(x, filters, padding=1, **options))
            results = builder.emit_output(relax.Tuple([y, x, y]))
        builder.emit_func_output(results)
    placed = convoy.place(builder.get(), backends=backends, costs=RandomCost(1))
    assert placed.cover is not None
    if backends == ("tvm",):
        assert [str(native).endswith("no other backend was named)") for native in placed.native]


def test_without_measurements_each_subgraph_is_placed_by_itself(tmp_path: Path) -> None:
    options = {"backends": ("cutlass", "tvm"), "costs": "recorded", "records": tmp_path / "none"}
    unknown = network(channels=24)
    placed = convoy.place(unknown, **options)
    assert placed.cover is None and not any(c.chosen.measurement.ok for c in placed.plan.choices)
    assert placed.plan.source == "none"
    assert placed.plan == convoy.place(unknown, search="greedy", **options).plan


def test_unknown_names_of_searches_and_costs() -> None:
    with pytest.raises(InvalidOption, match="graph, stream, sync"):
        convoy.place(network(), objective="fastest", costs=RandomCost())
    with pytest.raises(InvalidOption, match="search"):
        convoy.place(network(), search="fastest", costs=RandomCost())
    with pytest.raises(InvalidOption, match="costs"):
        convoy.place(network(), costs="guessed")


def test_a_plan_is_taken_over_as_it_is() -> None:
    placed = convoy.place(
        network(), backends=("cutlass", "tvm"), costs=RandomCost(), search="exact"
    )
    read = Plan.loads(placed.plan.dumps())
    again = convoy.place(network(), backends=("cutlass", "tvm"), plan=read)
    assert again.plan == placed.plan
    assert [r.id for r in again.subgraphs] == [c.subgraph for c in placed.plan.choices]
    with pytest.raises(InvalidOption, match="not all of this network"):
        convoy.place(network(channels=32), plan=read)


def test_explanation_names_rivals_fusions_declines_and_consequences(
    forms: list[tvm.IRModule],
) -> None:
    network_placer = placer(forms, seed=2)
    placed = network_placer.place("graph", "exact")
    why = network_placer.explain(placed, "exact").explanation
    assert len(why.ops) == len(placed.plan.choices)
    assert why.total_us == pytest.approx(placed.plan.total_us())
    for op, choice in zip(why.ops, placed.plan.choices, strict=True):
        assert (op.winner.backend, op.winner.kernel) == (
            choice.chosen.candidate.backend,
            choice.chosen.candidate.kernel,
        )
        assert len(op.losers) + 1 == (6 if not op.workload.epilogue.residual else 3)
        assert [offer.cost_us for offer in op.losers] == sorted(o.cost_us for o in op.losers)
        assert all(o.margin == pytest.approx(o.cost_us / op.winner.cost_us) for o in op.losers)
        assert sum(fusion.chosen for fusion in op.fusions) == 1
        declined = {decline.reason for decline in op.declines}
        assert declined == ({"a residual"} if op.workload.epilogue.residual else set())
    by_name = {other.objective: other for other in why.otherwise}
    assert set(by_name) == {"stream", "sync"}
    sync = network_placer.place("sync", "exact")
    assert by_name["sync"].own_us == pytest.approx(sync.plan.total_us())
    assert by_name["sync"].this_us == pytest.approx(placed.plan.total_us("sync"))
    assert by_name["sync"].loss >= -0.05
    data = json.loads(json.dumps(why.to_json()))
    assert data["ops"][0]["winner"]["margin"] == 1.0
    lines = details(why)
    assert sum(line.startswith("  chosen ") for line in lines) == len(
        {op.workload for op in why.ops}
    )
    assert any(line.startswith("  under sync: ") for line in lines)
    lines += consequences(why)
    assert max(map(len, lines)) <= 80


class Counting(Unrecorded):
    """Known measurements of some kernels."""

    def __init__(self, known: set[str]) -> None:
        super().__init__()
        self._known = known

    def measurements(
        self, workload: Workload, candidates: Sequence[Candidate]
    ) -> list[Measurement | None]:
        measured = Measurement(kernel_us=1.0)
        return [measured if c.kernel in self._known else None for c in candidates]


@pytest.mark.parametrize(
    ("most", "known", "expected"),
    [
        (None, set(), ["k0", "k1", "k2"]),
        (2, set(), ["k0", "k1"]),
        (2, {"k2"}, ["k0"]),
        (1, {"k2"}, []),
    ],
    ids=["all", "two", "one-known", "enough-known"],
)
def test_how_much_is_measured(
    monkeypatch: pytest.MonkeyPatch, most: int | None, known: set[str], expected: list[str]
) -> None:
    from convoy.measure import protocol

    measured: list[str] = []

    def measure(workload: Workload, candidate: Candidate, *rest: object, **more: object):
        measured.append(candidate.kernel)
        return Measurement(kernel_us=5.0)

    monkeypatch.setattr(protocol, "measure", measure)
    backend = Simple("all")
    monkeypatch.setattr(backend, "build", lambda *a: Binary({}, {}))
    costs = MeasuredCost([backend], DEVICE, Counting(known), most=most)
    workload = Workload("fprop", 1, 12, 12, 16, 16, 1, 1)
    candidates = list(reversed(backend.propose(workload, DEVICE)))
    costs.prefetch([(workload, candidates)])
    found = costs.measurements(workload, candidates)
    assert sorted(measured) == expected
    assert [m is not None for m in found] == [c.kernel in {*measured, *known} for c in candidates]
