"""Entries of fused kernels on host memory: compiled libraries, what they compute, and what the
runtime rejects."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm_ffi
from support import Fakes, blobs_of, compile_fake, kernel_entry, saved_and_loaded, small
from tests.helpers.kernel_abi.library import Library

from convoy import errors
from convoy.ir.workload import Workload
from convoy.measure import reference
from convoy.runtime import create_module

Arrays = dict[str, np.ndarray]


def fixtures(source: str) -> Iterator[Callable[..., Any]]:
    """Fixtures of a module's tests: ``library``, the path of one of the stand-ins, and ``blobs``,
    the library as modules carry it."""

    @pytest.fixture(scope="module")
    def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
        return compile_fake(Path(tmp_path_factory.mktemp("fused")), source)

    @pytest.fixture(scope="module")
    def blobs(library: Path) -> dict[str, bytes]:
        return blobs_of(library)

    yield from (library, blobs)


def arrays_of(workload: Workload) -> tuple[Arrays, Arrays]:
    """Random inputs, and results without values."""
    rng = np.random.default_rng(0)
    shapes = workload.operand_shapes()
    inputs, outputs = shapes[: -workload.num_outputs], shapes[-workload.num_outputs :]
    values = {name: rng.uniform(-1, 1, shape).astype(np.float32) for name, shape, _ in inputs}
    return values, {name: np.full(shape, np.nan, np.float32) for name, shape, _ in outputs}


def check(workload: Workload, values: Arrays, out: Arrays) -> None:
    for got, wanted in zip(out.values(), reference.full(workload, values), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-5)


def run(workload: Workload, blobs: dict[str, bytes], saved: bool = False) -> None:
    """Call a module of one entry, and compare its results."""
    module = create_module([kernel_entry(workload, blobs, arch=0)], blobs)
    module = saved_and_loaded(module) if saved else module
    values, out = arrays_of(workload)
    module["f"](*(tvm_ffi.from_dlpack(array) for array in (*values.values(), *out.values())))
    check(workload, values, out)


def check_called(library: Library, problem: Any, operands: Any, workload: Workload) -> None:
    """A library called from Python, without the runtime."""
    given = problem.of(workload, 1)
    assert not library.check(given)
    values, out = arrays_of(workload)
    fields = {"w": "filter"}
    addresses = {
        fields.get(name, name): array.ctypes.data for name, array in {**values, **out}.items()
    }
    library.prepare(given, operands(**addresses)).launch(0)
    check(workload, values, out)


def check_abi(problem: Any, operands: Any, count: int, expected: str) -> None:
    """Operands are this many pointers; a convolution is no such problem."""
    assert ctypes.sizeof(operands) == count * ctypes.sizeof(ctypes.c_void_p)
    with pytest.raises(errors.InvalidOption, match=expected):
        problem.of(small(), 1)


def check_other_libraries(
    workload: Workload, other: Workload, fakes: Fakes, blobs: dict[str, bytes], expected: str
) -> None:
    """A library of convolutions does not compute the workload, its own library no convolution, nor
    ``other``, which has 13 channels."""
    with pytest.raises(errors.CorruptArtefact, match=expected):
        run(workload, fakes.blobs)
    module = create_module([kernel_entry(small(), blobs, arch=0)], blobs)
    arrays = [np.zeros(shape, np.float32) for _, shape, _ in small().operand_shapes()]
    with pytest.raises(errors.CorruptArtefact, match="for another kind of problem"):
        module["f"](*map(tvm_ffi.from_dlpack, arrays))
    with pytest.raises(errors.CorruptArtefact, match="13 channels"):
        run(other, blobs)


def check_rejected(
    entry: dict[str, Any], blobs: dict[str, bytes], expected: str | None = None
) -> None:
    """No function is made of an entry."""
    with pytest.raises(errors.ConvoyError, match=expected):
        create_module([entry], blobs)["f"]


def entry_of(
    workload: Workload, convolution: Workload, blobs: dict[str, bytes], part: str | None
) -> dict[str, Any]:
    """The entry of a workload whose fields are those of a convolution, without ``part``."""
    entry = kernel_entry(workload, blobs, arch=0)
    entry["workload"] = {**entry["workload"], **convolution.to_json(), "op": workload.op}
    if part:
        del entry["workload"][part]
    return entry
