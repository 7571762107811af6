"""Decisions without a GPU, from plan to executable: options, notes, exchanged kernels."""

from __future__ import annotations

import dataclasses
import sys

import numpy as np
import pytest

import convoy
from convoy import relay
from convoy.backends.base import Backend, Binary
from convoy.errors import LibraryMissing
from convoy.ir.artifact import Meta
from convoy.ir.candidate import Candidate
from convoy.ir.device import Device
from convoy.ir.measurement import Measurement
from convoy.ir.offer import Offer
from convoy.ir.plan import Plan
from convoy.ir.schedule import Footprint, Schedule
from convoy.partition.rewrite import rewrite
from convoy.pipeline import cuda_target
from convoy.relay.convert import to_relax
from convoy.streams import durations
from convoy.streams.link import Lowered
from convoy.streams.machine import Machine
from convoy.streams.placed import PlacedKernels
from convoy.streams.planner import single_stream

BRANCHES = """#[version = "0.0.5"]
def @main(%data: Tensor[(1, 64, 28, 28), float32], %w0: Tensor[(64, 64, 3, 3), float32],
          %w1: Tensor[(64, 64, 3, 3), float32], %w2: Tensor[(64, 64, 1, 1), float32]) {
  %0 = nn.conv2d(%data, %w0, padding=[1, 1, 1, 1], channels=64, kernel_size=[3, 3]);
  %1 = nn.conv2d(%data, %w1, padding=[1, 1, 1, 1], channels=64, kernel_size=[3, 3]);
  %2 = nn.conv2d(%data, %w2, channels=64, kernel_size=[1, 1]);
  %3 = (nn.relu(%0), nn.relu(%1), nn.relu(%2));
  concatenate(%3, axis=1)
}
"""


class Made(Backend):
    """Candidates with figures of its own; builds what the runtime's stand-in could load."""

    name = "made"

    def accepts(self, workload, device):
        return None

    def propose(self, workload, device):
        return [Candidate(self.name, kernel) for kernel in ("wide", "narrow")]

    def build(self, workload, candidate, device):
        entry = {"backend": "cudnn", "engine": 1, "workload": workload.to_json(), "arch": 90}
        return Binary({**entry, "knobs": [[2, candidate.kernel == "narrow"]]}, {})


@pytest.fixture(scope="module")
def network():
    module = relay.parse(BRANCHES)
    rng = np.random.default_rng(1)
    return to_relax(
        module,
        {
            v.name_hint: rng.uniform(-1, 1, tuple(map(int, v.checked_type.shape))).astype("float32")
            for v in module["main"].params[1:]
        },
    )


@pytest.fixture
def placed(network, monkeypatch: pytest.MonkeyPatch):
    """A placement with two candidates for each region: a quick one and one that is slower."""
    placement = convoy.place(network, backends=(Made(),), measure=False, device=Device())
    figures = {"wide": 10.0, "narrow": 12.0}
    choices = []
    for choice in placement.plan.choices:
        scored = {
            kernel: Offer(Candidate("made", kernel), Measurement(kernel_us=us))
            for kernel, us in figures.items()
        }
        choices.append(
            dataclasses.replace(choice, chosen=scored["wide"], runner_up=scored["narrow"])
        )
    plan = dataclasses.replace(placement.plan, choices=tuple(choices), source="recorded")
    footprints = {"wide": Footprint(waves=1.0), "narrow": Footprint(waves=0.3)}

    def estimated(workload, machine, candidate=None, device=None):
        return footprints[candidate.kernel]

    monkeypatch.setattr("convoy.streams.durations.estimated_footprint", estimated)
    monkeypatch.setattr("convoy.streams.placed.estimated_footprint", estimated)
    return dataclasses.replace(placement, plan=plan)


def compiled(placed, **options) -> convoy.CompiledModule:
    from convoy.pipeline import compile_placement

    return compile_placement(placed, "cuda", backends=(Made(),), **options)


def test_one_stream(placed) -> None:
    schedule = compiled(placed, streams=1).schedule
    assert schedule is not None and schedule.streams == 1 and schedule.events == ()
    assert schedule.decided_by == "requested"
    assert [op.source for op in schedule.ops if op.kind == "offloaded"] == ["recorded"] * 3


def test_number_of_streams(placed) -> None:
    module = compiled(placed, streams=2)
    assert module.schedule is not None and module.schedule.streams == 2
    assert module.plan is not None
    assert {c.chosen.candidate.kernel for c in module.plan.choices} == {"wide"}


def test_kernels_that_leave_room(placed) -> None:
    """Three convolutions that each fill the device; the narrow ones are over earlier together."""
    module = compiled(placed)
    schedule = module.schedule
    assert schedule is not None and schedule.streams == 3
    assert "kernels exchanged" in schedule.note and "not measured" in schedule.note
    kernels = {op.symbol: op.kernel for op in schedule.ops if op.kind == "offloaded"}
    assert set(kernels.values()) == {"made:narrow"}
    assert module.plan is not None
    assert {c.chosen.candidate.kernel for c in module.plan.choices} == {"narrow"}
    assert {c.runner_up.candidate.kernel for c in module.plan.choices if c.runner_up} == {"wide"}
    assert schedule.makespan_us < 30 < schedule.single_us


def test_schedule_is_part_of_the_description(placed) -> None:
    module = compiled(placed, streams=3)
    meta = Meta.loads(module.meta.dumps())
    assert Schedule.from_json(meta.schedule) == module.schedule
    assert meta.cuda_graph


@pytest.mark.parametrize(
    ("one", "several", "kept"),
    [
        ((100.0, 1.0), (80.0, 1.0), True),
        ((100.0, 1.0), (99.5, 0.2), False),  # within the spread of one stream
        ((100.0, 1.0), (96.0, 5.0), False),  # within its own
        ((100.0, 1.0), (120.0, 1.0), False),
    ],
)
def test_measured_times_decide(placed, monkeypatch, one, several, kept: bool) -> None:
    """With the GPU at hand: the fastest contender, and only if it wins by more than the spread."""
    tried: list[int] = []

    def try_out(program, executables, cuda_graph):
        tried.append(len(executables))
        slower = [(several[0] + 10 * i, several[1]) for i in range(1, len(executables) - 1)]
        return [one, *slower, several]  # the last contender is the fastest

    placing = sys.modules["convoy.placement.api"]
    monkeypatch.setattr(placing, "_present_device", lambda: placed.plan.device)
    monkeypatch.setattr("convoy.streams.durations.measure", lambda program, ops, *_: list(ops))
    monkeypatch.setattr(
        "convoy.streams.placed.measured_footprint",
        lambda workload, binary, machine: Footprint(waves=0.3),
    )
    monkeypatch.setattr("convoy.streams.decide.try_out", try_out)
    module = compiled(placed)
    schedule = module.schedule
    assert schedule is not None and schedule.trial is not None and tried[0] >= 2
    assert schedule.decided_by == "measured"
    assert (schedule.trial.single_us, schedule.trial.multi_us) == (one[0], several[0])
    assert (schedule.streams > 1) == kept
    assert module.plan is not None
    kernels = {c.chosen.candidate.kernel for c in module.plan.choices}
    assert kernels == {op.kernel.split(":")[1] for op in schedule.ops if op.kind == "offloaded"}
    if not kept:
        assert kernels == {"wide"}, "what was dropped leaves nothing behind"


def test_chain_stays_on_one_stream(network) -> None:
    text = BRANCHES.split("%1 =")[0].rstrip().rstrip(";").replace("%0 = ", "") + "\n}\n"
    module = relay.parse(text)
    built = convoy.build(to_relax(module, {}), backends=("tvm",), streams="auto")
    assert built.schedule is not None and built.schedule.streams == 1


def test_variants_that_are_too_slow_are_left_out(placed) -> None:
    plan = placed.plan
    slow = Offer(Candidate("made", "slow"), Measurement(kernel_us=99.0))
    choices = tuple(dataclasses.replace(c, best_by_backend=(slow,)) for c in plan.choices)
    plan = dataclasses.replace(plan, choices=choices)
    symbols = {choice.subgraph: plan.symbol(i) for i, choice in enumerate(plan.choices)}
    schedule = compiled(placed, streams=3).schedule
    assert schedule is not None
    found = PlacedKernels(plan, symbols, {"made": Made()}, Machine()).variants(schedule.ops)
    assert {v.kernel for variants in found.values() for v in variants} == {"made:narrow"}


def test_near_candidates_are_variants_where_no_compiler_is_needed(placed) -> None:
    def near(kernel: str, *notes: str) -> Offer:
        return Offer(Candidate("made", kernel, notes=notes), Measurement(kernel_us=13.0))

    class Partly(Made):
        def is_ready(self, candidate):
            if candidate.kernel == "no compiler":
                raise LibraryMissing("no nvcc", "nvcc", "install it")
            return candidate.kernel != "to compile"

        def prepare(self, jobs, device):
            assert {c.kernel for _, c in jobs} <= {"narrow", "near"}

    kernels = ("near", "to compile", "no compiler")
    added = (*map(near, kernels), near("at run time", "runtime_compilation"))
    choices = tuple(dataclasses.replace(c, near=added) for c in placed.plan.choices)
    plan = dataclasses.replace(placed.plan, choices=choices)
    assert Plan.loads(plan.dumps()) == plan
    symbols = {choice.subgraph: plan.symbol(i) for i, choice in enumerate(plan.choices)}
    kept = PlacedKernels(plan, symbols, {"made": Partly()}, Machine())
    others = {s.candidate.kernel for c in plan.choices for s in kept._others(c)}
    assert others == {"narrow", "near"}


def test_durations_count_what_has_left_the_cache(placed, network) -> None:
    """Weights (two of 3x3, one of 1x1, each once) and the arena against the size of the cache."""
    plan = placed.plan
    choices = tuple(
        dataclasses.replace(
            c, chosen=Offer(c.chosen.candidate, Measurement(kernel_us=10.0, cold_us=14.0))
        )
        for c in plan.choices
    )
    changed = dataclasses.replace(placed, plan=dataclasses.replace(plan, choices=choices))
    lowered = Lowered.of(
        rewrite(placed.module, {c.subgraph: c.subgraph for c in choices}), cuda_target(Device())
    )
    weights = 2 * (2 * 64 * 64 * 9 + 64 * 64)
    program = lowered.program(Machine())
    arena = single_stream(program.ops, program.buffers, Machine()).memory.peak_bytes
    assert arena > 0
    roomy, tight = Machine(l2_bytes=1 << 30), Machine(l2_bytes=4 * (weights + arena))
    assert durations.coldness(program, roomy) < 0.01
    assert durations.coldness(program, tight) == pytest.approx(0.25, abs=0.005)
    assert durations.coldness(program, Machine(l2_bytes=1000)) == durations._MOST_COLD
    ops = compiled(changed, streams=1).schedule.ops
    expected = 10.0 + 4.0 * durations.coldness(program, Machine.of(plan.device))
    found = [op.duration_us for op in ops if op.kind == "offloaded"]
    assert found == pytest.approx([expected] * 3, abs=1e-3)
    assert durations.blended_us(Measurement(kernel_us=3.0), 0.5) == 3.0
    assert durations.blended_us(Measurement(), 0.5) is None
