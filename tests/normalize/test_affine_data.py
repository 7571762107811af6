"""Scales and shifts in front of products are folded into their weights."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tvm import relax
from tvm.relax import op

from convoy.normalize.normal_form import normalize

from .test_moved_rows import constant, names, network
from .test_normalize import check_same, random_inputs, relative_error, run_normal

NHWC = {"data_layout": "NHWC", "kernel_layout": "OHWI"}


def normed(e: Any, x: Any) -> Any:
    x = e(op.nn.relu(x))
    return e(op.add(e(op.multiply(x, constant(8))), constant(8)))


def conv(e: Any, x: Any, *kernel: int, **options: Any) -> Any:
    return e(op.nn.conv2d(x, constant(*kernel), **NHWC, **options))


def pointwise(e: Any, x: Any) -> Any:
    return op.add(conv(e, normed(e, x), 6, 1, 1, 8), constant(6))


def grouped(e: Any, x: Any) -> Any:
    return conv(e, normed(e, x), 6, 2, 2, 4, groups=2, strides=2)


def linear(e: Any, x: Any) -> Any:
    return op.matmul(normed(e, x), constant(8, 6))


def scaled_alone(e: Any, x: Any) -> Any:
    y = e(op.multiply(e(op.nn.relu(x)), constant(8)))
    return conv(e, y, 6, 3, 3, 8, padding=[1, 1])


def shifted_alone(e: Any, x: Any) -> Any:
    """A norm whose variance is that of its data, as before any training."""
    y = e(op.add(e(op.nn.relu(x)), constant(8)))
    return conv(e, y, 6, 1, 1, 8)


def shifted_by_nothing(e: Any, x: Any) -> Any:
    y = e(op.add(e(op.nn.relu(x)), relax.const(np.zeros(8, "float32"))))
    return conv(e, y, 6, 1, 1, 8)


def padded(e: Any, x: Any) -> Any:
    return conv(e, normed(e, x), 6, 3, 3, 8, padding=[1, 1])


def read_elsewhere(e: Any, x: Any) -> Any:
    y = normed(e, x)
    return op.add(e(op.tanh(y)), conv(e, y, 8, 1, 1, 8))


def two_readers(e: Any, x: Any) -> Any:
    y = normed(e, x)
    a = e(op.nn.relu(conv(e, y, 6, 1, 1, 8)))
    return op.multiply(a, e(op.tanh(conv(e, y, 6, 1, 1, 8))))


FOLDED = {
    pointwise: 1, grouped: 1, linear: 1, scaled_alone: 0, shifted_alone: 1, shifted_by_nothing: 0
}  # fmt: skip
PRODUCTS = ("nn.conv2d", "matmul")
STAY = [padded, read_elsewhere]


@pytest.mark.parametrize("body", FOLDED)
def test_norms_are_part_of_the_weights(body: Any) -> None:
    found = names(check_same(network(body, 2, 4, 6, 8)))
    assert "multiply" not in found and found.count("add") == FOLDED[body]
    if FOLDED[body]:
        assert found.index("add") > max(found.index(n) for n in found if n in PRODUCTS)


def test_all_that_reads_a_norm_takes_it() -> None:
    found = names(check_same(network(two_readers, 2, 4, 6, 8)))
    assert found.count("multiply") == 1 and found.count("add") == 2


@pytest.mark.parametrize("body", STAY)
def test_norms_stay_where_something_needs_them(body: Any) -> None:
    assert "multiply" in names(check_same(network(body, 2, 4, 6, 8)))


def test_the_bias_of_a_product_stays_with_it() -> None:
    def body(e: Any, x: Any) -> Any:
        return conv(e, e(op.add(conv(e, x, 8, 3, 3, 8), constant(8))), 6, 1, 1, 8)

    assert names(check_same(network(body, 2, 4, 6, 8))) == ["nn.conv2d", "add", "nn.conv2d"]


def test_a_sum_that_others_read_too_is_shifted_in_the_weights() -> None:
    def body(e: Any, x: Any) -> Any:
        total = e(op.add(e(op.nn.relu(x)), e(op.tanh(x))))
        return op.add(total, conv(e, e(op.add(total, constant(8))), 8, 1, 1, 8))

    found = names(check_same(network(body, 2, 4, 6, 8)))
    assert found[:4] == ["nn.relu", "tanh", "add", "nn.conv2d"], found


def test_factors_of_one_are_nothing() -> None:
    """diffusers divides residual sums by 1 unless told otherwise."""

    def body(e: Any, x: Any) -> Any:
        y = e(op.add(e(op.divide(e(op.tanh(x)), relax.const(1.0))), x))
        return op.multiply(e(op.multiply(y, relax.const(4.0))), relax.const(0.25))

    assert names(check_same(network(body, 2, 8))) == ["tanh", "add"]


def test_a_sum_with_nothing_is_nothing() -> None:
    """A norm behind an activation before any training; a product keeps its bias."""

    def body(e: Any, x: Any) -> Any:
        nothing = relax.const(np.zeros(8, "float32"))
        y = e(op.add(e(op.nn.relu(e(op.add(conv(e, x, 8, 1, 1, 8), nothing)))), nothing))
        return op.subtract(e(op.tanh(y)), nothing)

    found = names(check_same(network(body, 2, 4, 6, 8)))
    assert found == ["nn.conv2d", "add", "nn.relu", "tanh"]


def test_a_large_mean_is_subtracted_as_it_was_added() -> None:
    """Channels far from zero: the shift has to fit the weights as they are rounded."""
    mean, scale = np.linspace(-60, 60, 8), np.linspace(0.5, 2, 8)

    def body(e: Any, x: Any) -> Any:
        x = e(op.add(x, relax.const(mean.astype("float32"))))
        y = e(op.multiply(e(op.abs(x)), relax.const(scale.astype("float32"))))
        y = e(op.add(y, relax.const((-np.abs(mean) * scale).astype("float32"))))
        return conv(e, y, 6, 1, 1, 8)

    mod = network(body, 1, 4, 6, 8)
    inputs = random_inputs(mod)
    (exact,) = run_normal(normalize(mod, dtype="float32"), *inputs)
    (narrow,) = run_normal(normalize(mod, dtype="float16"), *inputs)
    assert relative_error(narrow, exact) < 0.03
