"""Kernels by rank: cheapest under the objective, ties by written priority, plans that last."""

from __future__ import annotations

import dataclasses
import io
import itertools
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from convoy.backends.base import Backend, Binary
from convoy.cost.model import CostModel
from convoy.cost.offers import price_workloads
from convoy.errors import CorruptArtefact, NoCandidate
from convoy.ir import objective as objectives
from convoy.ir.candidate import Candidate, Decline
from convoy.ir.device import Device
from convoy.ir.epilogue import Epilogue
from convoy.ir.kernel_words import kernel_words
from convoy.ir.measurement import Measurement
from convoy.ir.offer import Offer
from convoy.ir.plan import Plan
from convoy.ir.workload import Workload
from convoy.placement import explain
from convoy.placement.greedy import choose_kernels
from convoy.placement.rank import rank
from convoy.report import tables

from ..helpers.random_cost import RandomCost

DEVICE = Device()


def place(
    subgraphs: list[tuple[str, Workload]],
    backends: list[Backend],
    costs: CostModel,
    objective: str = "graph",
) -> Plan:
    """Choose a kernel for each (name, workload)."""
    offers = price_workloads([workload for _, workload in subgraphs], backends, DEVICE, costs)
    choices = choose_kernels([(name, offers[w]) for name, w in subgraphs], objective)
    return Plan(objective, DEVICE, tuple(choices))


def conv(k: int = 64, **options: object) -> Workload:
    return Workload("fprop", 1, 14, 14, 64, k, 3, 3, padding=(1, 1, 1, 1), **options)


class Fixed(Backend):
    """A backend with a given number of candidates, or none."""

    def __init__(self, name: str, kernels: int) -> None:
        self.name, self._kernels = name, kernels

    def accepts(self, workload: Workload, device: Device) -> Decline | None:
        return None if self._kernels else Decline(self.name, "it has no kernels")

    def propose(self, workload: Workload, device: Device) -> list[Candidate] | Decline:
        declined = self.accepts(workload, device)
        if declined:
            return declined
        return [Candidate(self.name, f"k{i}", priority=i) for i in range(self._kernels)]

    def build(self, workload: Workload, candidate: Candidate, device: Device) -> Binary:
        raise NotImplementedError


class Table(CostModel):
    """Measurements from a dictionary by kernel name."""

    def __init__(self, table: dict[str, Measurement]) -> None:
        self._table = table

    def measurements(
        self, workload: Workload, candidates: list[Candidate]
    ) -> list[Measurement | None]:
        return [self._table.get(c.kernel) for c in candidates]


def measured(kernel: float, host: float, e2e: float, spread: float = 0.0) -> Measurement:
    return Measurement(
        kernel_us=kernel,
        kernel_spread_us=spread,
        enqueue_us=host,
        enqueue_spread_us=spread,
        e2e_us=e2e,
        e2e_spread_us=spread,
    )


@given(seed=st.integers(0, 1000), widths=st.lists(st.sampled_from([8, 16, 64, 128]), min_size=1))
def test_every_objective_takes_the_cheapest(seed: int, widths: list[int]) -> None:
    subgraphs = [(f"r{i}", conv(k)) for i, k in enumerate(widths)]
    backends = [Fixed("a", 3), Fixed("b", 2)]
    for objective in ("graph", "sync"):
        plan = place(subgraphs, backends, RandomCost(seed), objective)
        model = RandomCost(seed)
        for choice in plan.choices:
            candidates = [c for b in backends for c in b.propose(choice.workload, DEVICE)]
            costs = [
                objectives.own_cost(m, objective)[0]
                for m in model.measurements(choice.workload, candidates)
            ]
            chosen, spread = objectives.own_cost(choice.chosen.measurement, objective)
            assert chosen <= min(costs) + 0.5
            assert chosen == min(costs) or chosen <= min(costs) + spread


@given(
    table=st.lists(
        st.tuples(st.integers(1, 9), st.integers(1, 9)), min_size=2, max_size=3, unique=True
    ),
    subgraphs=st.integers(1, 3),
)
def test_stream_objective_against_brute_force(table: list[tuple[int, int]], subgraphs: int) -> None:
    known = {f"k{i}": measured(k, h, k + h) for i, (k, h) in enumerate(table)}
    named = [(f"r{i}", conv(8 * (i + 1))) for i in range(subgraphs)]
    plan = place(named, [Fixed("a", len(table))], Table(known), "stream")
    best = min(
        objectives.total(combination, "stream")
        for combination in itertools.product(known.values(), repeat=subgraphs)
    )
    assert plan.total_us() == pytest.approx(best)


def test_objectives_disagree_where_the_costs_do() -> None:
    table = {"k0": measured(5.0, 4.0, 20.0), "k1": measured(6.0, 2.0, 12.0)}
    chosen = {
        objective: place([("r", conv())], [Fixed("a", 2)], Table(table), objective)
        .choices[0]
        .chosen.candidate.kernel
        for objective in objectives.OBJECTIVES
    }
    assert chosen == {"graph": "k0", "stream": "k0", "sync": "k1"}


def test_ties_inside_the_spread_go_to_the_deterministic_kernel() -> None:
    fast = Offer(Candidate("a", "fast", deterministic=False), measured(5.0, 1, 1, 0.2))
    safe = Offer(Candidate("b", "safe"), measured(5.1, 1, 1, 0.2))
    slow = Offer(Candidate("b", "slow"), measured(5.3, 1, 1, 0.2))
    assert [s.candidate.kernel for s in rank([fast, slow, safe], "graph")] == [
        "safe",
        "fast",
        "slow",
    ]


def test_failed_candidates_are_never_chosen() -> None:
    table = {"k0": Measurement(failure="illegal address"), "k1": measured(9, 1, 12)}
    plan = place([("r", conv())], [Fixed("a", 2)], Table(table))
    assert plan.choices[0].chosen.candidate.kernel == "k1"


def test_all_declined_names_the_reasons() -> None:
    with pytest.raises(NoCandidate, match="it has no kernels"):
        place([("r", conv())], [Fixed("a", 0)], RandomCost())


def test_without_measurements_the_backends_order_decides() -> None:
    plan = place([("r", conv())], [Fixed("a", 3)], Table({}))
    assert plan.choices[0].chosen.candidate.kernel == "k0"


@given(seed=st.integers(0, 100))
def test_plan_round_trips_through_json(seed: int) -> None:
    epilogue = Epilogue(residual=True, bias=True, activation="clip", clip_max=6.0)
    subgraphs = [("r0", conv()), ("r1", conv(epilogue=epilogue)), ("r2", conv())]
    plan = place(subgraphs, [Fixed("a", 2), Fixed("b", 0)], RandomCost(seed))
    assert Plan.loads(plan.dumps()) == plan


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"format": 99}', "null", '{"format":1}'])
def test_damaged_plans_are_refused(text: str) -> None:
    with pytest.raises(CorruptArtefact):
        Plan.loads(text)


def test_table_has_a_row_for_each_operation() -> None:
    subgraphs = [("r0", conv()), ("r1", conv(128)), ("r2", conv())]
    plan = place(subgraphs, [Fixed("a", 2), Fixed("b", 0)], RandomCost(1))
    first = dataclasses.replace(plan.choices[0], layer="body.0.conv")
    plan = dataclasses.replace(plan, choices=(first, *plan.choices[1:]))
    rows = explain.rows(plan)
    assert [row[0] for row in rows] == ["body.0.conv", "3x3 64→128", "3x3 64→64"]
    assert sum(float(row[1].rstrip("%")) for row in rows) == pytest.approx(100, abs=0.2)
    assert "a 3" in explain.summary(plan) and "without a timing" not in explain.summary(plan)
    assert Plan.loads(plan.dumps()) == plan


def test_long_table_shows_the_heaviest_and_counts_the_rest() -> None:
    subgraphs = [(f"r{i}", conv(8 * (i + 1))) for i in range(30)]
    plan = place(subgraphs, [Fixed("a", 1)], RandomCost(3))
    table = explain.table(plan)
    times = [float(row[2]) for row in table.rows]
    assert len(times) == explain.MOST and times == sorted(times, reverse=True)
    everything = explain.table(plan, most=None)
    assert len(everything.rows) == 30 and everything.rest == ""
    left = sum(float(row[2]) for row in everything.rows) - sum(times)
    share = 100 * left / plan.total_us()
    found = re.match(r"and 10 more operations, ([\d.]+)% of the time", table.rest)
    assert found is not None and float(found[1]) == pytest.approx(share, abs=0.2)


def test_operations_without_a_timing_are_named() -> None:
    plan = place([("r0", conv()), ("r1", conv(128))], [Fixed("a", 2)], RandomCost(1))
    bare = dataclasses.replace(plan.choices[1].chosen, measurement=Measurement())
    unknown = dataclasses.replace(plan.choices[1], chosen=bare, layer="head")
    plan = dataclasses.replace(plan, choices=(plan.choices[0], unknown))
    assert explain.rows(plan)[1][:3] == ["head", "-", "-"]
    assert "without a timing: 1 of 2 (head)" in explain.summary(plan)


_ASCII = st.characters(min_codepoint=33, max_codepoint=126)


@given(st.text(_ASCII, max_size=60), st.text(_ASCII, max_size=90))
def test_table_fits_80_columns(layer: str, kernel: str) -> None:
    plan = place([("r0", conv())], [Fixed("a", 2)], RandomCost(1))
    (choice,) = plan.choices
    chosen = Offer(Candidate("cutlass", kernel or "k"), Measurement(kernel_us=12345.678))
    choice = dataclasses.replace(choice, layer=layer, chosen=chosen)
    plan = dataclasses.replace(plan, choices=(choice,))
    for terminal in (True, False):
        console = Console(file=io.StringIO(), force_terminal=terminal, width=80, no_color=True)
        tables.show(explain.COLUMNS, explain.rows(plan), console=console)
        printed = re.sub("\x1b\\[[0-9;]*m", "", console.file.getvalue())  # type: ignore[attr-defined]
        lines = printed.splitlines()
        assert max(map(len, lines)) <= 80 and len([x for x in lines if x.strip()]) == 3


@pytest.mark.parametrize(
    ("backend", "kernel", "words"),
    [
        ("cudnn", "eng5", "engine 5"),
        ("cudnn", "eng4_k24=36", "engine 4, 1 knob"),
        ("cudnn", "eng43_k2=0_k12=-1_zerobias", "engine 43, 2 knobs, zero bias"),
        ("cutlass", "sm90_conv_128x64x64_c2x1_pingpong_splitk.split12",
         "sm90 128x64x64 cluster 2x1 split-K 12 pingpong"),
        ("cutlass", "sm80_conv_64x64x64_w32x32_s5", "sm80 64x64x64 warps 32x32 5 stages"),
        ("mine", "direct_v2", "direct v2"),
    ],
)  # fmt: skip
def test_kernels_in_words(backend: str, kernel: str, words: str) -> None:
    assert kernel_words(backend, kernel) == words


def test_near_candidates_are_spread_over_those_that_are_not_much_slower() -> None:
    times = {f"k{i}": measured(10.0 + i, 1.0, 30.0) for i in range(12)}
    plan = place([("r", conv())], [Fixed("a", 12)], Table(times))
    (choice,) = plan.choices
    found = [s.candidate.kernel for s in choice.near]
    assert found == ["k1", "k2", "k3", "k4", "k5", "k6"], "k7 and others take too long"
    close = {f"k{i}": measured(10.0 + i / 10, 1.0, 30.0) for i in range(12)}
    (choice,) = place([("r", conv())], [Fixed("a", 12)], Table(close)).choices
    found = [s.candidate.kernel for s in choice.near]
    assert found[0] == "k1" and found[-1] == "k11" and len(found) == 6
    (choice,) = place([("r", conv())], [Fixed("a", 1)], Table(close)).choices
    assert choice.near == ()
    assert Plan.loads(plan.dumps()) == plan
