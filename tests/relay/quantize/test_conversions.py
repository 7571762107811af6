"""Networks that are split into conversions and integers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from convoy import relay
from convoy.errors import InvalidOption
from convoy.relay import tvm018 as tvm
from convoy.relay.visit import post_order

SHAPE = (1, 4, 8, 8)


def quantized(body: Any, mode: str) -> Any:
    function = relay.Function(relay.analysis.free_vars(body), body)
    with relay.quantize.qconfig(skip_conv_layers=[], partition_conversions=mode):
        return relay.quantize.quantize(tvm.IRModule.from_expr(function))


def conv(x: Any, seed: int) -> Any:
    weight = np.random.default_rng(seed).standard_normal((4, 4, 3, 3))
    return relay.nn.conv2d(x, relay.const(weight, "float32"), padding=(1, 1))


def values(count: int) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.uniform(-1, 1, SHAPE).astype("float32") for _ in range(count)]


def arrays(mod: Any, kind: str, inputs: list[np.ndarray]) -> list[np.ndarray]:
    found = relay.create_executor(kind, mod, target="llvm").evaluate()(*inputs)
    return [v.numpy() for v in (found if isinstance(found, (list, tuple)) else [found])]


@pytest.mark.parametrize("kind", ["graph", "vm"])
def test_the_parts_compute_the_same(kind: str) -> None:
    """Two inputs, and a tuple of results, one of which is a sum of scaled integers."""
    x, y = relay.var("x", shape=SHAPE), relay.var("y", shape=SHAPE)
    first = conv(x, 1) + conv(y, 2)
    body = relay.Tuple([first, conv(relay.nn.relu(first), 3)])
    whole, parted = (quantized(body, mode) for mode in ("disabled", "fully_integral"))
    names = {v.name_hint for v in parted.get_global_vars()}
    assert names == {"main", "quantize_inputs", "quantized_main", "dequantize_outputs"}
    dtypes = [p.checked_type.dtype for p in parted["quantized_main"].params]
    assert dtypes == ["int8", "int8"]
    assert [p.name_hint for p in parted["main"].params] == ["x", "y"]
    for a, b in zip(*(arrays(m, kind, values(2)) for m in (whole, parted)), strict=True):
        np.testing.assert_array_equal(a, b)


def test_what_stays_in_floating_point() -> None:
    """An input that is used unrounded is passed on; the strict mode names the first operator."""
    x = relay.var("x", shape=SHAPE)
    body = conv(relay.exp(x), 1) + x
    parted = quantized(body, "enabled")
    dtypes = [p.checked_type.dtype for p in parted["quantized_main"].params]
    assert relay.analysis.free_vars(parted["dequantize_outputs"]) == []
    assert dtypes == ["int8", "float32"]
    inside = [getattr(n.op, "name", "") for n in post_order(parted["quantized_main"].body)
              if isinstance(n, relay.Call)]  # fmt: skip
    assert "exp" in inside and "qnn.conv2d" in inside
    whole = quantized(body, "disabled")
    for a, b in zip(*(arrays(m, "graph", values(1)) for m in (whole, parted)), strict=True):
        np.testing.assert_array_equal(a, b)
    with pytest.raises(InvalidOption, match=r"%quantized_1 of type .*float32.*fully_integral"):
        quantized(body, "fully_integral")
    with pytest.raises(AssertionError):  # as in TVM
        quantized(body, "fully_integral")
