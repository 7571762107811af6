"""Scales so small that weights which carry them are no normal numbers of float16."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import relax

from convoy.graph.expr import op_name
from convoy.graph.function import bindings_of, main_function
from convoy.normalize import affine
from convoy.normalize.affine import FoldAffine


def network(scale: float, summed: str = "") -> tvm.IRModule:
    """A scaled convolution, added to its input or to what is scaled so, by a norm too."""
    rng = np.random.default_rng(0)
    x = relax.Var("x", relax.TensorType((1, 8, 8, 16), "float16"))
    builder = relax.BlockBuilder()

    def scaled(x: relax.Expr) -> relax.Expr:
        weights = relax.const(rng.normal(0, 0.1, (16, 3, 3, 16)).astype("float16"))
        layouts = {"data_layout": "NHWC", "kernel_layout": "OHWI", "padding": 1}
        conv = builder.emit(relax.op.nn.conv2d(x, weights, **layouts))
        factors = relax.const(np.full(16, scale, "float16"))
        return builder.emit(relax.op.multiply(conv, factors))

    def norm(x: relax.Expr) -> relax.Expr:
        factors = relax.const(np.full(16, scale, "float16"))
        return builder.emit(relax.op.nn.rms_norm(x, factors, [-1]))

    others = {"input": lambda x: x, "scaled": scaled, "norm": norm}
    with builder.function("main", [x]):
        with builder.dataflow():
            y = scaled(x)
            if summed:
                y = builder.emit(relax.op.add(y, others[summed](x)))
            result = builder.emit_output(y)
        builder.emit_func_output(result)
    return builder.finalize()


@pytest.mark.parametrize(
    ("scale", "summed", "left"),
    [
        (0.5, "", 0),
        (1e-5, "", 1),
        (1e-5, "input", 0),
        (1e-5, "scaled", 2),
        (1e-5, "norm", 1),
        (1e4, "", 0),
    ],
)
def test_weights_keep_their_digits(scale: float, summed: str, left: int) -> None:
    _, func = main_function(FoldAffine()(network(scale, summed)))
    names = [op_name(binding.value) for binding in bindings_of(func)]
    assert names.count("relax.multiply") == left


@pytest.mark.parametrize("spread", [0.0, 2.0, 8.0, 20.0])
def test_digits_are_counted_only_where_they_may_be_lost(spread: float) -> None:
    rng = np.random.default_rng(1)
    weights = rng.normal(size=500) * np.exp(spread * rng.normal(size=500))
    weights /= np.abs(weights).max()
    for exponent in range(-40, 24):
        scaled = weights * 2.0**exponent
        rounding = affine._rounding(scaled)
        lost = rounding > affine._MOST_ROUNDING and rounding > 2 * affine._rounding(weights)
        assert affine._loses_digits(scaled, weights) == lost
