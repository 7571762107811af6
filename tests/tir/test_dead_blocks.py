"""Blocks whose results nothing reads are removed from kernels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax, te, tirx, topi
from tvm.relax import op

from convoy.ir.device import Device
from convoy.lower.passes import to_kernels
from convoy.lower.target import cuda_target
from convoy.streams.kernels import inspect
from convoy.tir.dead_blocks import without_dead_blocks
from convoy.tir.rules import schedule_kernels

from ..emulation.kernels import emulate

TARGET = cuda_target(Device())
SHAPE, HALF = (2, 32, 32, 64), (2, 16, 16, 64)


def fused(*factors: float) -> tirx.PrimFunc:
    """The kernel of the maxima of an image times numbers, added to another image."""
    builder = relax.BlockBuilder()
    x, y = (
        relax.Var(name, relax.TensorType(shape, "float32"))
        for name, shape in (("x", SHAPE), ("y", HALF))
    )
    with builder.function("main", [x, y]):
        with builder.dataflow():
            emit = builder.emit
            pooled = emit(op.nn.max_pool2d(x, (3, 3), (2, 2), (1, 1), layout="NHWC"))
            total = y
            for factor in factors:
                number = relax.const(np.float32(factor))
                total = emit(op.add(total, emit(op.multiply(pooled, number))))
            gv = builder.emit_output(op.nn.relu(total))
        builder.emit_func_output(gv)
    with TARGET:
        lowered = to_kernels(builder.get())
    (func,) = (f for f in lowered.functions.values() if isinstance(f, tirx.PrimFunc))
    return func


def scheduled(func: tirx.PrimFunc) -> tirx.PrimFunc:
    return schedule_kernels(TARGET)(tvm.IRModule({"main": func}))["main"]


@pytest.mark.parametrize(
    ("factors", "reads"), [((0.0,), False), ((0.0, 0.0), False), ((0.5, 0.0), True)]
)
def test_what_leads_to_nothing_goes(factors: tuple[float, ...], reads: bool) -> None:
    func = fused(*factors)
    assert ("pooled" in func.script()) == reads
    assert len(func.params) == 3
    assert inspect(scheduled(func), Device()).duration_us < 3.0


@pytest.mark.parametrize("factors", [(0.0,), (0.0, 0.5)])
def test_results_are_the_same(factors: tuple[float, ...]) -> None:
    rng = np.random.default_rng(0)
    x, y = (rng.standard_normal(shape).astype("float32") for shape in (SHAPE, HALF))
    *_, got = emulate(scheduled(fused(*factors)), TARGET, x, y, np.zeros_like(y))
    padded = np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)), constant_values=-np.inf)
    windows = [padded[:, r : r + 31 : 2, c : c + 31 : 2] for r in range(3) for c in range(3)]
    wanted = y + sum(factors) * np.maximum.reduce(windows)
    np.testing.assert_allclose(got, np.maximum(wanted, 0), rtol=1e-5, atol=1e-6)


def pooled(x: te.Tensor) -> te.Tensor:
    return topi.nn.pool2d(x, (3, 3), (1, 1), (1, 1), (1, 1, 1, 1), "max", layout="NHWC")


@pytest.mark.parametrize(
    "build",
    [
        lambda x, y: topi.add(pooled(x), y),
        lambda x, y: topi.nn.softmax(topi.add(x, y)),
        lambda x, y: topi.add(x, y),
        lambda x, y: topi.cast(topi.argsort(topi.add(x, y), dtype="int32"), "float32"),
    ],
)
def test_all_else_stays(build: Any) -> None:
    x, y = (te.placeholder(HALF, "float32", name=name) for name in "xy")
    func = te.create_prim_func([x, y, build(x, y)])
    assert without_dead_blocks(tvm.IRModule({"main": func}))["main"].script() == func.script()
