"""Reshapes of matrix products move behind what can be fused with the product."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tvm import relax

from convoy.graph.expr import op_name, shape_of
from convoy.graph.function import bindings_of
from convoy.normalize.normal_form import normalize

from .test_normalize import check_same

RNG = np.random.default_rng(0)


def constant(*shape: int) -> relax.Expr:
    return relax.const((RNG.standard_normal(shape) / 4).astype("float32"))


def block(tail, shape: tuple[int, ...] = (2, 7, 24)):
    """A linear layer on (batch, tokens, channels), then ``tail(builder, product, input)``."""
    x = relax.Var("x", relax.TensorType(shape, "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            y = builder.emit(relax.op.matmul(x, constant(24, 24)))
            y = builder.emit_output(tail(builder, y, x))
        builder.emit_func_output(y)
    return builder.get()


def names(mod) -> list[str]:
    return [op_name(b.value).removeprefix("relax.") for b in bindings_of(mod["main"])]


def mlp(builder, y, x):
    y = builder.emit(relax.op.nn.gelu(builder.emit(relax.op.add(y, constant(24)))))
    y = builder.emit(relax.op.matmul(y, constant(24, 24)))
    y = builder.emit(relax.op.multiply(y, constant(1, 1, 24)))
    return relax.op.add(x, y)


def test_a_block_of_linear_layers_has_one_reshape_in_and_one_out() -> None:
    mod = block(mlp)
    check_same(mod)
    found = names(normalize(mod, dtype="float32"))
    assert found == ["reshape", "matmul", "add", "nn.gelu", "matmul", "add", "reshape"]


STEPS = {
    "bias": lambda b, y, x: relax.op.add(y, constant(24)),
    "scale": lambda b, y, x: relax.op.multiply(constant(1, 24), y),
    "number": lambda b, y, x: relax.op.divide(y, relax.const(3.0)),
    "residual": lambda b, y, x: relax.op.subtract(x, y),
    "twice": lambda b, y, x: relax.op.multiply(y, y),
    "by token": lambda b, y, x: relax.op.add(y, constant(7, 1)),
    "by batch": lambda b, y, x: relax.op.add(y, constant(2, 1, 1)),
    "spread": lambda b, y, x: relax.op.mean(relax.op.add(y, constant(3, 1, 7, 24)), [0]),
    "gelu": lambda b, y, x: relax.op.nn.gelu(y),
    "norm": lambda b, y, x: relax.op.nn.layer_norm(y, constant(24), constant(24), [-1]),
    "norm, axis from the front": lambda b, y, x: relax.op.nn.layer_norm(
        y, constant(24), constant(24), [2]
    ),
    "norm of two axes": lambda b, y, x: relax.op.nn.layer_norm(
        y, constant(7, 24), constant(7, 24), [1, 2]
    ),
    "softmax over tokens": lambda b, y, x: relax.op.nn.softmax(y, 1),
    "transpose": lambda b, y, x: relax.op.permute_dims(
        b.emit(relax.op.permute_dims(y, [1, 0, 2])), [1, 0, 2]
    ),
    "linear": lambda b, y, x: relax.op.matmul(y, constant(24, 24)),
    "heads": lambda b, y, x: relax.op.reshape(
        b.emit(relax.op.nn.relu(b.emit(relax.op.reshape(y, (2, 7, 4, 6))))), (2, 7, 24)
    ),
}


@settings(max_examples=25, deadline=None)
@given(st.lists(st.sampled_from(sorted(STEPS)), min_size=1, max_size=5))
@example(["norm, axis from the front"])
def test_any_order_of_steps_computes_the_same(steps: list[str]) -> None:
    def tail(builder, y, x):
        for step in steps[:-1]:
            y = builder.emit(builder.normalize(STEPS[step](builder, y, x)))
        return STEPS[steps[-1]](builder, y, x)

    check_same(block(tail), tolerance=1e-4)


@pytest.mark.parametrize("step", ["by token", "by batch", "norm of two axes", "heads"])
def test_what_is_not_by_channel_keeps_its_shape(step: str) -> None:
    mod = normalize(block(STEPS[step]), dtype="float32")
    (last, *_) = [
        b for b in reversed(bindings_of(mod["main"])) if op_name(b.value) != "relax.reshape"
    ]
    assert len(shape_of(last.var)) >= 3


def test_an_operand_without_axes_of_one_in_front() -> None:
    """As a recurrent layer adds what it has computed of a step's input."""

    def tail(builder, y, x):
        step = builder.emit(relax.op.reshape(x, (7, 24)))
        y = builder.emit(relax.op.add(y, constant(1, 1, 24)))
        return relax.op.nn.relu(builder.emit(relax.op.add(y, step)))

    mod = block(tail, (1, 7, 24))
    check_same(mod)
    found = names(normalize(mod, dtype="float32"))
    assert found == ["reshape", "matmul", "add", "add", "nn.relu", "reshape"]


def test_a_clip_without_one_bound() -> None:
    inf = float("inf")
    for low, high, name in ((0, inf, "nn.relu"), (-inf, 6, "minimum"), (-1.5, inf, "maximum")):
        mod = block(lambda b, y, x, low=low, high=high: relax.op.clip(y, low, high))
        assert name in names(normalize(mod, dtype="float32"))
        check_same(mod)
    both = block(lambda b, y, x: relax.op.clip(b.emit(relax.op.clip(y, 0, inf)), -inf, 6))
    assert "clip" in names(normalize(both, dtype="float32"))
