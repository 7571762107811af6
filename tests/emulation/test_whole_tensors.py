"""Operators that need all of a tensor, or long rows of it, use the whole GPU and are right."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from tvm import relax
from tvm.relax import op

from convoy.ir.device import Device
from convoy.pipeline import place

from .network import Emulation

#: Microseconds of a kernel, as estimated: of one thread, or block, each would take longer.
LONGEST = 10
Emit = Callable[[relax.Expr], relax.Expr]


def normed(emit: Emit, x: relax.Expr, count: int) -> relax.Expr:
    """A layer norm over the last ``count`` axes."""
    shape = [int(size) for size in x.ty.shape.values][-count:]
    rng = np.random.default_rng(0)
    scale, shift = (relax.const(rng.standard_normal(shape).astype("float32")) for _ in range(2))
    return op.nn.layer_norm(x, scale, shift, list(range(-count, 0)))


def normed_by_numpy(x: np.ndarray, count: int) -> np.ndarray:
    rng = np.random.default_rng(0)
    scale, shift = (rng.standard_normal(x.shape[-count:]) for _ in range(2))
    axes = tuple(range(-count, 0))
    unit = (x - x.mean(axes, keepdims=True)) / np.sqrt(x.var(axes, keepdims=True) + 1e-5)
    return unit * scale + shift


def stretched(emit: Emit, x: relax.Expr) -> relax.Expr:
    low, high = emit(op.min(x)), emit(op.max(x))
    return op.divide(emit(op.subtract(x, low)), emit(op.subtract(high, low)))


CASES: dict[str, tuple[tuple[int, ...], Callable, Callable]] = {
    "mean": ((4, 31, 33, 8), lambda e, x: op.mean(x), np.mean),
    "a function of the mean": (
        (4, 31, 33, 8),
        lambda e, x: op.exp(e(op.multiply(e(op.mean(x)), relax.const(2.0, "float32")))),
        lambda x: np.exp(2 * x.mean()),
    ),
    "stretched": (
        (1, 24, 25, 16), stretched, lambda x: (x - x.min()) / (x.max() - x.min()),
    ),
    "deviation": ((4, 31, 33, 8), lambda e, x: op.std(x), np.std),
    "variances": (
        (2, 33, 64, 16), lambda e, x: op.variance(x, [1, 2, 3], True),
        lambda x: x.var((1, 2, 3), keepdims=True),
    ),
    "softmax of long rows": (
        (3, 36000), lambda e, x: op.nn.softmax(e(op.multiply(x, relax.const(9.0, "float32")))),
        lambda x: np.exp(9 * x) / np.exp(9 * x).sum(1, keepdims=True),
    ),
    "its logarithm": (
        (2, 33000, 3), lambda e, x: op.nn.log_softmax(x, 1),
        lambda x: x - np.log(np.exp(x).sum(1, keepdims=True)),
    ),
    "short norm": ((3, 5, 7, 8), lambda e, x: normed(e, x, 3), lambda x: normed_by_numpy(x, 3)),
    "long norm": (
        (1, 33, 32, 16), lambda e, x: normed(e, x, 3), lambda x: normed_by_numpy(x, 3),
    ),
    "long row": ((1, 17000), lambda e, x: normed(e, x, 1), lambda x: normed_by_numpy(x, 1)),
    "classes": (
        (1, 5, 128, 130), lambda e, x: op.argmax(x, 1), lambda x: x.argmax(1),
    ),
    "classes last": (
        (1, 128, 130, 5), lambda e, x: op.argmax(e(op.abs(x)), 3), lambda x: np.abs(x).argmax(3),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_operator(name: str) -> None:
    shape, build, reference = CASES[name]
    builder, x = relax.BlockBuilder(), relax.Var("x", relax.TensorType(shape, "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            y = builder.emit(op.astype(builder.emit(op.astype(x, "float16")), "float32"))
            output = builder.emit_output(builder.emit(build(builder.emit, y)))
        builder.emit_func_output(output)
    placement = place(builder.get(), precision="float16", device=Device(), measure=False)
    emulation = Emulation(placement, 1)
    given = np.random.default_rng(1).normal(1, 1, shape).astype("float16")
    (got,), exact = emulation(given.astype("float32")), reference(given.astype("float64"))
    if got.dtype.kind == "i":
        assert np.array_equal(got, exact)
    else:
        np.testing.assert_allclose(got, exact, rtol=4e-3, atol=4e-3)
    assert all(one.duration_us < LONGEST for one in emulation.schedule.ops)
