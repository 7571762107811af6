"""1x1 convolutions with depthwise ones through the runtime: a library on host memory, and what
cannot be."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import fused
import pytest
from fused import fixtures, run
from support import Fakes, kernel_entry
from tests.helpers.kernel_abi.expansion import ExpansionLibrary, Operands, Problem

from convoy.ir.epilogue import Epilogue
from convoy.ir.expansion import Expansion
from convoy.ir.workload import Workload

CLIP = Epilogue(bias=True, activation="clip", clip_min=-0.5, clip_max=0.5)
PAIR = Workload(
    "expand_depthwise", 2, 9, 8, 6, 6, 3, 2, (2, 1), (1, 0, 1, 1), (1, 2), groups=6,
    dtype="float32", out_dtype="float32", epilogue=CLIP,
    expansion=Expansion(4, dataclasses.replace(CLIP, clip_max=0.25)),
)  # fmt: skip


def changed(workload: Workload = PAIR, **fields: Any) -> Workload:
    return dataclasses.replace(
        workload, expansion=dataclasses.replace(workload.expansion, **fields)
    )


BARE = changed(dataclasses.replace(PAIR, epilogue=Epilogue()), epilogue=Epilogue())

library, blobs = fixtures("fake_expansion.cc")


@pytest.mark.parametrize(
    "workload",
    [
        PAIR,
        BARE,
        dataclasses.replace(PAIR, epilogue=Epilogue()),
        changed(epilogue=Epilogue()),
        changed(channels=1),
    ],
    ids=lambda w: w.key,
)
def test_computes_what_the_workload_says(workload: Workload, blobs: dict[str, bytes]) -> None:
    run(workload, blobs)
    run(workload, blobs, saved=True)


def test_called_from_python(library: Path) -> None:
    loaded = ExpansionLibrary(library)
    assert loaded.check(Problem.of(changed(channels=13), 1)) == "13 channels"
    fused.check_called(loaded, Problem, Operands, PAIR)
    fused.check_abi(Problem, Operands, 6, "an expansion")


def test_libraries_of_another_kind(fakes: Fakes, blobs: dict[str, bytes]) -> None:
    fused.check_other_libraries(PAIR, changed(channels=13), fakes, blobs, "one convolution only")


@pytest.mark.parametrize(
    "changes",
    [
        {"channels": 0},
        {"channels": None},
        {"channels": 2**31},
        {"epilogue": {"residual": True}},
        {"epilogue": {"affine_relu": True}},
        {"epilogue": {"activation": "cosine"}},
    ],
    ids=str,
)
def test_a_wrong_expansion_is_rejected(changes: Any, blobs: dict[str, bytes]) -> None:
    entry = kernel_entry(PAIR, blobs, arch=0)
    entry["workload"]["expansion"].update(changes)
    fused.check_rejected(entry, blobs)


@pytest.mark.parametrize(
    "fields", [{}, {"groups": 2}, {"k": 12}, {"epilogue": Epilogue(residual=True)}], ids=str
)
def test_other_convolutions_are_rejected(fields: Any, blobs: dict[str, bytes]) -> None:
    convolution = dataclasses.replace(PAIR, op="fprop", expansion=None, **fields)
    part = None if fields else "expansion"
    fused.check_rejected(fused.entry_of(PAIR, convolution, blobs, part), blobs)


def test_rows_are_no_slices(blobs: dict[str, bytes]) -> None:
    entry = kernel_entry(PAIR, blobs, arch=0)
    entry["workload"]["row_strides"] = {"y": 8}
    fused.check_rejected(entry, blobs, "row_strides")
