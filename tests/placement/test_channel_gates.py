"""The last product of a squeeze-and-excitation block is left to the kernel that scales the image by
it, where that is estimated to be faster."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.relax import op

from convoy.cost import native
from convoy.ir.device import Device
from convoy.ir.workload import Workload
from convoy.pipeline.network import place

from ..emulation.network import Emulation
from ..graph.kernels import conv
from ..helpers.errors import l2_error


def weights(*shape: int) -> np.ndarray:
    scale = float(np.sqrt(np.prod(shape[1:])))
    values = np.random.default_rng(len(shape)).standard_normal(shape) / scale
    return values.astype("float16")


def excited(images: int, size: int, channels: int, squeezed: int, apart: bool) -> tvm.IRModule:
    """A depthwise convolution, a squeeze-and-excitation block and a convolution; ``apart`` has the
    gates as a second result."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((images, size, size, channels), "float16"))
    emit = builder.emit

    def layer(y: relax.Expr, k: int, c: int) -> relax.Expr:
        return emit(
            op.add(conv(emit, y, relax.const(weights(k, 1, 1, c))), relax.const(weights(k)))
        )

    with builder.function("main", [x]):
        with builder.dataflow():
            mean = emit(op.mean(x, [1, 2], keepdims=True))
            gate = layer(emit(op.nn.relu(layer(mean, squeezed, channels))), channels, squeezed)
            gate = emit(op.clip(gate, 0.0, 1.0))
            y = layer(emit(op.multiply(gate, x)), 16, channels)
            result = builder.emit_output(relax.Tuple([y, gate]) if apart else y)
        builder.emit_func_output(result)
    return builder.get()


def reference(x: np.ndarray, channels: int, squeezed: int) -> np.ndarray:
    def layer(y: np.ndarray, k: int, c: int) -> np.ndarray:
        return y @ weights(k, 1, 1, c)[:, 0, 0].astype("float64").T + weights(k)

    x = x.astype("float64")
    hidden = np.maximum(layer(x.mean((1, 2), keepdims=True), squeezed, channels), 0)
    return layer(np.clip(layer(hidden, channels, squeezed), 0, 1) * x, 16, channels)


@pytest.mark.parametrize("images", [1, 8])
def test_one_kernel(images: int) -> None:
    mod = excited(images, 7, 48, 16, False)
    placement = place(mod, device=Device(), measure=False)
    emulation = Emulation(placement, 1)
    names = [op.name for op in emulation.schedule.ops]
    assert sum("multiply" in name and "conv2d" in name for name in names) == 1, names
    x = np.random.default_rng(7).standard_normal((images, 7, 7, 48)).astype("float16")
    (got,) = emulation(x)
    assert l2_error(got.astype("float64"), reference(x, 48, 16)) < 2e-3


def test_gates_that_the_caller_takes_are_a_kernel() -> None:
    names = [
        op.name
        for op in Emulation(
            place(excited(8, 7, 48, 16, True), device=Device(), measure=False), 1
        ).schedule.ops
    ]
    assert not any("multiply" in name and "conv2d" in name for name in names), names


PRODUCT = Workload("fprop", 8, 1, 1, 24, 480, 1, 1)


def test_time_of_gates() -> None:
    few = native.gates_us(PRODUCT, 196)
    assert few is not None and 0 < few < 0.5
    assert native.gates_us(Workload("matmul", 8, 1, 1, 24, 480, 1, 1), 196) == few
    for other in (
        Workload("fprop", 8, 2, 2, 24, 480, 1, 1),
        Workload("fprop", 8, 1, 1, 24, 480, 1, 1, groups=2),
        Workload("fprop", 8, 1, 1, 760, 3024, 1, 1),
        Workload(
            "fprop", 8, 1, 1, 24, 480, 1, 1, dtype="int8", out_dtype="int32", acc_dtype="int32"
        ),
    ):
        assert native.gates_us(other, 49) is None
