"""The model of kernels of which nothing is recorded, against times of an H200."""

from __future__ import annotations

import dataclasses
import statistics

import pytest

from convoy import paths
from convoy.cost import native
from convoy.cost.unrecorded import unrecorded
from convoy.ir.bottleneck import Bottleneck, parts
from convoy.ir.candidate import Candidate
from convoy.ir.device import Device
from convoy.ir.epilogue import Epilogue
from convoy.ir.expansion import Expansion
from convoy.ir.objective import device_us
from convoy.ir.squeeze_excite import squeeze_and_excite
from convoy.ir.workload import Workload
from convoy.records.store import RecordStore

from ..sm90.squeeze_excite_cases import made

CONV = Workload("fprop", 1, 14, 14, 256, 256, 3, 3, padding=(1, 1, 1, 1))
FIRST = Candidate("cudnn", "eng1")


def us(workload: Workload, candidate: Candidate = FIRST) -> float:
    found = unrecorded(workload, candidate, Device()).kernel_us
    assert found is not None
    return found


@pytest.mark.parametrize("backend", ["cudnn", "cutlass", "hopper"])
def test_the_best_kernels_of_resnet50(backend: str) -> None:
    best: dict[Workload, float] = {}
    for record in RecordStore(sorted(paths.records_dir().glob("*resnet50-*"))):
        workload, time = record.workload, device_us(record.measurement)
        if record.candidate.backend == backend and workload.op == "fprop" and time:
            best[workload] = min(time, best.get(workload, time))
    assert len(best) > 50
    ratios = [us(workload, Candidate(backend, "k")) / time for workload, time in best.items()]
    assert statistics.geometric_mean(ratios) == pytest.approx(1.0, abs=0.25)
    assert statistics.mean(0.6 < ratio < 1.7 for ratio in ratios) > 0.9


def test_the_pointwise_kernels_of_mobilenet() -> None:
    best: dict[Workload, tuple[float, Candidate]] = {}
    for record in RecordStore(sorted(paths.records_dir().glob("*mobilenet*"))):
        workload, time = record.workload, record.measurement.kernel_us
        if record.candidate.kernel.startswith("pointwise_conv") and workload.n > 1 and time:
            found = time, dataclasses.replace(record.candidate, priority=0)
            best[workload] = min(found, best.get(workload, found), key=lambda pair: pair[0])
    assert len(best) > 30
    ratios = [us(workload, candidate) / time for workload, (time, candidate) in best.items()]
    assert statistics.geometric_mean(ratios) == pytest.approx(1.0, abs=0.15)
    assert statistics.mean(0.7 < ratio < 1.4 for ratio in ratios) > 0.9


def test_larger_and_deeper_ones_and_later_candidates_take_longer() -> None:
    assert us(CONV) < us(dataclasses.replace(CONV, n=64))
    assert us(CONV) < us(CONV, Candidate("cudnn", "eng2", priority=1))
    wide = dataclasses.replace(CONV, c=512, k=128)  # as many multiply-adds
    assert us(CONV) < us(wide)


def test_libraries_pad_channels() -> None:
    stem = Workload("fprop", 64, 224, 224, 3, 64, 7, 7, stride=(2, 2), padding=(3, 3, 3, 3))
    padded = dataclasses.replace(stem, c=8)
    assert (
        us(padded) - us(stem)
        < 1.0
        < us(padded, Candidate("hopper", "k")) - us(stem, Candidate("hopper", "k"))
    )


def test_two_convolutions_in_one_kernel_take_less_than_two_kernels() -> None:
    kernel = Candidate("hopper", "k")
    depthwise = Workload("fprop", 64, 56, 56, 144, 144, 3, 3, padding=(1, 1, 1, 1), groups=144)
    expand = Workload("fprop", 64, 56, 56, 24, 144, 1, 1)
    both = dataclasses.replace(depthwise, op="expand_depthwise", expansion=Expansion(24))
    deeper = dataclasses.replace(both, expansion=Expansion(240))
    assert us(both, kernel) < us(depthwise, kernel) + us(expand, kernel)
    assert us(both, kernel) < us(deeper, kernel)


ADDED = Epilogue(residual=True, bias=True, activation="relu")


def bottleneck(n: int, reduce: int = 64, epilogue: Epilogue = ADDED) -> Workload:
    return Workload(
        "bottleneck", n, 56, 56, 64, 64, 3, 3, padding=(1, 1, 1, 1),
        bottleneck=Bottleneck(256, epilogue, reduce),
    )  # fmt: skip


@pytest.mark.parametrize("reduce", [0, 64])
@pytest.mark.parametrize("n", [1, 8, 64, 256])
def test_a_bottleneck_is_never_much_less_than_its_convolutions(n: int, reduce: int) -> None:
    w = bottleneck(n, reduce)
    together, apart = us(w, Candidate("hopper", "bottleneck_f16")), sum(map(us, parts(w)))
    assert together >= 0.6 * apart
    if reduce:  # two thirds of the bytes
        assert together < 0.95 * apart


def test_a_bottleneck_takes_longer_by_what_it_adds() -> None:
    kernel = Candidate("hopper", "bottleneck_f16")
    bare = bottleneck(64, 0, Epilogue())
    assert us(bare, kernel) < us(bottleneck(64, 0), kernel) < us(bottleneck(64), kernel)


BLOCK = Candidate("hopper", "squeeze_excite_f16")


@pytest.mark.parametrize(("c", "squeezed"), [(32, 8), (96, 8), (480, 24), (2048, 128)])
@pytest.mark.parametrize("size", [7, 28, 56])
@pytest.mark.parametrize("n", [1, 8, 64])
def test_a_block_is_never_much_less_than_its_kernels(
    n: int, size: int, c: int, squeezed: int
) -> None:
    w = made(n, size, c, squeezed)
    image = 2 * w.pixels * w.c
    apart = sum(native.moving_us(size, Device()) for size in (image, 2 * image))
    apart += us(squeeze_and_excite(w)[0], Candidate("cudnn", ""))
    assert us(w, BLOCK) > max(6.0, 0.8 * apart)
    if image > 16 << 20:
        assert us(w, BLOCK) > 1.5 * apart


def test_a_block_takes_longer_by_what_it_adds() -> None:
    plain, added = made(8, 56, 96, 8), made(8, 56, 96, 8, y="relu", residual=True)
    assert us(plain, BLOCK) < us(added, BLOCK)
    assert us(made(1, 14, 96, 8), BLOCK) < us(made(1, 14, 2400, 200), BLOCK)
