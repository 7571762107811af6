"""Functions on slices: tensors of some channels of wider tensors, in whose memory they lie."""

from __future__ import annotations

import hashlib
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm_ffi
from support import Fakes, aligned, compile_fake, kernel_entry, small

from convoy import errors
from convoy.ir.epilogue import Epilogue
from convoy.ir.workload import Workload
from convoy.measure import reference
from convoy.runtime import create_module
from convoy.runtime.library import load_runtime

#: Row strides by operand, and the first channel of each in its wide tensor.
ROWS, BEGIN = {"x": 12, "residual": 16, "y": 20}, {"x": 4, "residual": 8, "y": 8}
WORKLOAD = small(epilogue=Epilogue(residual=True, bias=True))


@pytest.fixture(scope="module")
def blobs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The kernel library that takes slices."""
    folder = Path(tmp_path_factory.mktemp("strided"))
    content = compile_fake(folder, "fake_kernel.cc", "", "-DSTRIDED").read_bytes()
    return {hashlib.sha256(content).hexdigest(): content}


def sliced(workload: Workload, rows: dict[str, Any]) -> dict[str, Any]:
    return {**workload.to_json(), "row_strides": rows}


def arrays(workload: Workload) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Random operands in wide tensors, and the wide tensors, NaN around them."""
    rng = np.random.default_rng(0)
    wide = []
    operands = []
    for name, shape, _ in workload.operand_shapes():
        wide.append(aligned((*shape[:-1], ROWS.get(name, shape[-1]))))
        begin = BEGIN.get(name, 0)
        operands.append(wide[-1][..., begin : begin + shape[-1]])
    for operand in operands[:-1]:
        operand[...] = rng.uniform(-1, 1, operand.shape)
    return operands, wide


def module(rows: dict[str, Any], blobs: dict[str, bytes]) -> Any:
    entry = kernel_entry(WORKLOAD, blobs, arch=0)
    return create_module([{**entry, "workload": sliced(WORKLOAD, rows)}], blobs)


def test_a_kernel_reads_and_writes_channels_of_wider_tensors(blobs: dict[str, bytes]) -> None:
    operands, wide = arrays(WORKLOAD)
    module(ROWS, blobs)["f"](*map(tvm_ffi.from_dlpack, operands))
    names = [name for name, _, _ in WORKLOAD.operand_shapes()]
    (wanted,) = reference.full(WORKLOAD, dict(zip(names, operands, strict=True)))
    np.testing.assert_allclose(operands[-1], wanted, rtol=1e-4, atol=1e-5)
    around = np.delete(wide[-1], np.s_[8:16], axis=-1)
    assert np.isnan(around).all(), "nothing beside the slice is written"


def test_operands_have_the_strides_that_the_function_is_of(blobs: dict[str, bytes]) -> None:
    rows = {"y": ROWS["y"]}
    operands, _ = arrays(WORKLOAD)
    for place, name in ((0, "x"), (2, "residual")):
        with pytest.raises(ValueError, match=rf"argument {place} \({name}\).*expected compact"):
            module(rows, blobs)["f"](*map(tvm_ffi.from_dlpack, operands))
        operands[place] = np.ascontiguousarray(operands[place])
    compact = [*operands[:-1], aligned(operands[-1].shape)]
    with pytest.raises(ValueError, match=r"\(y\).*expected rows of stride 20"):
        module(rows, blobs)["f"](*map(tvm_ffi.from_dlpack, compact))


def test_a_kernel_library_without_slices(fakes: Fakes) -> None:
    operands, _ = arrays(WORKLOAD)
    with pytest.raises(errors.CorruptArtefact, match="takes no slices of wider tensors"):
        module(ROWS, fakes.blobs)["f"](*map(tvm_ffi.from_dlpack, operands))


@pytest.mark.parametrize(
    "rows", [{"y": 7}, {"w": 64}, {"bias": 16}, {"z": 16}, {"y": 1 << 40}], ids=str
)
def test_row_strides_that_there_cannot_be(rows: dict[str, int], blobs: dict[str, bytes]) -> None:
    with pytest.raises(errors.InvalidWorkload, match=r"row_strides.*expected those of x, y or"):
        module(rows, blobs)


@pytest.mark.parametrize(
    ("offset", "row", "words"),
    [(-16, 8, "bytes at -16"), (16, 8, "of an arena"), (0, 3, "overlap")],
)
def test_slices_stay_inside_their_arena(offset: int, row: int, words: str) -> None:
    load_runtime()
    make = tvm_ffi.get_global_func("convoy.streams.slice")
    arena = tvm_ffi.from_dlpack(aligned((2, 8)))
    last = make(arena, 16, tvm_ffi.Shape((2, 4)), tvm_ffi.dtype("float32"), 8)
    assert np.from_dlpack(last).strides == (32, 4)
    with pytest.raises(ValueError, match=words):
        make(arena, offset, tvm_ffi.Shape((2, 5)), tvm_ffi.dtype("float32"), row)


def test_a_gemm_by_cublaslt(fakes: Fakes) -> None:
    """On the stand-in, which multiplies by the leading dimensions that it is given."""
    code = """
        from convoy.backends.cublaslt import CublasLtBackend
        from convoy.measure import reference
        from convoy.runtime.device import current_device
        import tvm_ffi
        load_runtime()
        types = {"dtype": "float32", "out_dtype": "float32"}
        epilogue = Epilogue(residual=True, bias=True, activation="relu")
        w = Workload("fprop", n=2, h=3, w=4, c=8, k=12, r=1, s=1, epilogue=epilogue, **types)
        backend, device = CublasLtBackend(), current_device()
        candidate = backend.propose(w, device)[0]
        assert backend.sliceable(w, candidate, device) >= {"x", "residual", "y"}
        rows = {"x": 16, "residual": 20, "y": 24}
        binary = backend.build_sliced(w, candidate, device, rows)
        make, rng = tvm_ffi.get_global_func("convoy.streams.slice"), np.random.default_rng(0)
        tensors, given, wide = [], {}, None
        for name, shape, _ in w.operand_shapes():
            row = rows.get(name, shape[-1])
            wide = rng.uniform(-1, 1, (*shape[:-1], row)).astype("float32")
            tensor = function("cuda.empty")(wide.shape, "float32", 0)
            function("cuda.copy")(tvm_ffi.from_dlpack(wide), tensor)
            begin = 4 if name in rows else 0
            given[name] = wide[..., begin : begin + shape[-1]]
            dtype = tvm_ffi.dtype("float32")
            tensors.append(make(tensor, 4 * begin, tvm_ffi.Shape(shape), dtype, row)
                           if name in rows else tensor)
        create_module([{**binary.entry, "symbol": "f"}], {})["f"](*tensors)
        (wanted,) = reference.full(w, given)
        got = to_host(tensor)
        result([float(np.abs(got[..., 4:16] - wanted).max()),
                bool((np.delete(got == wide, np.s_[4:16], -1)).all())])
    """
    error, around = fakes.run(textwrap.dedent(code))
    assert error < 1e-5 and around
