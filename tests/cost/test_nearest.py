"""Estimates for workloads that nobody has measured, from records of others."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from convoy import paths
from convoy.cost.model import CostModel
from convoy.cost.nearest import Neighbours, least_us
from convoy.cost.price import price
from convoy.cost.recorded import RecordedCost
from convoy.cost.unrecorded import unrecorded
from convoy.ir.bottleneck import Bottleneck
from convoy.ir.candidate import Candidate, Decline
from convoy.ir.device import Device
from convoy.ir.epilogue import Epilogue
from convoy.ir.expansion import Expansion
from convoy.ir.measurement import Measurement
from convoy.ir.squeeze_excite import SqueezeExcite
from convoy.ir.workload import Workload
from convoy.partition.match_graph import MatchGraph, Op, Subgraph
from convoy.records.environment import Environment, for_device
from convoy.records.record import HostSample, Record
from convoy.records.store import RecordStore

H200 = Device()
FAST, SLOW = Candidate("cudnn", "eng1_k2=1"), Candidate("cudnn", "eng3_k2=1")


def conv(size: int, **others: object) -> Workload:
    return Workload("fprop", 1, size, size, 256, 256, 3, 3, padding=(1, 1, 1, 1), **others)  # type: ignore[arg-type]


def sample(candidate: Candidate, us: float, gpu: str = H200.name) -> HostSample:
    return HostSample(
        candidate.backend, candidate.kernel, 0, "host", "", 3.0, 0.1, 6.0, 0.5, gpu, us, None
    )


def of(samples: dict[Workload, list[HostSample]], device: Device) -> Neighbours:
    return Neighbours(sorted(samples), samples.__getitem__, device)


def ranked(neighbours: Neighbours, workload: Workload, *candidates: Candidate) -> list[str]:
    found = zip(neighbours.estimates(workload, candidates), candidates, strict=True)
    return [c.kernel for _, c in sorted(found, key=lambda pair: pair[0].kernel_us)]


def test_dense_convolutions_say_little_of_depthwise_ones() -> None:
    dense = {conv(28): [sample(FAST, 9.0)]}
    depthwise = dataclasses.replace(conv(28), groups=256)
    (few,) = of(dense, H200).estimates(depthwise, [FAST])
    (known,) = of({**dense, depthwise: [sample(FAST, 9.0)]}, H200).estimates(depthwise, [FAST])
    assert few is not None and known is not None
    assert few.kernel_us > 10 * least_us(depthwise, H200)
    assert known.kernel_us < 10 * least_us(depthwise, H200)


def test_expansions_are_near_those_of_as_many_channels() -> None:
    fields = {"op": "expand_depthwise", "groups": 256}
    one, other, between = (
        dataclasses.replace(conv(28), expansion=Expansion(channels), **fields)
        for channels in (16, 160, 128)
    )
    samples = {one: [sample(FAST, 5.0), sample(SLOW, 9.0)]}
    samples[other] = [sample(FAST, 90.0), sample(SLOW, 50.0)]
    assert ranked(of(samples, H200), between, FAST, SLOW) == [SLOW.kernel, FAST.kernel]


def test_bottlenecks_are_near_those_of_as_many_results() -> None:
    def of_sizes(expand: int, reduce: int = 0) -> Workload:
        sizes = Bottleneck(expand, reduce=reduce)
        return dataclasses.replace(conv(28), op="bottleneck", bottleneck=sizes)

    samples = {of_sizes(256): [sample(FAST, 5.0), sample(SLOW, 9.0)]}
    samples[of_sizes(256, 64)] = [sample(FAST, 90.0), sample(SLOW, 50.0)]
    neighbours = of(samples, H200)
    assert ranked(neighbours, of_sizes(200, 48), FAST, SLOW) == [SLOW.kernel, FAST.kernel]
    assert ranked(neighbours, of_sizes(200), FAST, SLOW) == [FAST.kernel, SLOW.kernel]


def test_bottlenecks_take_their_tiles_one_after_the_other() -> None:
    """Fewer tiles than there are SMs take as long as one; an image of one row has as many tiles as
    one of eight rows."""

    def image(n: int, h: int, w: int) -> Workload:
        sizes = Bottleneck(512, reduce=128)
        return Workload("bottleneck", n, h, w, 128, 128, 3, 3, padding=(1,) * 4, bottleneck=sizes)

    neighbours = of({image(1, 28, 28): [sample(FAST, 12.0)]}, H200)
    (same,) = neighbours.estimates(image(1, 28, 28), [FAST])
    (smaller,) = neighbours.estimates(image(1, 14, 14), [FAST])
    assert smaller.kernel_us == same.kernel_us
    (images,) = neighbours.estimates(image(1, 8, 8 * 1000), [FAST])
    (rows,) = neighbours.estimates(image(1, 1, 8 * 1000), [FAST])
    assert rows.kernel_us > 0.8 * images.kernel_us


def test_blocks_are_near_those_of_as_many_squeezed_channels() -> None:
    def of_sizes(channels: int) -> Workload:
        image = Workload("fprop", 8, 28, 28, 96, 96, 1, 1)
        own = SqueezeExcite(channels)
        return dataclasses.replace(image, op="squeeze_excite", squeeze_excite=own)

    samples = {of_sizes(8): [sample(FAST, 5.0), sample(SLOW, 9.0)]}
    samples[of_sizes(256)] = [sample(FAST, 90.0), sample(SLOW, 50.0)]
    neighbours = of(samples, H200)
    assert ranked(neighbours, of_sizes(200), FAST, SLOW) == [SLOW.kernel, FAST.kernel]
    assert ranked(neighbours, of_sizes(12), FAST, SLOW) == [FAST.kernel, SLOW.kernel]


def test_near_workloads_decide_which_kernel_wins() -> None:
    small = {conv(7): [sample(FAST, 5.0), sample(SLOW, 9.0)]}
    large = {conv(112): [sample(FAST, 90.0), sample(SLOW, 60.0)]}
    neighbours = of(small | large, H200)
    assert ranked(neighbours, conv(8), SLOW, FAST)[0] == FAST.kernel
    assert ranked(neighbours, conv(100), SLOW, FAST)[0] == SLOW.kernel
    estimate = neighbours.estimates(conv(8), [FAST])[0]
    assert estimate is not None and estimate.estimated
    assert estimate.e2e_us == pytest.approx(estimate.kernel_us + 6.0)
    assert estimate.enqueue_us == pytest.approx(3.0)
    assert not dataclasses.replace(estimate, samples=9).estimated


@pytest.mark.parametrize("factor", [4, 16])
def test_time_grows_with_the_work(factor: int) -> None:
    neighbours = of({conv(56): [sample(FAST, 40.0)]}, H200)
    one, many = (
        neighbours.estimates(dataclasses.replace(conv(56), n=n), [FAST])[0].kernel_us
        for n in (8, 8 * factor)
    )
    assert 0.7 * factor < many / one <= factor


def test_other_precisions_count_by_their_peak() -> None:
    known = {conv(56, dtype="float16"): [sample(FAST, 40.0)]}
    neighbours = of(known, H200)
    half, brain, rounded, exact = (
        neighbours.estimates(dataclasses.replace(conv(56), n=64, **types), [FAST])[0].kernel_us
        for types in (
            {},
            {"dtype": "bfloat16", "out_dtype": "bfloat16"},
            {"dtype": "float32", "out_dtype": "float32", "math": "tf32"},
            {"dtype": "float32", "out_dtype": "float32"},
        )
    )
    assert half == pytest.approx(brain)
    assert half < rounded < exact


def test_timings_of_another_gpu_are_scaled_by_its_own_roofline() -> None:
    """What memory bounds takes longer by the ratio of the bandwidths, what arithmetic bounds as
    long; on a GPU that is not known, only the order of its kernels counts beside other ones."""
    slow = dataclasses.replace(H200, name="NVIDIA H100", memory_bandwidth=H200.memory_bandwidth / 2)
    by_memory = Workload("fprop", 64, 112, 112, 64, 64, 1, 1)
    by_arithmetic = dataclasses.replace(conv(14), n=64, c=4096, k=4096)
    for workload, factor in ((by_memory, 2.0), (by_arithmetic, 1.0)):
        known = {workload: [sample(FAST, 1000.0)]}
        (there,) = of(known, slow).estimates(workload, [FAST])
        assert there.kernel_us == pytest.approx(1000.0 * factor, rel=0.02)
    unknown = [sample(FAST, 9000.0, "GPU X"), sample(SLOW, 27000.0, "GPU X")]
    (alone,) = of({conv(56): unknown}, slow).estimates(conv(56), [FAST])
    assert alone.kernel_us == pytest.approx(9000.0)
    both = {conv(56): unknown, conv(112): [sample(FAST, 90.0, slow.name)]}
    fast, behind = of(both, slow).estimates(conv(112), [FAST, SLOW])
    assert fast.kernel_us == pytest.approx(90.0)
    assert behind.kernel_us > 1.2 * fast.kernel_us


def test_own_timings_count_beside_those_of_other_gpus() -> None:
    """The first measurement on a GPU says nothing of workloads unlike it, and more than another
    GPU's of one alike."""
    here = dataclasses.replace(H200, name="NVIDIA H100")
    shipped = {conv(7): [sample(FAST, 5.0), sample(SLOW, 9.0)]}
    shipped |= {conv(112): [sample(FAST, 90.0), sample(SLOW, 60.0)]}
    own = {conv(7): [*shipped[conv(7)], *(sample(c, 6.0, here.name) for c in (FAST, SLOW))]}
    own[conv(7)] += [sample(Candidate("cudnn", "eng5"), 3.0, here.name)]
    neighbours = of(shipped | own, here)
    assert ranked(neighbours, conv(112), FAST, SLOW)[0] == SLOW.kernel
    assert ranked(neighbours, conv(8), FAST, Candidate("cudnn", "eng5"))[0] == "eng5"


def test_without_records_of_an_operator_a_model_estimates_its_kernels() -> None:
    neighbours = of({conv(7): [sample(FAST, 5.0)]}, H200)
    wgrad = dataclasses.replace(conv(7), op="wgrad")
    assert neighbours.estimates(wgrad, [FAST]) == [unrecorded(wgrad, FAST, H200)]
    assert of({}, H200).estimates(conv(7), [SLOW]) == [unrecorded(conv(7), SLOW, H200)]


def test_the_samples_of_lines_are_those_of_records(tmp_path: Path) -> None:
    """Lines are scanned; a record that is parsed says the same."""
    shipped = sorted(paths.records_dir().glob("*resnet18-*"))
    store = RecordStore(shipped)
    scanned = {w: found for w in store.recorded() if (found := store.samples(w))}
    parsed: dict[Workload, list[HostSample]] = {}
    for record in RecordStore(shipped):
        if (found := record.host_sample()) is not None:
            parsed.setdefault(record.workload, []).append(found)
    assert {w: sorted(map(repr, found)) for w, found in scanned.items()} == {
        w: sorted(map(repr, found)) for w, found in parsed.items()
    }


def test_the_latest_of_two_measurements_counts(tmp_path: Path) -> None:
    records = RecordStore(write_to=tmp_path / "own.jsonl")
    here = Environment(gpu=H200.name)
    for time, us in (("2026-01-02", 4.0), ("2026-01-01", 8.0), ("2026-01-03", 0.0005)):
        times = Measurement(us, 0.1, None, 3.0, 0.1, us + 9.0, 0.2, samples=5)
        records.append(Record(conv(7), FAST, times, here, time))
    (found,) = RecordStore(tmp_path / "own.jsonl").samples(conv(7))
    assert found.kernel_us == 4.0, "0.5 ns is no time of a kernel"


def test_the_records_of_far_workloads_are_not_read() -> None:
    known = {conv(7 * n): [sample(FAST, float(n))] for n in range(1, 20)}
    known[conv(70)] = []  # failures only
    asked: list[Workload] = []

    def samples(workload: Workload) -> list[HostSample]:
        asked.append(workload)
        return known[workload]

    neighbours = Neighbours(sorted(known), samples, H200)
    found = neighbours.estimates(conv(71), [FAST])
    assert found == neighbours.estimates(conv(71), [FAST])
    assert set(asked) == {conv(size) for size in (56, 63, 70, 77, 84)}, "four with timings"
    del known[conv(70)]
    assert found == of(known, H200).estimates(conv(71), [FAST])


class Both:
    """A backend with two candidates for everything."""

    name, after_others_us = "cudnn", (0.0, 0.0)

    def accepts(self, *_: object) -> None:
        return None

    def check(self, candidate: Candidate) -> None:
        pass

    def is_programmatic(self, candidate: Candidate, device: Device) -> bool:
        return False

    def propose_all(self, workloads, device, compiled):  # type: ignore[no-untyped-def]
        return [[FAST, SLOW] for _ in workloads]

    def estimate_us(self, *_: object) -> None:
        return None


def test_only_operations_without_any_record_are_estimated() -> None:
    def graph(workload: Workload) -> MatchGraph:
        one = Subgraph("a#0", ("a",), ("a",), workload, "a")
        return MatchGraph((Op("a", ("x",)),), (one,), ("x",), ("a",), None, ("cudnn",), H200)

    records = RecordStore([paths.records_dir()])
    costs = RecordedCost(records, for_device(H200), device=H200)
    known = next(w for w in records.recorded() if w.op == "fprop")
    unknown = dataclasses.replace(known, n=5)
    for workload, estimated in ((known, False), (unknown, True)):
        offers = price([graph(workload)], [Both()], H200, costs)[workload]  # type: ignore[list-item]
        assert offers.measured
        assert all(offer.measurement.estimated is estimated for offer in offers.measured)


def test_estimates_of_alternatives_are_scaled_by_what_is_measured() -> None:
    """An operation's fused form is estimated like its bare form, which took half as long."""
    bare, fused = conv(28), conv(28, epilogue=Epilogue(activation="relu"))

    class Bare(Both):
        name = "bare"

        def accepts(self, workload: Workload, _device: Device) -> Decline | None:
            return Decline("bare", "an epilogue") if workload == fused else None

        def propose_all(self, workloads, device, compiled):  # type: ignore[no-untyped-def]
            return [[Candidate("bare", "kernel")] for _ in workloads]

    class Half(CostModel):
        estimating = True

        def measurements(self, workload, candidates):  # type: ignore[no-untyped-def]
            known = [c.backend == "bare" for c in candidates]
            return [Measurement(kernel_us=5.0, samples=9) if k else None for k in known]

        def estimates(self, workload, candidates):  # type: ignore[no-untyped-def]
            us = 10.0 if workload == bare else 12.0
            return [Measurement(us, 1.0, e2e_us=us + 9.0) for _ in candidates]

    subgraphs = (
        Subgraph("a#0", ("a", "b"), ("b",), fused, "a", declines=(Decline("bare", "an epilogue"),)),
        Subgraph("a#1", ("a",), ("a",), bare, "a"),
    )
    operations, backends = (Op("a", ("x",)), Op("b", ("a",))), ("cudnn", "bare")
    graph = MatchGraph(operations, subgraphs, ("x",), ("b",), None, backends, H200)
    offers = price([graph], [Both(), Bare()], H200, Half())  # type: ignore[list-item]
    for offer in offers[fused].measured:
        assert offer.measurement.estimated and offer.measurement.kernel_us == pytest.approx(6.0)
        assert offer.measurement.e2e_us == pytest.approx(15.0)
    assert len(offers[fused].measured) == 2
    assert [offer.measurement.kernel_us for offer in offers[bare].measured] == [5.0]


def test_forms_of_a_network_share_what_there_is_to_measure() -> None:
    """Their workloads are announced together, each as often as in one form."""

    def form(stem: Workload) -> MatchGraph:
        loads = {"a": stem, "b": conv(28), "c": conv(28)}
        operations = tuple(Op(name, (before,)) for name, before in zip("abc", "xab", strict=True))
        subgraphs = tuple(Subgraph(f"{n}#0", (n,), (n,), w, n) for n, w in loads.items())
        return MatchGraph(operations, subgraphs, ("x",), ("c",), None, ("cudnn",), H200)

    class Asked(CostModel):
        free, told = False, ()

        def weigh(self, occurrences):  # type: ignore[no-untyped-def]
            self.told = (*self.told, dict(occurrences))

        def measurements(self, workload, candidates):  # type: ignore[no-untyped-def]
            return [Measurement(5.0, samples=9) for _ in candidates]

    costs, stems = Asked(), (conv(56), conv(112))
    offers = price([form(stem) for stem in stems], [Both()], H200, costs)  # type: ignore[list-item]
    assert costs.told == ({stems[0]: 1, conv(28): 2, stems[1]: 1},)
    assert set(offers) == {*stems, conv(28)}
