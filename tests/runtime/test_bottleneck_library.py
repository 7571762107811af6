"""Convolutions with 1x1 ones behind them through the runtime: a library on host memory, and what
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
from convoy.backends.kernels.sm90.bottleneck_problem import BottleneckLibrary, Operands, Problem
from convoy.ir.bottleneck import Bottleneck
from convoy.ir.epilogue import Epilogue
from convoy.ir.workload import Workload
from convoy.measure import reference
from convoy.runtime import create_module


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


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_fake(Path(tmp_path_factory.mktemp("bottleneck")), "fake_bottleneck.cc")


@pytest.fixture(scope="module")
def blobs(library: Path) -> dict[str, bytes]:
    return blobs_of(library)


def arrays_of(workload: Workload) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Random inputs, and results without values."""
    rng = np.random.default_rng(0)
    shapes = workload.operand_shapes()
    inputs, outputs = shapes[: -workload.num_outputs], shapes[-workload.num_outputs :]
    values = {name: rng.uniform(-1, 1, shape).astype(np.float32) for name, shape, _ in inputs}
    return values, {name: np.full(shape, np.nan, np.float32) for name, shape, _ in outputs}


def check(workload: Workload, values: dict[str, np.ndarray], out: dict[str, np.ndarray]) -> None:
    for got, wanted in zip(out.values(), reference.full(workload, values), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-5)


def run(workload: Workload, blobs: dict[str, bytes], saved: bool = False) -> None:
    module = create_module([kernel_entry(workload, blobs, arch=0)], blobs)
    module = saved_and_loaded(module) if saved else module
    values, out = arrays_of(workload)
    module["f"](*(tvm_ffi.from_dlpack(array) for array in (*values.values(), *out.values())))
    check(workload, values, out)


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
    problem = Problem.of(workload, 1)
    assert not loaded.check(problem)
    values, out = arrays_of(workload)
    fields = {"w": "filter"}
    given = {fields.get(name, name): array.ctypes.data for name, array in {**values, **out}.items()}
    loaded.prepare(problem, Operands(**given)).launch(0)
    check(workload, values, out)
    assert ctypes.sizeof(Operands) == 10 * ctypes.sizeof(ctypes.c_void_p)
    with pytest.raises(errors.InvalidOption, match="a bottleneck"):
        Problem.of(small(), 1)


def test_libraries_of_another_kind(fakes: Fakes, blobs: dict[str, bytes]) -> None:
    with pytest.raises(errors.CorruptArtefact, match="computes no bottlenecks"):
        run(ALL, fakes.blobs)
    module = create_module([kernel_entry(small(), blobs, arch=0)], blobs)
    arrays = [np.zeros(shape, np.float32) for _, shape, _ in small().operand_shapes()]
    with pytest.raises(errors.CorruptArtefact, match="for another kind of problem"):
        module["f"](*map(tvm_ffi.from_dlpack, arrays))
    with pytest.raises(errors.CorruptArtefact, match="13 channels"):
        run(changed(expand=13), blobs)


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
    with pytest.raises(errors.ConvoyError):
        create_module([entry], blobs)["f"]


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
    entry = kernel_entry(ALL, blobs, arch=0)
    convolution = dataclasses.replace(ALL, op="fprop", bottleneck=None, **fields)
    entry["workload"] = {**entry["workload"], **convolution.to_json(), "op": "bottleneck"}
    if not fields:
        del entry["workload"]["bottleneck"]
    with pytest.raises(errors.ConvoyError):
        create_module([entry], blobs)["f"]


@pytest.mark.parametrize("name", ["x", "y", "z", "residual"])
def test_rows_are_no_slices(name: str, blobs: dict[str, bytes]) -> None:
    entry = kernel_entry(ALL, blobs, arch=0)
    entry["workload"]["row_strides"] = {name: 16}
    with pytest.raises(errors.ConvoyError, match="row_strides"):
        create_module([entry], blobs)["f"]
