"""Gradients of softmaxes are one kernel each: as CUDA run on the CPU against NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import relax
from tvm.relax import op

from convoy.ir.device import Device
from convoy.pipeline import place

from ..emulation.network import Emulation


@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize("first", ["dy", "y"])
@pytest.mark.parametrize("axis", [-1, 1])
def test_gradient(dtype: str, first: str, axis: int) -> None:
    shape = (2, 3, 17)
    dy, y = (relax.Var(name, relax.TensorType(shape, dtype)) for name in ("dy", "y"))
    builder = relax.BlockBuilder()
    with builder.function("main", [dy, y]):
        with builder.dataflow():
            product = builder.emit(op.multiply(*((dy, y) if first == "dy" else (y, dy))))
            total = builder.emit(op.sum(product, [axis], keepdims=True))
            dx = builder.emit_output(op.multiply(builder.emit(op.subtract(dy, total)), y))
        builder.emit_func_output(dx)
    placement = place(builder.get(), precision=dtype, device=Device(), measure=False)
    emulation = Emulation(placement, 1)
    assert axis != -1 or [one.symbol for one in emulation.program.ops] == ["softmax_gradient"]
    rng = np.random.default_rng(0)
    given = [rng.standard_normal(shape).astype(dtype) for _ in range(2)]
    (found,) = emulation(*given)
    dy64, y64 = (value.astype("float64") for value in given)
    want = y64 * (dy64 - (dy64 * y64).sum(axis, keepdims=True))
    np.testing.assert_allclose(found, want, atol=2e-5 if dtype == "float32" else 2e-2)
