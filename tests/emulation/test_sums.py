"""Sums over rows and over everything, as scheduled for an H200, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import relax
from tvm.relax import op

from convoy.ir.device import Device
from convoy.pipeline import place

from .network import Emulation


@pytest.mark.parametrize(
    ("shape", "axes", "launches"),
    [
        ((40, 20, 30, 24), [0, 1, 2], 2),  # images are the parts
        ((40, 20, 30, 24), None, 2),
        ((36000, 8), [0], 2),  # the operands are views of parts
        ((17, 31, 41), None, 2),
        ((20011, 9), [0], 3),  # a prime number of rows
        ((40022,), None, 3),  # the product of a prime
        ((3, 2400, 8), [1], 2),  # parts of an axis between others
        ((2, 30011, 3), [1], 3),
    ],
)
def test_sum_of_products(shape: tuple[int, ...], axes: list[int] | None, launches: int) -> None:
    x, y = (relax.Var(name, relax.TensorType(shape, "float32")) for name in "xy")
    builder = relax.BlockBuilder()
    with builder.function("main", [x, y]):
        with builder.dataflow():
            product = builder.emit(op.multiply(x, y))
            result = builder.emit_output(op.sum(product, axes))
        builder.emit_func_output(result)
    emulation = Emulation(place(builder.get(), precision="float32", device=Device(), measure=False))
    rng = np.random.default_rng(0)
    a, b = (rng.uniform(-1, 1, shape).astype("float32") for _ in range(2))
    (found,) = emulation(a, b)
    exact = (a.astype("float64") * b).sum(None if axes is None else tuple(axes))
    np.testing.assert_allclose(found, exact, rtol=1e-4, atol=1e-2)
    assert len(emulation.schedule.ops) == launches, [op.name for op in emulation.schedule.ops]
