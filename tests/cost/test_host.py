"""Host times of records from another machine: ratios, and when there are none."""

from __future__ import annotations

import dataclasses
import itertools
import random
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import tvm
from tvm import relax

import convoy
from convoy import pipeline
from convoy.backends.base import Backend, Binary
from convoy.cost.host import SAMPLES, HostTimes, chosen, ratio_of
from convoy.cost.usual_host_times import usual_times
from convoy.errors import CompileFailed
from convoy.ir.candidate import Candidate
from convoy.ir.device import Device
from convoy.ir.measurement import Measurement
from convoy.ir.workload import Workload
from convoy.measure import protocol
from convoy.pipeline import network
from convoy.records import environment as environments
from convoy.records.environment import Environment
from convoy.records.record import HostSample, Record
from convoy.records.store import RecordStore

THERE = Environment("NVIDIA H200", 132, host="a quick one", boot="monday")


def record(channels: int, backend: str = "cudnn", kernel: str = "k", host: str = "") -> Record:
    workload = Workload("fprop", 1, 14, 14, channels, 64, 1, 1)
    measured = Measurement(4.0, 0.1, 5.0, 3.0, 0.2, 11.0, 0.4, 30)
    where = dataclasses.replace(THERE, host=host or THERE.host)
    return Record(workload, Candidate(backend, kernel), measured, where)


def slower(enqueue: float, wait: float, noise: float = 0.0, seed: int = 0):
    rng = random.Random(seed)

    def again(workload: Workload, candidate: Candidate) -> Measurement:
        shake = 1 + rng.uniform(-noise, noise)
        return Measurement(4.1, 0.1, None, 3.0 * enqueue * shake, 0.2, 4.1 + 7.0 * wait, 0.4, 30)

    return again


RECORDS = [record(c) for c in range(8, 400, 8)]


def test_records_of_a_slower_host_are_brought_to_this_one() -> None:
    hosts = HostTimes("tuesday")
    hosts.calibrate(RECORDS, slower(1.5, 1.2, noise=0.04))
    measured = hosts.measurement(RECORDS[3])
    assert measured.kernel_us == 4.0 and measured.cold_us == 5.0 and measured.samples == 30
    assert measured.enqueue_us == pytest.approx(4.5, rel=0.04)
    assert measured.enqueue_spread_us == pytest.approx(0.3, rel=0.04)
    assert measured.e2e_us == pytest.approx(4.0 + 7.0 * 1.2)
    (ratio,) = hosts.ratios.values()
    assert ratio.samples == SAMPLES


def test_each_backend_and_each_host_has_a_ratio_of_its_own() -> None:
    def again(workload: Workload, candidate: Candidate) -> Measurement:
        return slower(2.0 if candidate.backend == "cutlass" else 1.3, 1.0)(workload, candidate)

    records = [*RECORDS, *(record(c, "cutlass") for c in (8, 16)), record(8, host="a third")]
    hosts = HostTimes("tuesday")
    hosts.calibrate(records, again)
    found = {key: round(ratio.enqueue, 3) for key, ratio in hosts.ratios.items()}
    assert found == {
        ("cudnn", "a quick one"): 1.3, ("cutlass", "a quick one"): 2.0, ("cudnn", "a third"): 1.3,
    }  # fmt: skip


def test_records_since_the_start_of_this_machine_are_taken_as_they_are() -> None:
    hosts = HostTimes(THERE.boot)
    hosts.calibrate(RECORDS, slower(1.5, 1.5))
    assert hosts.ratios == {} and hosts.measurement(RECORDS[0]) == RECORDS[0].measurement
    assert HostTimes().measurement(RECORDS[0]) == RECORDS[0].measurement


def test_machines_of_one_name_are_told_apart() -> None:
    """Of two kinds of records under one name, only those taken here stay."""
    hosts = HostTimes("tuesday")
    mine = dataclasses.replace(RECORDS[0], environment=dataclasses.replace(THERE, boot="tuesday"))
    hosts.calibrate([mine, *RECORDS], slower(1.5, 1.5))
    assert hosts.measurement(mine) == mine.measurement
    assert hosts.measurement(RECORDS[0]).enqueue_us == pytest.approx(4.5)


def test_what_is_within_the_noise_is_no_other_host() -> None:
    hosts = HostTimes("tuesday")
    hosts.calibrate(RECORDS, slower(1.03, 0.97))
    assert hosts.measurement(RECORDS[0]) == RECORDS[0].measurement


def test_asked_once_and_only_for_what_can_tell() -> None:
    calls: list[str] = []

    def again(workload: Workload, candidate: Candidate) -> Measurement:
        calls.append(workload.key)
        return slower(1.5, 1.5)(workload, candidate)

    failed = dataclasses.replace(RECORDS[0], measurement=Measurement(failure="no"))
    bare = dataclasses.replace(RECORDS[0], measurement=Measurement(kernel_us=3.0))
    hosts = HostTimes("tuesday")
    hosts.calibrate([failed, bare], again)
    assert not calls and not hosts.ratios
    for _ in range(2):
        hosts.calibrate(RECORDS, again)
    assert len(calls) == SAMPLES == len(set(calls))


def test_candidates_that_cannot_be_measured_leave_records_as_they_are() -> None:
    def broken(workload: Workload, candidate: Candidate) -> Measurement:
        raise CompileFailed("no compiler", "one")

    hosts = HostTimes("tuesday")
    hosts.calibrate(RECORDS, broken)
    assert hosts.measurement(RECORDS[0]) == RECORDS[0].measurement
    hosts = HostTimes("tuesday")
    hosts.calibrate(RECORDS, lambda *_: Measurement(failure="no GPU"))
    assert hosts.measurement(RECORDS[0]) == RECORDS[0].measurement


def test_what_is_built_already_is_measured_and_the_rest_built_at_once() -> None:
    told: list[list[str]] = []

    def prepare(pairs: Sequence[tuple[Workload, Candidate]]) -> None:
        told.append([candidate.kernel for _, candidate in pairs])

    def measured(ready: set[str]) -> set[str]:
        kernels: set[str] = set()

        def again(workload: Workload, candidate: Candidate) -> Measurement:
            kernels.add(candidate.kernel)
            return slower(1.5, 1.5)(workload, candidate)

        records = [*RECORDS, *(record(c, kernel="rare") for c in range(8, 400, 8))]
        records += [record(c, "cutlass", "other") for c in (8, 16)]
        HostTimes("tuesday").calibrate(records, again, lambda c: c.kernel in ready, prepare)
        return kernels

    assert measured({"rare", "other"}) == {"rare", "other"}
    assert measured({"other"}) == {"k", "other"}
    assert [len(kernels) for kernels in told] == [SAMPLES + 2] * 2

    def missing(pairs: object) -> None:
        raise CompileFailed("no compiler", "one")

    hosts = HostTimes("tuesday")
    hosts.calibrate(RECORDS, slower(1.5, 1.5), prepare=missing)
    assert hosts.ratios, "the kernels may be there all the same"


def samples(records: list[Record]) -> list[HostSample]:
    return [sample for record in records if (sample := record.host_sample()) is not None]


def test_of_many_records_of_a_kind_the_median_counts() -> None:
    rng = random.Random(3)

    def noisy(kernel: str, count: int, enqueue: float) -> list[Record]:
        measurements = [
            dataclasses.replace(
                RECORDS[0].measurement, enqueue_us=enqueue * rng.uniform(0.7, 1.3), e2e_us=4.0 + us
            )
            for us in (rng.uniform(5.0, 9.0) for _ in range(count))
        ]
        return [
            dataclasses.replace(record(8 * i, kernel=kernel), measurement=measured)
            for i, measured in enumerate(measurements, 1)
        ]

    many, split = noisy("eng39_k25=1", 40, 6.0), noisy("eng39_split2", 40, 9.0)
    few = noisy("eng4", 3, 4.0)
    hosts = HostTimes("tuesday", usual=usual_times(samples([*many, *split, *few])))
    (enqueue,) = {hosts.measurement(r).enqueue_us for r in many}
    (twice,) = {hosts.measurement(r).enqueue_us for r in split}
    (call,) = {hosts.measurement(r).e2e_us for r in many}
    assert (enqueue, twice, call) == pytest.approx((6.0, 9.0, 11.0), rel=0.1)
    assert [hosts.measurement(r) for r in few] == [r.measurement for r in few]
    hosts.calibrate(many, slower(3.0, 1.0))
    assert hosts.measurement(many[0]).enqueue_us == pytest.approx(9.0, rel=0.1), (
        "9 us here, 6 there"
    )
    assert hosts.measurement(many[0]).kernel_us == many[0].measurement.kernel_us


def test_many_records_of_a_kind_from_here_count_for_those_from_elsewhere() -> None:
    def here(channels: int) -> Record:
        taken = record(channels, kernel="eng4_k1=2")
        return dataclasses.replace(
            taken,
            environment=dataclasses.replace(THERE, host="a slow one", boot="tuesday"),
            measurement=dataclasses.replace(taken.measurement, enqueue_us=7.0, e2e_us=24.0),
        )

    there = [record(c, kernel="eng4_k1=1") for c in range(8, 200, 8)]
    mine = [here(c) for c in range(8, 200, 8)]
    hosts = HostTimes("tuesday", usual=usual_times(samples([*there, *mine])))
    hosts.calibrate(there, slower(9.0, 9.0))
    assert (
        hosts.measurement(there[0]).enqueue_us == 7.0 and hosts.measurement(there[0]).e2e_us == 24.0
    )
    other = record(8, kernel="eng5")
    assert hosts.measurement(other).enqueue_us == pytest.approx(27.0), (
        "of another kind: by the ratio"
    )
    few = HostTimes("tuesday", usual=usual_times(samples([*there, *mine[:3]])))
    assert few.measurement(there[0]).enqueue_us == 3.0


def test_one_outlier_does_not_decide() -> None:
    there = Measurement(kernel_us=4.0, enqueue_us=3.0, e2e_us=11.0)
    here = [dataclasses.replace(there, enqueue_us=q) for q in (4.5, 4.4, 30.0, 4.6, 4.5)]
    assert ratio_of([(there, measured) for measured in here]).enqueue == pytest.approx(1.5)


def test_choice_is_of_the_common_kernel_and_does_not_depend_on_the_order() -> None:
    records = [record(c, kernel="rare.split2") for c in range(8, 40, 8)]
    records += [record(c, kernel=f"common.split{c % 3}") for c in range(8, 400, 8)]
    first = chosen(records)
    random.Random(1).shuffle(records)
    assert chosen(records) == first and len(first) == SAMPLES
    assert {r.candidate.kernel.split(".")[0] for r in first} == {"common"}


class Single(Backend):
    """Takes everything, with one kernel."""

    name = "single"

    def accepts(self, workload: Workload, device: Device) -> None:
        return None

    def propose(self, workload: Workload, device: Device) -> Sequence[Candidate]:
        return [Candidate(self.name, "k")]

    def build(self, workload: Workload, candidate: Candidate, device: Device) -> Binary:
        return Binary({}, {})


def chain(channels: Sequence[int] = (8, 16, 24, 32, 40, 48, 56, 64)) -> tvm.IRModule:
    """A 3x3 convolution after the other."""
    x = relax.Var("x", relax.TensorType((1, channels[0], 12, 12), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            y: relax.Expr = x
            for c, k in itertools.pairwise(channels):
                weights = relax.const(np.ones((k, c, 3, 3), "float32"))
                y = builder.emit(relax.op.nn.conv2d(y, weights, padding=1))
            out = builder.emit_output(y)
        builder.emit_func_output(out)
    return builder.get()


def test_placing_on_a_gpu_rescales_records_of_another_host(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """What convoy.place and convoy.build do where there is a GPU, without any option."""
    device, backend = Device(), Single()
    there = dataclasses.replace(
        THERE, gpu=device.name, sm_count=device.sm_count, convoy=environments.current().convoy
    )
    here = dataclasses.replace(there, host="a slow one", boot="tuesday")
    store = RecordStore(write_to=tmp_path / "records.jsonl")
    recorded = record(8).measurement
    for workload in pipeline.workloads_of(chain(), backends=[backend]):
        store.append(Record(workload, Candidate("single", "k"), recorded, there.narrowed((), "")))
    measured: list[Workload] = []

    def measure(workload: Workload, candidate: Candidate, *_: object, **__: object) -> Measurement:
        measured.append(workload)
        return slower(1.5, 1.2)(workload, candidate)

    monkeypatch.setattr(network, "present_device", lambda: device)
    monkeypatch.setattr(environments, "current", lambda *_: here)
    monkeypatch.setattr(protocol, "measure", measure)
    options = {"backends": [backend], "records": tmp_path / "records.jsonl"}
    placed = convoy.place(chain(), objective="stream", **options)
    assert placed.plan.source == "measured" and len(placed.plan.choices) == 7
    for choice in placed.plan.choices:
        found = choice.chosen.measurement
        assert found.kernel_us == recorded.kernel_us
        assert found.enqueue_us == pytest.approx(1.5 * 3.0)
        assert found.e2e_us == pytest.approx(4.0 + 1.2 * 7.0)
    assert len(measured) == SAMPLES, "a few stand for all, and nothing is measured again"
    again = convoy.place(chain(), objective="stream", measure=False, **options)
    assert again.plan.choices[0].chosen.measurement.enqueue_us == recorded.enqueue_us
    measured.clear()
    replayed = convoy.place(chain(), objective="graph", **options)
    assert not measured, "host times do not count in a CUDA graph"
    assert replayed.plan.choices[0].chosen.measurement.enqueue_us == recorded.enqueue_us
