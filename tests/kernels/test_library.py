"""The ctypes mirror of the C ABI: same fields in the same order as the header."""

from __future__ import annotations

import re

import pytest

from convoy import paths
from convoy.backends.kernels.library import ABI_VERSION, Footprint, KernelLibrary, Operands, Shape
from convoy.errors import CorruptArtefact
from convoy.ir.epilogue import Epilogue
from convoy.ir.workload import Workload

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
    from convoy.backends.kernels import library

    monkeypatch.setattr(library, "load_cudart", lambda: None)
    (tmp_path / "kernel.so").write_bytes(b"not a library")
    with pytest.raises(CorruptArtefact, match="does not load"):
        KernelLibrary(tmp_path / "kernel.so")
