"""Programmatic launches of generated kernels: the wait comes first, and only where it may be."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
import tvm
from tvm.script import ir as I
from tvm.script import tirx as T

from convoy import programmatic
from convoy.backends.kernels.toolkit import Toolkit
from convoy.lower.compile import build_kernels


@I.ir_module
class Shared:
    """A kernel with shared memory, whose loads must not come before the wait."""

    @T.prim_func
    def f(a: T.Buffer((256,), "float32"), b: T.Buffer((256,), "float32")):
        T.func_attr({"global_symbol": "f", "tirx.noalias": True})
        block = T.launch_thread("blockIdx.x", 2)
        thread = T.launch_thread("threadIdx.x", 128)
        b[block * 128 + thread] = a[block * 128 + thread] + T.float32(1)


def source(arch: str) -> str:
    cuda = tvm.target.Target({"kind": "cuda", "arch": arch})
    built = build_kernels(tvm.IRModule(dict(Shared.functions)), tvm.target.Target(cuda, "llvm"))
    return str(built.imports[0].inspect_source())


def test_waits_before_anything_else() -> None:
    _, body = source("sm_90").rsplit("{\n", 1)
    wait, *rest = body.splitlines()
    assert "convoy_wait(" in wait
    assert all(name in wait for name in ("a_ptr", "b_ptr"))
    assert any("a_ptr" in line for line in rest)


def test_lets_its_successor_start_before_it_waits() -> None:
    text = source("sm_90")
    assert 0 <= text.find("griddepcontrol.launch_dependents;") < text.find("griddepcontrol.wait;")


@pytest.mark.parametrize(("arch", "switch"), [("sm_80", "1"), ("sm_90", "0")])
def test_other_gpus_and_the_switch(arch, switch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(programmatic.VARIABLE, switch)
    assert "griddepcontrol" not in source(arch)


def test_nothing_is_read_through_the_read_only_cache(toolkit: Toolkit, tmp_path: Path) -> None:
    """It may hold what was at an address before the predecessor wrote there."""
    (tmp_path / "f.cu").write_text(source("sm_90"))
    command = [
        str(toolkit.nvcc),
        "-arch=sm_90",
        "-ptx",
        "f.cu",
        *map("-I{}".format, toolkit.includes),
    ]
    subprocess.run([*command, "-o", "f.ptx"], cwd=tmp_path, check=True, capture_output=True)
    before, after = (tmp_path / "f.ptx").read_text().split("griddepcontrol.wait;")
    assert "ld.global" not in before
    assert "ld.global.f32" in after and "ld.global.nc" not in after
