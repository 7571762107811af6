"""relay.quantize: integer networks that stay near the real ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from convoy import relay
from convoy.errors import InvalidOption
from convoy.relay import tvm018 as tvm
from convoy.relay.quantize.scales import kl_threshold
from convoy.relay.visit import post_order

SHAPE = (1, 3, 12, 12)


def network() -> Any:
    """Three convolutions with batch norm, a residual sum, and a dense layer."""
    rng = np.random.default_rng(7)

    def weight(*shape: int) -> relay.Constant:
        fan = np.prod(shape[1:]) if len(shape) > 1 else 1
        return relay.const(rng.standard_normal(shape) / np.sqrt(fan), "float32")

    x = relay.var("x", shape=SHAPE)
    y = relay.nn.relu(relay.nn.conv2d(x, weight(8, 3, 3, 3), padding=(1, 1)))
    z = relay.nn.conv2d(y, weight(8, 8, 3, 3), padding=(1, 1))
    one = relay.const(np.ones(8), "float32")
    z = relay.nn.relu(relay.nn.batch_norm(z, one, weight(8), weight(8), one)[0])
    z = relay.nn.bias_add(relay.nn.conv2d(z, weight(8, 8, 1, 1)), weight(8))
    y = relay.nn.max_pool2d(relay.nn.relu(y + z), (2, 2), strides=(2, 2))
    y = relay.nn.dense(relay.nn.batch_flatten(y), weight(10, 8 * 36))
    return tvm.IRModule.from_expr(relay.Function([x], y))


def samples(seed: int, count: int) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [rng.uniform(-1, 1, SHAPE).astype("float32") for _ in range(count)]


def run(mod: Any, x: np.ndarray) -> np.ndarray:
    out: np.ndarray = relay.create_executor("graph", mod, target="llvm").evaluate()(x).numpy()
    return out


def ops(mod: Any) -> list[str]:
    nodes = post_order(mod["main"])
    return [n.op.name for n in nodes if isinstance(n, relay.Call) and isinstance(n.op, tvm.ir.Op)]


@pytest.fixture(scope="module")
def expected() -> np.ndarray:
    return run(network(), samples(2, 1)[0])


@pytest.mark.parametrize("mode", ["global_scale", "kl_divergence", "percentile"])
def test_close_to_the_real_network(mode: str, expected: np.ndarray) -> None:
    mod, dataset = network(), [{"x": x} for x in samples(1, 3)]
    with relay.quantize.qconfig(
        calibrate_mode=mode, weight_scale="max", skip_conv_layers=[], skip_dense_layer=False,
        calibrate_chunk_by=3, global_scale=6.0,
    ):  # fmt: skip
        integers = relay.quantize.quantize(mod, dataset=dataset)
    assert ops(integers).count("qnn.conv2d") == 3 and ops(integers).count("qnn.dense") == 1
    got = run(integers, samples(2, 1)[0])
    assert np.abs(got - expected).max() < 0.12 * np.abs(expected).max()


def test_defaults_leave_the_first_convolution_and_dense_layers() -> None:
    integers = relay.quantize.quantize(network())
    assert ops(integers).count("nn.conv2d") == 1 and ops(integers).count("nn.dense") == 1


def test_simulation_stays_in_floating_point(expected: np.ndarray) -> None:
    with relay.quantize.qconfig(do_simulation=True):
        simulated = relay.quantize.quantize(network())
    assert ops(simulated).count("nn.conv2d") == 3
    got = run(simulated, samples(2, 1)[0])
    assert np.abs(got - expected).max() < 0.12 * np.abs(expected).max()


def test_clipping_of_outliers() -> None:
    values = np.abs(np.random.default_rng(0).standard_normal(20000))
    values[0] = 50.0
    assert kl_threshold(values, 50.0, 127) < 20
    assert kl_threshold(np.linspace(0, 1, 5000), 1.0, 127) > 0.9


def test_a_function_and_the_dtypes_of_old_scripts() -> None:
    """Sums are int32 whatever a script says; a bare function is a network."""
    mod = network()
    with relay.quantize.qconfig(nbit_activation=8, dtype_activation="int8"):
        found = relay.quantize.quantize(mod["main"])
    assert tvm.ir.structural_equal(found, relay.quantize.quantize(mod))


def test_errors() -> None:
    with relay.quantize.qconfig(calibrate_mode="percentile"), pytest.raises(InvalidOption):
        relay.quantize.quantize(network())
    with pytest.raises(InvalidOption):
        relay.quantize.qconfig(calibrate_mode="mean")
    with pytest.warns(UserWarning, match="skip_dense_layer"):
        relay.quantize.qconfig(skip_dense_layers=True)
    assert relay.quantize.current_qconfig().global_scale == 8.0
