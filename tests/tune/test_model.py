"""Features and the ranking model, on made-up times and on shipped records."""

from __future__ import annotations

import math

import numpy as np
import pytest
from tests.tune import fakes

from convoy import paths
from convoy.backends import registry
from convoy.cost import features
from convoy.cost.ranking import SLOWEST, RankingModel, Sample, relative
from convoy.ir.candidate import Candidate, make_config
from convoy.ir.device import Device
from convoy.ir.measurement import Measurement
from convoy.ir.workload import Workload
from convoy.records.record import candidate_key
from convoy.records.store import RecordStore
from convoy.tune.guided import ModelGuided
from convoy.tune.space import Space
from convoy.tune.task import Task

pytest.importorskip("xgboost", reason="needs the tune extra")

H200 = Device()
CONV = Workload("fprop", 8, 28, 28, 128, 128, 3, 3, padding=(1, 1, 1, 1))


def sample(i: int, count: int = 20) -> Sample:
    of = fakes.workload(i)
    times = [
        (c, Measurement(kernel_us=fakes.time_us(of, c))) for c in fakes.space(of, count).candidates
    ]
    return Sample(of, tuple(times))


def of(workload: Workload, candidate: Candidate) -> dict[str, float]:
    (row,) = features.matrix(workload, [candidate], H200)
    return dict(zip(features.NAMES, row.tolist(), strict=True))


def tiled(tile: tuple[int, int, int], split: int = 1) -> Candidate:
    kernel = {"family": "sm90_conv", "tile": list(tile), "cluster": [2, 1]}
    return Candidate("cutlass", "k", make_config(kernel=kernel, split_k=split, swizzle=0))


def test_tiles_and_waves() -> None:
    found = of(CONV, tiled((128, 64, 64)))
    tiles = math.ceil(8 * 28 * 28 / 128) * 2
    assert found["log_tiles"] == pytest.approx(math.log2(tiles))
    assert found["waves"] == pytest.approx(tiles / 132)
    assert found["last_wave"] == pytest.approx(tiles / 132)
    assert found["steps"] == 9 * 128 / 64
    assert (found["row_use"], found["column_use"], found["cluster"]) == (1.0, 1.0, 2.0)
    split = of(CONV, tiled((128, 64, 64), split=3))
    assert split["waves"] == pytest.approx(3 * tiles / 132)
    assert split["steps"] == 9 * 128 / 64 / 3
    assert of(CONV, tiled((128, 256, 64)))["column_use"] == 0.5


def test_knobs_of_engines() -> None:
    found = of(CONV, fakes.candidate(5))
    assert (found["engine"], found["knob14"], found["knob2"]) == (5, 5, 0)
    assert math.isnan(found["knob27"]) and math.isnan(found["tile_rows"])


@pytest.mark.parametrize("op", ["fprop", "dgrad", "wgrad"])
def test_backward_products_have_the_sizes_of_the_output(op: str) -> None:
    w = Workload(op, 8, 28, 28, 64, 128, 3, 3, stride=(2, 2), padding=(1, 1, 1, 1))
    _, rows, columns, depth = w.gemms
    assert rows * columns * depth * 2 >= w.flops
    assert (rows, columns) == {
        "fprop": (8 * 14 * 14, 128),
        "dgrad": (8 * 28 * 28, 64),
        "wgrad": (128, 64 * 9),
    }[op]


def test_every_candidate_of_every_backend_has_features() -> None:
    for op, size in (("fprop", 3), ("dgrad", 3), ("wgrad", 1)):
        w = Workload(op, 8, 28, 28, 128, 256, size, size, (2, 2), (size // 2,) * 4)
        for name in ("cutlass", "hopper"):
            proposed = registry.get(name).propose(w, H200)
            if isinstance(proposed, list):
                rows = features.matrix(w, proposed, H200)
                known = rows[:, [features.NAMES.index(n) for n in features.WORKLOAD]]
                assert np.isfinite(known).all()
                assert len(np.unique(rows, axis=0)) == len(proposed), "candidates look the same"


def test_relative_times() -> None:
    times = [
        (fakes.candidate(0), Measurement(kernel_us=4.0)),
        (fakes.candidate(1), Measurement(kernel_us=2.0)),
        (fakes.candidate(2), Measurement(failure="it broke")),
        (fakes.candidate(3), Measurement(kernel_us=1000.0)),
    ]
    logs = [log for _, log in relative(times)]
    assert logs == pytest.approx([math.log(2), 0.0, math.log(SLOWEST), math.log(SLOWEST)])
    assert relative(times[2:3]) == []


def test_what_is_learnt_carries_over_to_other_workloads() -> None:
    model = RankingModel(H200, members=2)
    model.fit(sample(i) for i in range(6))
    unseen = sample(9)
    candidates = [c for c, _ in unseen.measurements]
    predicted = model.predict(unseen.workload, candidates)
    true = np.array([log for _, log in relative(unseen.measurements)])
    assert predicted.mean.shape == predicted.deviation.shape == (20,)
    assert np.corrcoef(predicted.mean, true)[0, 1] > 0.9
    assert true[np.argmin(predicted.mean)] < 0.1


def test_equal_seeds_equal_models() -> None:
    def once(seed: int) -> list[float]:
        model = RankingModel(H200, members=2, seed=seed)
        model.fit([sample(2), sample(0), sample(1)])
        return model.predict(
            fakes.workload(7), fakes.space(fakes.workload(7)).candidates
        ).mean.tolist()

    assert once(1) == once(1) != once(2)


def test_too_little_to_learn_from() -> None:
    model = RankingModel(H200)
    model.fit([])
    assert not model.trained
    model.fit([Sample(CONV, ((fakes.candidate(0), Measurement(failure="no")),))])
    assert not model.trained
    search = ModelGuided(H200)
    task = Task(fakes.space(CONV), {})
    (first,) = search.pick([task], 3)
    assert [c.priority for c in first] == [0, 1, 2]  # the backend's own order


def test_a_guided_search_beats_a_random_one() -> None:
    prior = [sample(i) for i in range(6)]
    task = Task(fakes.space(fakes.workload(11)), {})
    (picked,) = ModelGuided(H200, prior).pick([task], 2)
    times = sorted(fakes.time_us(task.workload, c) for c in task.space.candidates)
    assert min(fakes.time_us(task.workload, c) for c in picked) <= times[1]


def test_a_kind_that_was_never_measured_gets_its_chance() -> None:
    """Engines 0 to 8 with three tiles each; the model knows that the last engines are bad."""

    def engine(i: int, tile: int) -> Candidate:
        options = make_config(engine=i, knobs=[[2, tile]])
        return Candidate("cudnn", f"eng{i}_k2={tile}", options, priority=3 * i + tile)

    candidates = tuple(engine(i, tile) for i in range(9) for tile in range(3))
    times = {candidate_key(c): Measurement(kernel_us=1.0 + c.priority / 4) for c in candidates}
    prior = [
        Sample(fakes.workload(i), tuple((c, times[candidate_key(c)]) for c in candidates))
        for i in range(6)
    ]
    task = Task(Space(CONV, candidates), times)
    search = ModelGuided(H200, prior)
    kinds: list[set[tuple[object, ...]]] = []
    for _ in range(3):
        (picked,) = search.pick([task], 4)
        assert len(picked) == 4
        kinds.append({features.kind(c) for c in picked})
        for candidate in picked:
            task.add(candidate, times[candidate_key(candidate)])
    assert kinds[1] - kinds[0] and kinds[2] - kinds[1] - kinds[0]


def test_kinds_of_candidates() -> None:
    def kernel(**changes: object) -> Candidate:
        described = {"family": "sm90_conv", "tile": [128, 64, 64], "scheduler": "tiles"}
        return Candidate("cutlass", "a", make_config(kernel=described | changes, swizzle=1))

    same = kernel(activation="relu"), kernel(activation="none")
    assert features.kind(same[0]) == features.kind(same[1])
    assert features.kind(kernel(tile=[64, 64, 64])) != features.kind(same[0])
    rows = Candidate("hopper", "b", make_config(kernel={"rows": 64, "columns": 64}))
    assert features.kind(rows) != features.kind(same[0])


def test_learning_ahead_changes_no_choice() -> None:
    prior = [sample(i) for i in range(6)]
    known = {
        candidate_key(c): Measurement(kernel_us=1.0 + i)
        for i, c in enumerate(fakes.space(CONV).candidates)
    }

    def choices(ahead: bool) -> list[list[str]]:
        search, task = ModelGuided(H200, prior), Task(fakes.space(CONV), known)
        if ahead:
            search.begin()
        rounds = []
        for _ in range(2):
            (picked,) = search.pick([task], 3)
            for candidate in picked:
                task.add(candidate, known[candidate_key(candidate)])
            rounds.append([candidate.kernel for candidate in picked])
        return rounds

    assert choices(ahead=True) == choices(ahead=False)


def test_kernels_to_compile_must_be_worth_it() -> None:
    """Of candidates that are alike, those that need no compiler; a much better one all the same."""

    def times(j: int) -> float:
        return 2.0 if j == 6 else 5.0

    prior = [
        Sample(
            fakes.workload(i),
            tuple((fakes.candidate(j), Measurement(kernel_us=times(j))) for j in range(7)),
        )
        for i in range(4)
    ]

    def picked(count: int) -> set[int]:
        task = Task(fakes.space(CONV, count), {})
        search = ModelGuided(H200, prior, kernel=lambda c: "new" if c.priority in (0, 6) else "")
        return {candidate.priority for candidate in search.pick([task], 3)[0]}

    assert 0 not in picked(6)
    assert 6 in picked(7)


def test_shipped_records_teach_the_shipped_network() -> None:
    """Trained on half of ResNet-50's workloads, the best of the model's first five candidates of
    the other half is within 5% of the best of all, on average."""
    store = RecordStore([paths.records_dir() / "h200-resnet50-fprop-float16.jsonl.gz"])
    samples = []
    for workload in store.workloads():
        records = store.of(workload)
        if workload.n == 8 and len(records) >= 20:
            samples.append(Sample(workload, tuple((r.candidate, r.measurement) for r in records)))
    assert len(samples) >= 10
    model = RankingModel(H200, members=1)
    model.fit(samples[::2])
    shares = []
    for held_out in samples[1::2]:
        order = np.argsort(
            model.predict(held_out.workload, [c for c, _ in held_out.measurements]).mean
        )
        logs = np.array([log for _, log in relative(held_out.measurements)])
        shares.append(logs[order[:5]].min())
    assert np.mean(shares) < 0.05
