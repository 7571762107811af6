"""Convolutions of quantized Relay networks are placed on integer kernels."""

from __future__ import annotations

import numpy as np

import convoy
from convoy import relay
from convoy.relay.ast import Expr


def _convolution(x: Expr, c: int, k: int, stride: int, zero: int, *, by_channel: bool) -> Expr:
    """A convolution of int8 with a bias, requantized to int8."""
    rng = np.random.default_rng(k)
    weight = relay.const(rng.integers(-127, 128, (k, c, 3, 3)).astype("int8"))
    scales = rng.uniform(1e-3, 1e-2, k) if by_channel else np.float64(5e-3)
    none, zero_point = relay.const(0), relay.const(zero)
    y = relay.qnn.op.conv2d(
        x, weight, zero_point, none, relay.const(0.05), relay.const(scales.astype("float32")),
        (3, 3), k, strides=(stride, stride), padding=(1, 1),
    )  # fmt: skip
    y = relay.nn.bias_add(y, relay.const(rng.integers(-1000, 1000, k).astype("int32")))
    scale = relay.const((0.05 * scales).astype("float32"))
    return relay.qnn.op.requantize(y, scale, none, relay.const(0.05), zero_point, axis=1)


def test_convolutions_run_on_cutlass_in_integers() -> None:
    x = relay.var("x", shape=(1, 16, 32, 32), dtype="int8")
    y = _convolution(x, 16, 32, 1, -5, by_channel=False)
    y = _convolution(y, 32, 64, 2, -5, by_channel=True)
    y = relay.qnn.op.dequantize(y, relay.const(0.05), relay.const(-5))
    mod = relay.to_relax(relay.IRModule.from_expr(relay.Function([x], y)))
    choices = convoy.place(mod, measure=False).plan.choices
    assert [(c.workload.c, c.workload.k, c.workload.stride) for c in choices] == [
        (16, 32, (1, 1)), (32, 64, (2, 2)),
    ]  # fmt: skip
    for choice in choices:
        assert (choice.workload.dtype, choice.workload.acc_dtype) == ("int8", "int32")
        assert choice.workload.epilogue.bias
        assert choice.chosen.candidate.backend == "cutlass"
