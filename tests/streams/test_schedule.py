"""Schedules without a GPU, from plan to executable: options, notes, kernels for several streams."""

from __future__ import annotations

import dataclasses
import itertools
import json

import numpy as np
import pytest

import convoy
from convoy import relay
from convoy.backends.base import Backend, Binary
from convoy.cost.model import CostModel
from convoy.ir.artifact import Meta
from convoy.ir.candidate import Candidate
from convoy.ir.device import Device
from convoy.ir.measurement import Measurement
from convoy.ir.objective import device_us
from convoy.ir.plan import Plan
from convoy.ir.schedule import Schedule
from convoy.ir.schedule_parts import Occupancy
from convoy.pipeline import compile_placement, predict_schedule
from convoy.relay.convert import to_relax
from convoy.streams import durations

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
    """Candidates with times of its own; builds what the runtime's stand-in could load."""

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


class Times(CostModel):
    """A quick kernel and one that is slower; ``source`` as of records."""

    source = "recorded"
    us = {"wide": 10.0, "narrow": 12.0}

    def measurements(self, workload, candidates):
        slower = 5.0 if workload.k > 64 else 1.0  # several convolutions as one do not pay
        return [Measurement(slower * self.us[c.kernel], samples=1) for c in candidates]


@pytest.fixture(autouse=True)
def occupancies(monkeypatch: pytest.MonkeyPatch) -> None:
    """The quick kernel fills the device, the slow one leaves room."""
    waves = {"wide": 1.0, "narrow": 0.3}

    def of_workload(workload, device, candidate, others=()):
        return Occupancy(waves=waves[candidate.kernel])

    monkeypatch.setattr("convoy.streams.occupancy.of_workload", of_workload)


OPTIONS = {"backends": (Made(),), "costs": Times(), "device": Device()}


@pytest.fixture(scope="module")
def normal(network):
    return convoy.place(network, streams=1, **OPTIONS)


@pytest.fixture
def placed(network):
    return convoy.place(network, **OPTIONS)


def kernels(plan: Plan | None) -> set[str]:
    assert plan is not None
    return {choice.chosen.candidate.kernel for choice in plan.choices}


def compiled(placed, **options) -> convoy.CompiledModule:
    return compile_placement(placed, "cuda", backends=(Made(),), **options)


def test_one_stream(normal) -> None:
    schedule = compiled(normal, streams=1).schedule
    assert schedule is not None and schedule.streams == 1 and schedule.events == ()
    assert schedule.decided_by == "requested"
    assert [op.source for op in schedule.ops if op.kind == "offloaded"] == ["recorded"] * 3
    assert kernels(normal.plan) == {"wide"} and normal.on_one_stream is None


def test_number_of_streams(normal) -> None:
    module = compiled(normal, streams=2)
    assert module.schedule is not None and module.schedule.streams == 2
    assert kernels(module.plan) == {"wide"}


def test_kernels_that_leave_room(network, placed) -> None:
    """Three convolutions that each fill the device; the narrow ones end earlier together."""
    module = compiled(placed)
    schedule = module.schedule
    assert schedule is not None and schedule.streams == 3
    assert "not measured" in schedule.note
    assert {op.kernel for op in schedule.ops if op.kind == "offloaded"} == {"made:narrow"}
    assert kernels(module.plan) == {"narrow"} and module.plan == placed.plan
    assert {c.runner_up.candidate.kernel for c in module.plan.choices if c.runner_up} == {"wide"}
    assert schedule.makespan_us < 30 < schedule.single_us
    assert placed.plan.streams == 3 and Plan.loads(placed.plan.dumps()) == placed.plan
    assert kernels(placed.on_one_stream.plan) == {"wide"}
    again = convoy.place(network, plan=placed.plan, backends=(Made(),))
    assert again.plan == placed.plan


@pytest.mark.parametrize(
    ("search", "streams"),
    [("exact", "auto"), ("greedy", "auto"), ("evolve", "auto"), ("exact", 1), ("exact", 2)],
)
def test_place_and_build_use_the_same_plan(network, search: str, streams: int | str) -> None:
    options = {**OPTIONS, "search": search, "streams": streams}
    placed = convoy.place(network, **options)
    assert convoy.build(network, **options).plan == placed.plan
    assert kernels(placed.plan) == ({"narrow"} if streams == "auto" else {"wide"})


def test_place_and_build_use_the_same_plan_without_branches() -> None:
    network = to_relax(relay.parse(chain()), {})
    placed = convoy.place(network, **OPTIONS)
    assert convoy.build(network, **OPTIONS).plan == placed.plan
    assert kernels(placed.plan) == {"wide"} and placed.plan.streams == 1


def chain() -> str:
    return BRANCHES.split("%1 =")[0].rstrip().rstrip(";").replace("%0 = ", "") + "\n}\n"


def test_kernels_for_several_streams_need_a_graph(network) -> None:
    """Launched one by one by the host, neighbours hardly meet."""
    assert kernels(convoy.build(network, cuda_graph=False, **OPTIONS).plan) == {"wide"}
    stream = convoy.place(network, objective="stream", **OPTIONS)
    assert kernels(stream.plan) == {"wide"}


def test_prediction_is_the_schedule_without_compiling(placed) -> None:
    assert predict_schedule(placed) == compiled(placed).schedule
    assert predict_schedule(placed, 1).streams == 1


def test_schedule_is_part_of_the_description(placed) -> None:
    module = compiled(placed, streams=3)
    meta = Meta.loads(module.meta.dumps())
    assert Schedule.from_json(meta.schedule) == module.schedule
    assert meta.cuda_graph


def test_functions_and_the_runtime_module_are_built_once(placed, monkeypatch) -> None:
    """Offloaded functions in one module, the description in another that has none."""
    from convoy.pipeline import lowering

    made, built = [], []

    class Counting(Made):
        def build(self, workload, candidate, device):
            built.append(candidate)
            return super().build(workload, candidate, device)

    def create_module(entries, *args, **options):
        made.append(len(entries))
        return real(entries, *args, **options)

    real = lowering.create_module
    monkeypatch.setattr(lowering, "create_module", create_module)
    compile_placement(placed, "cuda", backends=(Counting(),))
    assert made == [3, 0] and len(built) == 3


class Gpu:
    """Stands in for the GPU of the plan: times of whole schedules, one stream first."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *trials) -> None:
        self.tried: list[int] = []
        self._trials = itertools.chain(trials)
        monkeypatch.setattr("convoy.pipeline.executable.present_device", Device)
        monkeypatch.setattr("convoy.streams.durations.measure", lambda program, ops, *_: list(ops))
        monkeypatch.setattr("convoy.streams.schedule.time_functions", self.time)

    def time(self, program, executable, names, cuda_graph):
        assert all(executable.stats().count(name) for name in names), "a function for each"
        self.tried.append(len(names))
        one, several = next(self._trials)
        slower = [(several[0] + 10 * i, several[1]) for i in range(1, len(names) - 1)]
        return [one, *slower, several]  # the last schedule is the fastest


@pytest.mark.parametrize(
    ("one", "several", "kept"),
    [
        ((100.0, 1.0), (80.0, 1.0), True),
        ((100.0, 1.0), (99.5, 0.2), False),  # within the spread of one stream
        ((100.0, 1.0), (96.0, 5.0), False),  # within its own
        ((100.0, 1.0), (120.0, 1.0), False),
        ((100.0, 1.0), (94.5, 1.0), False),  # the wide kernels save 6 us on one stream
    ],
)
def test_measured_times_decide(placed, monkeypatch, one, several, kept: bool) -> None:
    """With the GPU at hand: the fastest schedule, and only if it wins by more than the spread.
    Where one stream wins, kernels are selected for it."""
    gpu = Gpu(monkeypatch, (one, several), ((94.0, 1.0), (95.0, 1.0)))
    module = compiled(placed)
    schedule = module.schedule
    assert schedule is not None and schedule.trial is not None and gpu.tried[0] >= 2
    assert schedule.decided_by == "measured"
    assert (schedule.streams > 1) == kept
    assert kernels(module.plan) == {
        op.kernel.split(":")[1] for op in schedule.ops if op.kind == "offloaded"
    }
    if kept:
        assert (schedule.trial.single_us, schedule.trial.multi_us) == (one[0], several[0])
        assert module.plan == placed.plan
    else:
        assert schedule.trial.single_us == 94.0
        assert module.plan == placed.on_one_stream.plan, "what was dropped leaves nothing behind"


def test_a_plan_that_is_given_is_kept(network, placed, monkeypatch) -> None:
    given = convoy.place(network, plan=placed.plan, backends=(Made(),))
    Gpu(monkeypatch, ((100.0, 1.0), (120.0, 1.0)))
    module = compiled(given)
    assert module.schedule is not None and module.schedule.streams == 1
    assert module.plan == placed.plan


def test_chain_stays_on_one_stream() -> None:
    built = convoy.build(to_relax(relay.parse(chain()), {}), backends=("tvm",), streams="auto")
    assert built.schedule is not None and built.schedule.streams == 1


def test_durations_are_those_of_the_plan(normal) -> None:
    """With the share of what a cold cache adds that the objective counts."""
    cold = Measurement(kernel_us=10.0, cold_us=14.0)
    choices = tuple(
        dataclasses.replace(c, chosen=dataclasses.replace(c.chosen, measurement=cold))
        for c in normal.plan.choices
    )
    changed = dataclasses.replace(normal, plan=dataclasses.replace(normal.plan, choices=choices))
    assert 10.0 < device_us(cold) < 14.0
    ops = predict_schedule(changed, 1).ops
    found = [op.duration_us for op in ops if op.kind == "offloaded"]
    assert found == pytest.approx([device_us(cold)] * 3, abs=1e-3)
    unknown = dataclasses.replace(choices[0].chosen, measurement=Measurement())
    plan = dataclasses.replace(
        changed.plan, choices=(dataclasses.replace(choices[0], chosen=unknown), *choices[1:])
    )
    estimated = durations.from_plan(ops, plan)
    assert sum(op.duration_us for op in estimated) == sum(op.duration_us for op in ops)


def test_plans_of_before_there_were_streams_in_them(normal, placed) -> None:
    data = json.loads(placed.plan.dumps())
    assert data.pop("streams") == 3
    for name in ("threads_per_sm", "blocks_per_sm", "registers_per_sm"):
        del data["device"][name]
    assert Plan.from_json(data) == dataclasses.replace(placed.plan, streams=1)
    assert "streams" not in normal.plan.to_json()
