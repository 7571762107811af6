"""What spreads a sum over more elements is a kernel of its own, all else stays fused."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from tvm import relax, tirx
from tvm.relax import op

from convoy.ir.device import Device
from convoy.lower.executable import lower_calls
from convoy.lower.target import cuda_target
from convoy.tir.rules import RULES

LAYOUTS = {"data_layout": "NHWC", "kernel_layout": "OHWI", "out_layout": "NHWC"}
Emit = Callable[..., relax.Expr]


def weights(*shape: int) -> relax.Expr:
    return relax.const(np.random.default_rng(0).standard_normal(shape).astype("float16"))


def excited(emit: Emit, x: relax.Expr) -> relax.Expr:
    y = emit(op.mean(x, [1, 2], keepdims=True))
    y = emit(op.nn.silu(emit(op.nn.conv2d(y, weights(16, 1, 1, 64), **LAYOUTS))))
    y = emit(op.add(emit(op.nn.conv2d(y, weights(64, 1, 1, 16), **LAYOUTS)), weights(64)))
    return emit(op.multiply(x, emit(op.sigmoid(y))))


def classified(emit: Emit, x: relax.Expr) -> relax.Expr:
    y = emit(op.mean(x, [1, 2]))
    return emit(op.tanh(emit(op.add(emit(op.matmul(y, weights(64, 10))), weights(10)))))


def averaged(emit: Emit, x: relax.Expr) -> relax.Expr:
    """A mean of what is computed for it alone, and what is computed of the mean."""
    both = emit(op.nn.relu(emit(op.add(x, weights(2, 14, 14, 64)))))
    return emit(op.sigmoid(emit(op.mean(both, [1, 2], keepdims=True))))


def responses(emit: Emit, x: relax.Expr) -> relax.Expr:
    """A global response norm: lengths of the channels over their mean, for each pixel."""
    wide = emit(op.astype(x, "float32"))
    length = emit(op.sqrt(emit(op.sum(emit(op.multiply(wide, wide)), [1, 2], keepdims=True))))
    mean = emit(op.add(emit(op.mean(length, [3], keepdims=True)), relax.const(1e-6)))
    return emit(op.multiply(x, emit(op.astype(emit(op.divide(length, mean)), "float16"))))


def centred(emit: Emit, x: relax.Expr) -> relax.Expr:
    rows = emit(op.reshape(x, (2 * 14 * 14, 64)))
    return emit(op.subtract(rows, emit(op.mean(rows, [1], keepdims=True))))


def standardized(emit: Emit, x: relax.Expr) -> relax.Expr:
    """The mean of all rows' means, of which a block would write all rows."""
    of_rows = emit(op.mean(x, [2, 3], keepdims=True))
    return emit(op.subtract(x, emit(op.mean(of_rows, [1], keepdims=True))))


@pytest.mark.parametrize(
    ("body", "rules"),
    [
        (excited, ["ChannelGate", "ChannelReduce", "Gemv"]),
        (classified, ["ChannelReduce", "Gemv"]),
        (responses, ["ChannelReduce", "Elementwise", "FusedRows"]),
        (averaged, ["ChannelReduce"]),
        (centred, ["FusedRows"]),
        (standardized, ["Elementwise", "RowReduce", "Window"]),
    ],
)
def test_kernels(body: Callable[[Emit, relax.Expr], relax.Expr], rules: list[str]) -> None:
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((2, 14, 14, 64), "float16"))
    with builder.function("main", [x]):
        with builder.dataflow():
            result = builder.emit_output(body(builder.emit, x))
        builder.emit_func_output(result)
    lowered = lower_calls(builder.get(), cuda_target(Device()))
    functions = [f for f in lowered.functions.values() if isinstance(f, tirx.PrimFunc)]
    assert sorted(type(RULES[int(f.attrs["convoy.rule"])]).__name__ for f in functions) == rules
