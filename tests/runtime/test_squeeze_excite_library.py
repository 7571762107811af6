"""Squeeze-and-excitation blocks through the runtime: a library on host memory, and what cannot
be."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import fused
import pytest
from fused import fixtures, run
from support import Fakes, kernel_entry
from tests.helpers.kernel_abi.squeeze_excite import (
    Operands,
    Problem,
    SqueezeExciteLibrary,
)

from convoy.ir.epilogue import Epilogue
from convoy.ir.squeeze_excite import SqueezeExcite, image_of
from convoy.ir.workload import Workload


def clip(low: float, high: float, residual: bool = False, bias: bool = True) -> Epilogue:
    return Epilogue(residual, bias, "clip", low, high)


ALL = Workload(
    "squeeze_excite", 3, 4, 5, 6, 6, 1, 1, dtype="float32", out_dtype="float32",
    epilogue=clip(-0.5, 0.75, True, False),
    squeeze_excite=SqueezeExcite(4, clip(-0.25, 0.5), clip(0.125, 1.0)),
)  # fmt: skip


def changed(workload: Workload = ALL, **fields: Any) -> Workload:
    own = dataclasses.replace(workload.squeeze_excite, **fields)
    return dataclasses.replace(workload, squeeze_excite=own)


BARE = dataclasses.replace(ALL, epilogue=Epilogue(), squeeze_excite=SqueezeExcite(4))

library, blobs = fixtures("fake_squeeze_excite.cc")


@pytest.mark.parametrize(
    "workload",
    [
        ALL,
        BARE,
        dataclasses.replace(ALL, epilogue=Epilogue()),
        dataclasses.replace(ALL, epilogue=Epilogue(residual=True)),
        dataclasses.replace(BARE, epilogue=clip(-0.25, 0.25, False, False)),
        changed(squeeze_epilogue=Epilogue()),
        changed(squeeze_epilogue=clip(-0.25, 0.25, False, False)),
        changed(gate_epilogue=Epilogue(bias=True)),
        changed(BARE, channels=1),
    ],
    ids=lambda w: w.key,
)
def test_computes_what_the_workload_says(workload: Workload, blobs: dict[str, bytes]) -> None:
    run(workload, blobs)
    run(workload, blobs, saved=True)


@pytest.mark.parametrize("workload", [ALL, BARE], ids=lambda w: w.key)
def test_called_from_python(workload: Workload, library: Path) -> None:
    loaded = SqueezeExciteLibrary(library)
    assert loaded.check(Problem.of(changed(channels=13), 1)) == "13 channels"
    fused.check_called(loaded, Problem, Operands, workload)
    fused.check_abi(Problem, Operands, 7, "a squeeze-and-excitation block")


def test_libraries_of_another_kind(fakes: Fakes, blobs: dict[str, bytes]) -> None:
    fused.check_other_libraries(
        ALL, changed(channels=13), fakes, blobs, "no squeeze-and-excitation blocks"
    )


@pytest.mark.parametrize(
    "changes",
    [
        {"channels": 0},
        {"channels": None},
        {"channels": 2**31},
        {"squeeze_epilogue": {"residual": True}},
        {"squeeze_epilogue": {"activation": "cosine"}},
        {"gate_epilogue": {"affine_relu": True}},
    ],
    ids=str,
)
def test_a_wrong_block_is_rejected(changes: Any, blobs: dict[str, bytes]) -> None:
    entry = kernel_entry(ALL, blobs, arch=0)
    entry["workload"]["squeeze_excite"].update(changes)
    fused.check_rejected(entry, blobs)


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"k": 12},
        {"groups": 2},
        {"stride": (2, 1)},
        {"padding": (1, 0, 0, 0)},
        {"r": 3},
        {"out_dtype": "float16"},
        {"epilogue": Epilogue(bias=True)},
        {"epilogue": Epilogue(True, activation="relu", residual_last=True)},
        {"epilogue": Epilogue(affine_relu=True)},
    ],
    ids=str,
)
def test_other_images_are_rejected(fields: Any, blobs: dict[str, bytes]) -> None:
    image = dataclasses.replace(image_of(ALL), **fields)
    part = None if fields else "squeeze_excite"
    fused.check_rejected(fused.entry_of(ALL, image, blobs, part), blobs)


@pytest.mark.parametrize("name", ["x", "y", "residual"])
def test_rows_are_no_slices(name: str, blobs: dict[str, bytes]) -> None:
    entry = kernel_entry(ALL, blobs, arch=0)
    entry["workload"]["row_strides"] = {name: 16}
    fused.check_rejected(entry, blobs, "row_strides")
