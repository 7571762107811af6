"""FakeQuantizationToInteger: integers give what rounded real numbers gave."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from convoy import relay
from convoy.relay import transform
from convoy.relay import tvm018 as tvm
from convoy.relay.registration import register_fake_quantization_to_integer
from convoy.relay.testing import TempOpAttr
from convoy.relay.visit import post_order

q, dq, const = relay.qnn.op.quantize, relay.qnn.op.dequantize, relay.const


def ops(mod: Any) -> list[str]:
    nodes = post_order(mod["main"])
    return [n.op.name for n in nodes if isinstance(n, relay.Call) and isinstance(n.op, tvm.ir.Op)]


def run(mod: Any, *args: np.ndarray) -> np.ndarray:
    out: np.ndarray = relay.create_executor("vm", mod, target="llvm").evaluate()(*args).numpy()
    return out.astype("int64")


def network(channels: int) -> relay.Expr:
    """Convolution per channel, bias, residual sum, average and a dense layer on int8 input."""
    rng = np.random.default_rng(channels)
    x = dq(relay.var("x", shape=(1, 4, 9, 7), dtype="int8"), const(0.05), const(3))
    scales = rng.uniform(0.01, 0.03, channels).astype("float32")
    w = relay.const(rng.integers(-90, 90, (channels, 4, 3, 3)), "int8")
    zeros = const(np.zeros(channels), "int32")
    y = relay.nn.conv2d(x, dq(w, const(scales), zeros, axis=0), padding=(1, 1))
    y = relay.nn.bias_add(y, const(rng.standard_normal(channels), "float32"))
    y = dq(q(relay.nn.relu(y), const(0.04), const(-100)), const(0.04), const(-100))
    z = relay.nn.max_pool2d(y, (3, 3), padding=(1, 1))
    y = dq(q(relay.add(y, z), const(0.06), const(-90)), const(0.06), const(-90))
    y = relay.nn.batch_flatten(relay.nn.global_avg_pool2d(y))
    y = dq(q(y, const(0.03), const(-110)), const(0.03), const(-110))
    v = relay.const(rng.integers(-120, 120, (6, channels)), "int8")
    y = relay.clip(relay.nn.dense(y, dq(v, const(0.02), const(0))), -3.0, 4.0)
    return q(y, const(0.05), const(1))


@pytest.mark.parametrize("channels", [3, 8])
def test_network(channels: int) -> None:
    mod = transform.InferType()(tvm.IRModule.from_expr(network(channels)))
    integers = transform.FakeQuantizationToInteger(hard_fail=True)(mod)
    assert {"qnn.conv2d", "qnn.dense", "qnn.requantize"} <= set(ops(integers))
    assert not {"nn.conv2d", "nn.dense", "qnn.dequantize"} & set(ops(integers))
    x = np.random.default_rng(5).integers(-128, 128, (1, 4, 9, 7)).astype("int8")
    assert np.abs(run(mod, x) - run(integers, x)).max() <= 2  # one step for each rounding


def test_average_of_coarse_steps() -> None:
    """The average is taken at the result's scale, not at the coarser one of the input."""
    x = dq(relay.var("x", shape=(1, 2, 8, 8), dtype="int8"), const(2.0), const(-12))
    mean = relay.mean(x, axis=[2, 3])
    mod = transform.InferType()(tvm.IRModule.from_expr(q(mean, const(0.25), const(0))))
    integers = transform.FakeQuantizationToInteger(hard_fail=True)(mod)
    data = np.random.default_rng(0).integers(-20, -5, (1, 2, 8, 8)).astype("int8")
    assert np.abs(run(mod, data) - run(integers, data)).max() <= 1


def test_what_has_no_rule_stays() -> None:
    x = dq(relay.var("x", shape=(2, 3), dtype="int8"), const(0.1), const(0))
    mod = transform.InferType()(tvm.IRModule.from_expr(q(relay.cosh(x), const(0.1), const(0))))
    assert relay.structural_equal(transform.FakeQuantizationToInteger()(mod), mod)
    with pytest.raises(NotImplementedError, match="cosh"):
        transform.FakeQuantizationToInteger(hard_fail=True)(mod)
    y = relay.add(x, relay.var("y", shape=(2, 3)))  # a real number comes in
    mod = transform.InferType()(tvm.IRModule.from_expr(q(y, const(0.1), const(0))))
    assert relay.structural_equal(transform.FakeQuantizationToInteger()(mod), mod)


def test_rule_of_a_user() -> None:
    x = dq(relay.var("x", shape=(2, 3), dtype="int8"), const(0.1), const(0))
    mod = transform.InferType()(tvm.IRModule.from_expr(q(relay.negative(x), const(0.1), const(0))))

    def rule(call: Any, types: Any) -> Any:
        return [relay.negative(call.args[0]), types[call.args[0]]]

    with TempOpAttr("negative", "FTVMFakeQuantizationToInteger", rule):
        integers = transform.FakeQuantizationToInteger()(mod)
    assert ops(integers) == ["negative"]
    assert register_fake_quantization_to_integer is not None


def test_dequantize_moves_behind_what_no_quantize_follows() -> None:
    x = dq(relay.var("x", shape=(1, 4, 2), dtype="int8"), const(2.0), const(0))
    y = dq(relay.var("y", shape=(1, 3, 2), dtype="int8"), const(6.0), const(0))
    body = relay.exp(relay.nn.relu(relay.nn.batch_matmul(x, y)) * const(1e-3))
    mod = transform.InferType()(tvm.IRModule.from_expr(body))
    moved = transform.FakeQuantizationToInteger(use_qat=True)(mod)
    assert ops(moved) == ["qnn.batch_matmul", "maximum", "qnn.dequantize", "multiply", "exp"]


@pytest.mark.parametrize(
    ("of", "to"), [("int8", "uint8"), ("uint8", "int8"), ("int8", "int8"), ("uint8", "uint8")]
)
@pytest.mark.parametrize(
    "make",
    [
        lambda x, y: relay.subtract(x, y),
        lambda x, y: relay.multiply(x, relay.const(-7.3)),
        lambda x, y: relay.maximum(x, relay.const(2.5)),
        lambda x, y: relay.nn.leaky_relu(x, 0.3),
        lambda x, y: relay.tanh(x),
        lambda x, y: relay.nn.avg_pool2d(x, 2, 2, padding=1, count_include_pad=True),
    ],
)
def test_results_of_another_dtype(make: Any, of: str, to: str) -> None:
    """What one dtype's range cuts off, constants of any size, zeros of padding."""
    rng = np.random.default_rng(3)
    zeros = {"int8": (14, -8), "uint8": (124, 136)}
    shape = (1, 2, 5, 4)
    x, y = (
        dq(relay.var(name, shape=shape, dtype=of), const(scale), const(zero))
        for name, scale, zero in zip("xy", (0.02, 0.05), zeros[of], strict=True)
    )
    result = q(make(x, y), const(0.17), const(zeros[to][1]), out_dtype=to)
    mod = transform.InferType()(tvm.IRModule.from_expr(result))
    integers = transform.FakeQuantizationToInteger(hard_fail=True)(mod)
    assert any(name.startswith("qnn.") and name != "qnn.quantize" for name in ops(integers))
    assert integers["main"].ret_type == mod["main"].ret_type
    low = np.iinfo(of).min
    args = [rng.integers(low, low + 256, shape).astype(of) for _ in mod["main"].params]
    assert np.abs(run(mod, *args) - run(integers, *args)).max() <= 1
