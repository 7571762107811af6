"""Predicted costs: learnt from records of other workloads, records themselves first."""

from __future__ import annotations

import math

import pytest

from convoy import paths
from convoy.cost.recorded import RecordedCost
from convoy.errors import InvalidOption
from convoy.ir.candidate import Candidate, make_config
from convoy.ir.device import Device
from convoy.ir.measurement import Measurement
from convoy.ir.workload import Workload
from convoy.records.environment import Environment
from convoy.records.record import Record
from convoy.records.store import RecordStore

pytest.importorskip("xgboost", reason="needs the tune extra")

from convoy.cost.predicted import FEWEST_WORKLOADS, PredictedCost

DEVICE = Device()
TILES = ((64, 64), (128, 64), (128, 128), (256, 128))


def conv(channels: int, size: int = 28) -> Workload:
    return Workload("fprop", 8, size, size, channels, channels, 3, 3, padding=(1, 1, 1, 1))


def candidates() -> list[Candidate]:
    return [
        Candidate(
            "cutlass",
            f"{rows}x{columns}",
            make_config(kernel={"family": "conv", "tile": [rows, columns, 64]}, split_k=1),
            priority=i,
        )
        for i, (rows, columns) in enumerate(TILES)
    ]


def truth(workload: Workload, candidate: Candidate) -> Measurement:
    """Waves of tiles, as a machine without secrets would take them."""
    rows, columns = map(int, candidate.kernel.split("x"))
    tiles = math.ceil(workload.n * workload.p * workload.q / rows) * math.ceil(workload.k / columns)
    us = 2.0 + math.ceil(tiles / 132) * rows * columns * workload.c / 1e6
    return Measurement(kernel_us=us, enqueue_us=4.0, e2e_us=us + 9.0, samples=10)


def records(gpu: str = "NVIDIA H200") -> list[Record]:
    environment = Environment(gpu=gpu)
    return [
        Record(workload, candidate, truth(workload, candidate), environment)
        for workload in [conv(c, s) for c in (32, 64, 96, 128, 192, 256) for s in (14, 28, 56)]
        for candidate in candidates()
    ]


def test_predicts_how_much_a_cold_cache_costs() -> None:
    import dataclasses

    def cold(record: Record) -> Record:
        figure = record.measurement
        assert figure.kernel_us is not None
        figure = dataclasses.replace(figure, cold_us=1.5 * figure.kernel_us)
        return dataclasses.replace(record, measurement=figure)

    model = PredictedCost([cold(record) for record in records()], DEVICE)
    for figure in model.measurements(conv(160, 28), candidates()):
        assert figure is not None and figure.kernel_us is not None
        assert figure.cold_us == pytest.approx(1.5 * figure.kernel_us, rel=0.02)
    (figure, *_) = PredictedCost(records(), DEVICE).measurements(conv(160, 28), candidates())
    assert figure is not None and figure.cold_us is None


def test_predicts_workloads_that_have_no_record() -> None:
    model = PredictedCost(records(), DEVICE, rounds=60, threads=1)
    unseen = conv(160)
    figures = model.measurements(unseen, candidates())
    for candidate, figure in zip(candidates(), figures, strict=True):
        assert figure is not None and figure.ok and figure.samples == 0
        right = truth(unseen, candidate)
        assert figure.kernel_us == pytest.approx(right.kernel_us, rel=0.5)
        assert figure.enqueue_us == pytest.approx(4.0, rel=0.2)
        assert figure.kernel_spread_us == pytest.approx(
            figure.kernel_us * min(1.0, model.errors["kernel_us"])
        )
    assert model.source == "predicted" and model.measures
    again = PredictedCost(records(), DEVICE, rounds=60, threads=1).measurements(
        unseen, candidates()
    )
    assert again == figures


def test_known_figures_come_first() -> None:
    class Known(RecordedCost):
        def __init__(self) -> None:
            pass

        def measurements(self, workload, candidates):  # type: ignore[no-untyped-def]
            return [Measurement(kernel_us=1.25), *[None] * (len(candidates) - 1)]

        def candidates(self, workload):  # type: ignore[no-untyped-def]
            return candidates()[:1]

    model = PredictedCost(records(), DEVICE, Known(), rounds=5, threads=1)
    first, *rest = model.measurements(conv(160), candidates())
    assert first == Measurement(kernel_us=1.25)
    assert all(figure is not None and figure.kernel_us != 1.25 for figure in rest)
    assert model.candidates(conv(160)) == candidates()[:1]
    assert model.measurements(conv(160), []) == []


def test_too_few_records_of_the_gpu_are_refused() -> None:
    with pytest.raises(InvalidOption, match="0 workloads on NVIDIA H200"):
        PredictedCost(records("another GPU"), DEVICE)
    few = [r for r in records() if r.workload.c == 32]
    assert len({r.workload for r in few}) < FEWEST_WORKLOADS
    with pytest.raises(InvalidOption):
        PredictedCost(few, DEVICE)


@pytest.mark.slow
def test_shipped_records_rank_workloads_that_they_do_not_hold() -> None:
    """The candidate that is predicted fastest is on average near the fastest."""
    store = RecordStore([paths.records_dir()])
    by_workload: dict[str, list[Record]] = {}
    for record in store:
        if record.measurement.ok and record.environment.gpu == DEVICE.name:
            by_workload.setdefault(record.workload.key, []).append(record)
    keys = sorted(key for key, found in by_workload.items() if len(found) > 5)
    held_out = keys[::4]
    model = PredictedCost([r for r in store if r.workload.key not in held_out], DEVICE)
    losses = []
    for key in held_out:
        found = by_workload[key]
        figures = model.measurements(found[0].workload, [r.candidate for r in found])
        picked = min(range(len(found)), key=lambda i: figures[i].kernel_us)
        best = min(r.measurement.kernel_us for r in found)
        losses.append(math.log(found[picked].measurement.kernel_us / best))
    assert sum(losses) / len(losses) < math.log(1.10)
