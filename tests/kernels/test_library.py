"""The ctypes mirror of the C ABI: the fields of the header in order, and calls of a library."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import numpy as np
import pytest

from convoy import paths
from convoy.errors import CorruptArtefact, InvalidOption
from convoy.ir.attention import Attention, RowView
from convoy.ir.epilogue import Epilogue
from convoy.ir.workload import Workload

from ..helpers.kernel_abi import library
from ..helpers.kernel_abi.attention import AttentionLibrary, Problem
from ..helpers.kernel_abi.attention import Operands as AttentionOperands
from ..helpers.kernel_abi.library import ABI_VERSION, Footprint, KernelLibrary, Operands, Shape

ROOT = Path(__file__).resolve().parents[2]
HEADER = (paths.include_dir() / "convoy/kernel_abi.h").read_text()


def fields_in_header(struct: str) -> list[str]:
    body = re.search(rf"typedef struct {struct} {{(.*?)}} {struct};", HEADER, re.DOTALL).group(1)
    code = re.sub(r"//.*", "", body)
    return re.findall(r"(\w+)\s*(?=[,;])", code)


@pytest.mark.parametrize(
    ("struct", "mirror"),
    [("ConvoyShape", Shape), ("ConvoyOperands", Operands), ("ConvoyFootprint", Footprint)],
)
def test_fields(struct, mirror):
    assert [name for name, _ in mirror._fields_] == fields_in_header(struct)


def test_version():
    assert f"#define CONVOY_KERNEL_ABI_VERSION {ABI_VERSION}\n" in HEADER


def test_shape_of_a_workload():
    clip = Epilogue(activation="clip", clip_min=-1.0, clip_max=6.0)
    workload = Workload("fprop", 2, 9, 8, 4, 6, 3, 2, (2, 1), (1, 2, 3, 4), (1, 3), epilogue=clip)
    shape = Shape.of(workload, sm_count=132, split_k=5, swizzle=2)
    assert (shape.n, shape.h, shape.w, shape.c, shape.k, shape.r, shape.s) == (2, 9, 8, 4, 6, 3, 2)
    assert (shape.p, shape.q) == (workload.p, workload.q)
    assert (shape.pad_top, shape.pad_left, shape.pad_bottom, shape.pad_right) == (1, 2, 3, 4)
    assert (shape.stride_h, shape.stride_w, shape.dilation_h, shape.dilation_w) == (2, 1, 1, 3)
    assert (shape.groups, shape.split_k, shape.swizzle, shape.sm_count) == (1, 5, 2, 132)
    assert (shape.clip_min, shape.clip_max) == (-1.0, 6.0)


def test_file_that_is_no_library(tmp_path, monkeypatch):
    monkeypatch.setattr(library, "load_cudart", lambda: None)
    (tmp_path / "kernel.so").write_bytes(b"not a library")
    with pytest.raises(CorruptArtefact, match="does not load"):
        KernelLibrary(tmp_path / "kernel.so")


@pytest.fixture
def built(tmp_path, monkeypatch):
    """Compile one of the runtime tests' libraries, whose kernels work on host memory."""
    monkeypatch.setattr(library, "load_cudart", lambda: None)

    def build(name: str) -> Path:
        source, target = ROOT / f"tests/runtime/fakes/{name}.cc", tmp_path / f"{name}.so"
        flags = ["-std=c++17", "-shared", "-fPIC", "-w", f"-I{ROOT}/codegen/include"]
        subprocess.run(["g++", *flags, "-o", target, source, "-ldl"], check=True)
        return target

    return build


def test_kernel_library(built):
    loaded = KernelLibrary(built("fake_kernel"))
    workload = Workload("fprop", 1, 1, 3, 2, 1, 1, 1, dtype="float32", out_dtype="float32")
    shape = Shape.of(workload, sm_count=1)
    assert not loaded.check(shape) and loaded.workspace(shape) == 12
    x, w = np.array([[1, 2], [3, 4], [5, 6]], "float32"), np.array([10, 1], "float32")
    y, space = np.zeros(3, "float32"), np.zeros(3, "float32")
    operands = Operands(a=x.ctypes.data, b=w.ctypes.data, d=y.ctypes.data)
    operands.workspace = space.ctypes.data
    prepared = loaded.prepare(shape, operands)
    prepared.launch(0)
    assert y.tolist() == [12, 34, 56] and prepared.footprint().blocks == 1
    assert loaded.check(Shape.of(workload, 1, swizzle=99))
    with pytest.raises(InvalidOption, match="launch of the kernel library: "):
        loaded.prepare(Shape.of(workload, 1, swizzle=95), operands).launch(0)


def test_attention_library(built):
    loaded = AttentionLibrary(built("fake_attention"))
    rows = RowView((1, 2, 1, 2), strides=(0, 0, 0, 2))
    fields = Attention(rows, rows, rows, rows)
    workload = Workload("attention", 1, 2, 2, 2, 2, 1, 1, attention=fields)
    same = np.zeros(4, "float32")
    values, result = np.array([1, 2, 3, 4], "float32"), np.zeros(4, "float32")
    operands = AttentionOperands(same.ctypes.data, same.ctypes.data, values.ctypes.data)
    operands.o = result.ctypes.data
    loaded.prepare(Problem.of(workload), operands).launch(0)
    assert result.tolist() == [2, 3, 2, 3]  # equal scores: the mean of the values
    with pytest.raises(CorruptArtefact, match="that does not load"):
        AttentionLibrary(built("fake_kernel"))
