"""Programmatic launches of generated kernels: the wait comes first, and only where it may be."""

from __future__ import annotations

import pytest
import tvm
from tvm.script import ir as I
from tvm.script import tirx as T

from convoy import programmatic
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
    trigger, wait, *rest = body.splitlines()
    assert "launch_dependents();" in trigger and "griddepcontrol_wait();" in wait
    assert any("a_ptr" in line for line in rest)


@pytest.mark.parametrize(("arch", "switch"), [("sm_80", "1"), ("sm_90", "0")])
def test_other_gpus_and_the_switch(arch, switch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(programmatic.VARIABLE, switch)
    assert "griddepcontrol" not in source(arch)
