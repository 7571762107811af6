"""Norms of the last axis that are written out are one operator."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tvm import relax
from tvm.relax import op

from convoy.graph.expr import op_name
from convoy.graph.function import bindings_of
from convoy.normalize.normal_form import normalize

from .test_normalize import check_same, run_normal

SHAPE = (3, 5, 8)
SQUARE = (8, 8, 8)


def network(body: Any, dtype: str = "float32", shape: tuple[int, ...] = SHAPE) -> Any:
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType(shape, dtype))
    with builder.function("main", [x]):
        with builder.dataflow():
            result = builder.emit_output(body(lambda e: builder.emit(builder.normalize(e)), x))
        builder.emit_func_output(result)
    return builder.get()


def number(value: float, dtype: str = "float32") -> Any:
    return relax.const(value, dtype)


def mean_square(e: Any, x: Any, axis: int = -1) -> Any:
    square = e(op.power(x, number(2.0)))
    return e(op.add(e(op.mean(square, [axis], keepdims=True)), number(1e-5)))


def length(e: Any, x: Any) -> Any:
    return e(op.sqrt(e(op.sum(e(op.multiply(x, x)), [2], keepdims=True))))


GAMMA = np.linspace(0.5, 2, 8, dtype="float32")
NORMS = {
    "rms": lambda e, x: op.multiply(
        e(op.multiply(x, e(op.rsqrt(mean_square(e, x))))), relax.const(GAMMA)
    ),
    "rms by division": lambda e, x: op.divide(x, e(op.sqrt(mean_square(e, x)))),
    "rows of length one": lambda e, x: op.divide(
        x, e(op.broadcast_to(e(op.maximum(length(e, x), number(1e-12))), SHAPE))
    ),
}


def centred(e: Any, x: Any, axis: int = -1) -> Any:
    return e(op.subtract(x, e(op.mean(x, [axis], keepdims=True))))


def layer_norm(e: Any, x: Any, of: Any = None) -> Any:
    difference = centred(e, x)
    return e(op.divide(difference, e(op.sqrt(mean_square(e, difference if of is None else of)))))


def with_variance(e: Any, x: Any) -> Any:
    variance = e(op.add(e(op.variance(x, [2], keepdims=True)), number(1e-5)))
    return e(op.divide(centred(e, x), e(op.sqrt(variance))))


SHIFT = relax.const(np.linspace(-1, 3, 8, dtype="float32"))
LAYER_NORMS = {
    "plain": layer_norm,
    "variance": with_variance,
    "scaled and shifted": lambda e, x: op.add(
        SHIFT, e(op.multiply(relax.const(GAMMA), layer_norm(e, x)))
    ),
}
OTHERS = {
    "distances from means of another axis": lambda e, x: op.divide(
        centred(e, x, 1), e(op.sqrt(mean_square(e, centred(e, x))))
    ),
    "squares of what has its mean": lambda e, x: layer_norm(e, x, x),
    "another axis": lambda e, x: op.divide(x, e(op.sqrt(mean_square(e, x, 1)))),
    "a bound that counts": lambda e, x: op.divide(x, e(op.maximum(length(e, x), number(0.5)))),
    "of another tensor": lambda e, x: op.divide(x, e(op.sqrt(mean_square(e, e(op.tanh(x)))))),
}


def operators(mod: Any) -> list[str]:
    normal = normalize(mod, dtype="float32")
    return [op_name(b.value).removeprefix("relax.") for b in bindings_of(normal["main"])]


@pytest.mark.parametrize("name", NORMS)
def test_a_norm_is_one_operator(name: str) -> None:
    mod = network(NORMS[name])
    assert operators(mod) == ["nn.rms_norm"]
    check_same(mod)


@pytest.mark.parametrize("name", LAYER_NORMS)
def test_a_layer_norm_is_one_operator(name: str) -> None:
    mod = network(LAYER_NORMS[name])
    assert operators(mod) == ["nn.layer_norm"]
    check_same(mod)


@pytest.mark.parametrize("name", OTHERS)
def test_other_quotients_stay(name: str) -> None:
    mod = network(OTHERS[name])
    assert not {"nn.rms_norm", "nn.layer_norm"} & set(operators(mod))
    check_same(mod)


@pytest.mark.parametrize("axes", [[-2, -1], [0], [1]])
def test_what_stands_behind_norms_of_other_axes_is_no_part_of_them(axes: list[int]) -> None:
    vector = relax.const(np.linspace(0.5, 2, SQUARE[-1], dtype="float32"))
    sizes = [SQUARE[axis] for axis in axes]
    ones, zeros = (relax.const(np.full(sizes, value, "float32")) for value in (1, 0))

    def body(e: Any, x: Any) -> Any:
        norm = e(op.nn.layer_norm(x, ones, zeros, axes))
        return op.add(e(op.multiply(e(op.add(norm, vector)), vector)), x)

    check_same(network(body, shape=SQUARE))


def test_rows_of_zeros_in_float16() -> None:
    def body(e: Any, x: Any) -> Any:
        wide = e(op.astype(x, "float32"))
        return op.astype(e(NORMS["rows of length one"](e, wide)), "float16")

    x = np.random.default_rng(0).standard_normal(SHAPE).astype("float16")
    x[1], x[2] = 0, x[2] * 1000  # whose squares overflow
    (got,) = run_normal(normalize(network(body, "float16"), dtype="float16"), x)
    wide = x.astype("float32")
    wanted = wide / np.maximum(np.linalg.norm(wide, axis=-1, keepdims=True), 1e-12)
    np.testing.assert_allclose(got, wanted, rtol=2e-3)
