"""Squeeze-and-excitation blocks through the runtime: a library on host memory, and what cannot
be."""

from __future__ import annotations

import ctypes
import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm_ffi
from support import Fakes, blobs_of, compile_fake, kernel_entry, saved_and_loaded, small

from convoy import errors
from convoy.backends.kernels.sm90.squeeze_excite_problem import (
    Operands,
    Problem,
    SqueezeExciteLibrary,
)
from convoy.ir.epilogue import Epilogue
from convoy.ir.squeeze_excite import SqueezeExcite, image_of
from convoy.ir.workload import Workload
from convoy.measure import reference
from convoy.runtime import create_module


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


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = Path(tmp_path_factory.mktemp("squeeze_excite"))
    return compile_fake(folder, "fake_squeeze_excite.cc")


@pytest.fixture(scope="module")
def blobs(library: Path) -> dict[str, bytes]:
    return blobs_of(library)


def arrays_of(workload: Workload) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Random inputs, and a result without values."""
    rng = np.random.default_rng(0)
    *inputs, (_, shape, _) = workload.operand_shapes()
    values = {name: rng.uniform(-1, 1, size).astype(np.float32) for name, size, _ in inputs}
    return values, np.full(shape, np.nan, np.float32)


def check(workload: Workload, values: dict[str, np.ndarray], out: np.ndarray) -> None:
    (wanted,) = reference.full(workload, values)
    np.testing.assert_allclose(out, wanted, rtol=1e-5, atol=1e-5)


def run(workload: Workload, blobs: dict[str, bytes], saved: bool = False) -> None:
    module = create_module([kernel_entry(workload, blobs, arch=0)], blobs)
    module = saved_and_loaded(module) if saved else module
    values, out = arrays_of(workload)
    module["f"](*(tvm_ffi.from_dlpack(array) for array in (*values.values(), out)))
    check(workload, values, out)


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
    problem = Problem.of(workload, 1)
    assert not loaded.check(problem)
    values, out = arrays_of(workload)
    given = {name: array.ctypes.data for name, array in {**values, "y": out}.items()}
    loaded.prepare(problem, Operands(**given)).launch(0)
    check(workload, values, out)
    assert ctypes.sizeof(Operands) == 7 * ctypes.sizeof(ctypes.c_void_p)
    with pytest.raises(errors.InvalidOption, match="a squeeze-and-excitation block"):
        Problem.of(small(), 1)


def test_libraries_of_another_kind(fakes: Fakes, blobs: dict[str, bytes]) -> None:
    with pytest.raises(errors.CorruptArtefact, match="no squeeze-and-excitation blocks"):
        run(ALL, fakes.blobs)
    module = create_module([kernel_entry(small(), blobs, arch=0)], blobs)
    arrays = [np.zeros(shape, np.float32) for _, shape, _ in small().operand_shapes()]
    with pytest.raises(errors.CorruptArtefact, match="for another kind of problem"):
        module["f"](*map(tvm_ffi.from_dlpack, arrays))
    with pytest.raises(errors.CorruptArtefact, match="13 channels"):
        run(changed(channels=13), blobs)


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
    with pytest.raises(errors.ConvoyError):
        create_module([entry], blobs)["f"]


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
    entry = kernel_entry(ALL, blobs, arch=0)
    image = dataclasses.replace(image_of(ALL), **fields)
    entry["workload"] = {**entry["workload"], **image.to_json(), "op": "squeeze_excite"}
    if not fields:
        del entry["workload"]["squeeze_excite"]
    with pytest.raises(errors.ConvoyError):
        create_module([entry], blobs)["f"]


@pytest.mark.parametrize("name", ["x", "y", "residual"])
def test_rows_are_no_slices(name: str, blobs: dict[str, bytes]) -> None:
    entry = kernel_entry(ALL, blobs, arch=0)
    entry["workload"]["row_strides"] = {name: 16}
    with pytest.raises(errors.ConvoyError, match="row_strides"):
        create_module([entry], blobs)["f"]
