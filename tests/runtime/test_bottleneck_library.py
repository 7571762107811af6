"""Convolutions with 1x1 ones behind them through the runtime: a library on host memory, and what
cannot be."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import fused
import pytest
from fused import fixtures, run
from support import Fakes, kernel_entry
from tests.helpers.kernel_abi.bottleneck import BottleneckLibrary, Operands, Problem

from convoy.ir.bottleneck import Bottleneck
from convoy.ir.epilogue import Epilogue
from convoy.ir.workload import Workload


def clip(low: float, high: float, residual: bool = False) -> Epilogue:
    return Epilogue(residual, True, "clip", low, high)


ALL = Workload(
    "bottleneck", 2, 9, 8, 4, 6, 3, 2, padding=(1, 0, 1, 1), dilation=(1, 2), dtype="float32",
    out_dtype="float32", epilogue=clip(-0.5, 0.75),
    bottleneck=Bottleneck(10, clip(-0.25, 1.0, True), 5, clip(-1.0, 0.5)),
)  # fmt: skip


def changed(workload: Workload = ALL, **fields: Any) -> Workload:
    bottleneck = dataclasses.replace(workload.bottleneck, **fields)
    return dataclasses.replace(workload, bottleneck=bottleneck)


PAIR = changed(reduce=0, reduce_epilogue=Epilogue())
BARE = dataclasses.replace(ALL, epilogue=Epilogue(), bottleneck=Bottleneck(10))

library, blobs = fixtures("fake_bottleneck.cc")


@pytest.mark.parametrize(
    "workload",
    [
        ALL,
        PAIR,
        BARE,
        dataclasses.replace(ALL, epilogue=Epilogue()),
        changed(expand_epilogue=Epilogue()),
        changed(expand_epilogue=Epilogue(residual=True)),
        changed(expand_epilogue=Epilogue(bias=True)),
        changed(reduce_epilogue=Epilogue()),
        changed(BARE, reduce=1),
    ],
    ids=lambda w: w.key,
)
def test_computes_what_the_workload_says(workload: Workload, blobs: dict[str, bytes]) -> None:
    run(workload, blobs)
    run(workload, blobs, saved=True)


@pytest.mark.parametrize("workload", [ALL, PAIR, BARE], ids=lambda w: w.key)
def test_called_from_python(workload: Workload, library: Path) -> None:
    loaded = BottleneckLibrary(library)
    assert loaded.check(Problem.of(changed(expand=13), 1)) == "13 channels"
    fused.check_called(loaded, Problem, Operands, workload)
    fused.check_abi(Problem, Operands, 10, "a bottleneck")


def test_libraries_of_another_kind(fakes: Fakes, blobs: dict[str, bytes]) -> None:
    fused.check_other_libraries(ALL, changed(expand=13), fakes, blobs, "computes no bottlenecks")


@pytest.mark.parametrize(
    "changes",
    [
        {"expand": 0},
        {"expand": None},
        {"expand": 2**31},
        {"reduce": -1},
        {"reduce": 2**31},
        {"reduce": 0},
        {"expand_epilogue": {"affine_relu": True}},
        {"expand_epilogue": {"residual": True, "residual_last": True}},
        {"expand_epilogue": {"activation": "cosine"}},
        {"reduce_epilogue": {"residual": True}},
        {"reduce_epilogue": {"affine_relu": True}},
    ],
    ids=str,
)
def test_a_wrong_bottleneck_is_rejected(changes: Any, blobs: dict[str, bytes]) -> None:
    entry = kernel_entry(ALL, blobs, arch=0)
    entry["workload"]["bottleneck"].update(changes)
    fused.check_rejected(entry, blobs)


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"groups": 2},
        {"stride": (2, 1)},
        {"out_dtype": "float16"},
        {"epilogue": Epilogue(residual=True)},
    ],
    ids=str,
)
def test_other_convolutions_are_rejected(fields: Any, blobs: dict[str, bytes]) -> None:
    convolution = dataclasses.replace(ALL, op="fprop", bottleneck=None, **fields)
    part = None if fields else "bottleneck"
    fused.check_rejected(fused.entry_of(ALL, convolution, blobs, part), blobs)


@pytest.mark.parametrize("name", ["x", "y", "z", "residual"])
def test_rows_are_no_slices(name: str, blobs: dict[str, bytes]) -> None:
    entry = kernel_entry(ALL, blobs, arch=0)
    entry["workload"]["row_strides"] = {name: 16}
    fused.check_rejected(entry, blobs, "row_strides")
