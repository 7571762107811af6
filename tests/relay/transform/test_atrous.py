"""FlattenAtrousConv: blocks as batches are a dilation."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from convoy import relay
from convoy.relay import transform
from convoy.relay import tvm018 as tvm


def blocks(pads: Any, crops: Any, strides: int = 1, inner: int = 0) -> Any:
    weight = np.random.default_rng(0).standard_normal((3, 2, 3, 4)).astype("float32")
    x = relay.var("x", shape=(1, 9, 8, 3))
    y = relay.nn.space_to_batch_nd(x, [2, 3], pads)
    y = relay.nn.conv2d(
        y, relay.const(weight), data_layout="NHWC", kernel_layout="HWIO", channels=4,
        kernel_size=(3, 2), strides=(strides, strides), padding=(inner, inner),
    )  # fmt: skip
    y = relay.nn.batch_to_space_nd(y, [2, 3], crops)
    return transform.InferType()(tvm.IRModule.from_expr(y))


def run(mod: Any) -> np.ndarray:
    x = np.random.default_rng(1).standard_normal((1, 9, 8, 3)).astype("float32")
    out: np.ndarray = relay.create_executor("vm", mod, target="llvm").evaluate()(x).numpy()
    return out


@pytest.mark.parametrize(
    ("pads", "crops", "inner"),
    [
        ([[1, 2], [3, 4]], [[0, 0], [0, 0]], 0),
        ([[2, 3], [2, 2]], [[1, 2], [0, 2]], 0),
        ([[0, 1], [1, 0]], [[0, 1], [1, 0]], 1),
    ],
)
def test_same_values(pads: Any, crops: Any, inner: int) -> None:
    mod = blocks(pads, crops, inner=inner)
    flat = transform.FlattenAtrousConv()(mod)
    assert flat["main"].body.op.name == "nn.conv2d"
    assert list(flat["main"].body.attrs.dilation) == [2, 3]
    np.testing.assert_allclose(run(flat), run(mod), rtol=1e-4, atol=1e-4)


def test_what_is_no_dilation_stays() -> None:
    for mod in (
        blocks([[1, 2], [3, 4]], [[2, 0], [0, 0]]),
        blocks([[1, 2], [3, 4]], [[0, 0], [0, 0]], 2),
    ):
        assert relay.structural_equal(transform.FlattenAtrousConv()(mod), mod)
