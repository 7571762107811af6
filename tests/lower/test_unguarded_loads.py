"""Loads in front of the conditions that guard them: by source, and run on the host."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm.script import ir as I
from tvm.script import tirx as T

from convoy.lower.compile import build_kernels

from ..emulation.kernels import emulated

TARGET = tvm.target.Target("nvidia/nvidia-h100", host="llvm")
COUNT, AT = 64, 5


@I.ir_module
class Kernels:
    @T.prim_func
    def padded(a: T.Buffer((50,), "float32"), b: T.Buffer((64,), "float16")):
        T.func_attr({"global_symbol": "padded", "tirx.noalias": True})
        i = T.launch_thread("threadIdx.x", 64)
        b[i] = T.if_then_else(
            i >= 5 and i < 55, T.Cast("float16", a[i - 5] * T.float32(2)), T.float16(-1)
        )

    @T.prim_func
    def joined(
        a: T.Buffer((50,), "float32"), c: T.Buffer((14,), "float32"), b: T.Buffer((64,), "float32")
    ):
        T.func_attr({"global_symbol": "joined", "tirx.noalias": True})
        i = T.launch_thread("threadIdx.x", 64)
        b[i] = T.if_then_else(i < 50, a[i], c[i - 50])

    @T.prim_func
    def gathered(
        a: T.Buffer((50,), "float32"), c: T.Buffer((14,), "int32"), b: T.Buffer((64,), "float32")
    ):
        T.func_attr({"global_symbol": "gathered", "tirx.noalias": True})
        i = T.launch_thread("threadIdx.x", 64)
        b[i] = T.if_then_else(i < 14, a[c[i]], T.float32(0))


def source(name: str) -> str:
    own = tvm.IRModule({name: Kernels[name]})
    return str(build_kernels(own, TARGET).imports[0].inspect_source())


def test_all_loads_come_before_the_choice() -> None:
    _, body = source("padded").rsplit("{\n", 1)
    assert "if (" not in body and "a_ptr[(inside ? at : 0)]" in body


@pytest.mark.parametrize("name", ["joined", "gathered"])
def test_what_stays_a_branch(name: str) -> None:
    """Both tensors would be read; the place would be read where there is none."""
    assert "if (" in source(name) and "inside" not in source(name)


def test_values_outside_are_the_constant() -> None:
    a = np.arange(50, dtype="float32")
    b = tvm.runtime.tensor(np.full(COUNT, 9, "float16"))
    with emulated():
        built = build_kernels(tvm.IRModule({"padded": Kernels["padded"]}), TARGET)
        built["padded"](tvm.runtime.tensor(a), b)
    want = np.full(COUNT, -1, "float16")
    want[AT : AT + 50] = 2 * a
    np.testing.assert_array_equal(b.numpy(), want)


def test_vectors_stay_vectors() -> None:
    """Eight channels of a padded tensor are one load of 16 bytes, wherever it is from."""

    @T.prim_func
    def shifted(a: T.Buffer((512,), "float16"), b: T.Buffer((640,), "float16")):
        T.func_attr({"global_symbol": "shifted", "tirx.noalias": True})
        i = T.launch_thread("threadIdx.x", 80)
        for j in T.vectorized(8):
            b[i * 8 + j] = T.if_then_else(i >= 8 and i < 72, a[i * 8 + j - 64], T.float16(0))

    text = str(
        build_kernels(tvm.IRModule({"shifted": shifted}), TARGET).imports[0].inspect_source()
    )
    assert ("*(uint4*)(a_ptr" in text) and "inside ?" in text
