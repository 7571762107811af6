"""1x1 convolutions with depthwise ones through the runtime: a library on host memory, and what
cannot be."""

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
from convoy.backends.kernels.sm90.expansion_problem import ExpansionLibrary, Operands, Problem
from convoy.ir.epilogue import Epilogue
from convoy.ir.expansion import Expansion
from convoy.ir.workload import Workload
from convoy.measure import reference
from convoy.runtime import create_module

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


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_fake(Path(tmp_path_factory.mktemp("expansion")), "fake_expansion.cc")


@pytest.fixture(scope="module")
def blobs(library: Path) -> dict[str, bytes]:
    return blobs_of(library)


def arrays_of(workload: Workload) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Random inputs, and a result without values."""
    rng = np.random.default_rng(0)
    *shapes, (_, out_shape, _) = workload.operand_shapes()
    values = {name: rng.uniform(-1, 1, shape).astype(np.float32) for name, shape, _ in shapes}
    return values, np.full(out_shape, np.nan, np.float32)


def run(workload: Workload, blobs: dict[str, bytes], saved: bool = False) -> None:
    module = create_module([kernel_entry(workload, blobs, arch=0)], blobs)
    module = saved_and_loaded(module) if saved else module
    values, out = arrays_of(workload)
    module["f"](*(tvm_ffi.from_dlpack(array) for array in (*values.values(), out)))
    (wanted,) = reference.full(workload, values)
    np.testing.assert_allclose(out, wanted, rtol=1e-5, atol=1e-5)


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
    problem = Problem.of(PAIR, 1)
    assert not loaded.check(problem)
    values, out = arrays_of(PAIR)
    fields = {"w": "filter"}
    given = {fields.get(name, name): array.ctypes.data for name, array in values.items()}
    loaded.prepare(problem, Operands(**given, y=out.ctypes.data)).launch(0)
    np.testing.assert_allclose(out, reference.full(PAIR, values)[0], rtol=1e-5, atol=1e-5)
    assert ctypes.sizeof(Operands) == 6 * ctypes.sizeof(ctypes.c_void_p)
    with pytest.raises(errors.InvalidOption, match="an expansion"):
        Problem.of(small(), 1)


def test_libraries_of_another_kind(fakes: Fakes, blobs: dict[str, bytes]) -> None:
    with pytest.raises(errors.CorruptArtefact, match="one convolution only"):
        run(PAIR, fakes.blobs)
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
        {"epilogue": {"residual": True}},
        {"epilogue": {"affine_relu": True}},
        {"epilogue": {"activation": "cosine"}},
    ],
    ids=str,
)
def test_a_wrong_expansion_is_rejected(changes: Any, blobs: dict[str, bytes]) -> None:
    entry = kernel_entry(PAIR, blobs, arch=0)
    entry["workload"]["expansion"].update(changes)
    with pytest.raises(errors.ConvoyError):
        create_module([entry], blobs)["f"]


@pytest.mark.parametrize(
    "fields", [{}, {"groups": 2}, {"k": 12}, {"epilogue": Epilogue(residual=True)}], ids=str
)
def test_other_convolutions_are_rejected(fields: Any, blobs: dict[str, bytes]) -> None:
    entry = kernel_entry(PAIR, blobs, arch=0)
    convolution = dataclasses.replace(PAIR, op="fprop", expansion=None, **fields)
    entry["workload"] = {**entry["workload"], **convolution.to_json(), "op": "expand_depthwise"}
    if not fields:
        del entry["workload"]["expansion"]
    with pytest.raises(errors.ConvoyError):
        create_module([entry], blobs)["f"]


def test_rows_are_no_slices(blobs: dict[str, bytes]) -> None:
    entry = kernel_entry(PAIR, blobs, arch=0)
    entry["workload"]["row_strides"] = {"y": 8}
    with pytest.raises(errors.ConvoyError, match="row_strides"):
        create_module([entry], blobs)["f"]
