"""Kernels of programs are compiled once where they are the same."""

from __future__ import annotations

from typing import Any

import pytest
import tvm
from tvm import te

from convoy.lower import lowered
from convoy.lower.lowered import Lowered
from convoy.tir.rules import schedule_kernels

TARGET = tvm.target.Target({"kind": "cuda", "arch": "sm_90a"})


def program(factor: int) -> Lowered:
    x = te.placeholder((64,), "float32", name="x")
    y = te.compute((64,), lambda i: x[i] * factor, name="y")
    mod = tvm.IRModule({"kernel": te.create_prim_func([x, y])})
    return Lowered(schedule_kernels(TARGET)(mod), TARGET)


def test_equal_kernels_are_compiled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    built: list[tvm.IRModule] = []
    compile_them = lowered.build_kernels

    def build_kernels(functions: tvm.IRModule, *options: Any) -> object:
        built.append(functions)
        return compile_them(functions, *options)

    monkeypatch.setattr(lowered, "build_kernels", build_kernels)
    lowered._kernels.cache_clear()
    first, again, other = (program(factor).kernels for factor in (3, 3, 4))
    assert len(built) == 2
    assert first is not None and again is not None and other is not None
    assert first.same_as(again) and not first.same_as(other)
    assert first.implements_function("kernel")
    lowered._kernels.cache_clear()
