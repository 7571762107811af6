"""ConvertLayout and AlterOpLayout: other layouts, the same values, few transposes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from convoy import relay
from convoy.relay import transform
from convoy.relay import tvm018 as tvm
from convoy.relay.testing import TempOpAttr
from convoy.relay.visit import post_order

SHAPE = (1, 8, 10, 10)

RNG = np.random.default_rng(7)


def network() -> relay.Function:
    """Branches, slices, splits, padding, statistics and broadcasts around convolutions."""
    rng = np.random.default_rng(3)

    def weight(*shape: int) -> relay.Constant:
        return relay.const(rng.standard_normal(shape) / 4, "float32")

    x = relay.var("x", shape=SHAPE)
    stem = relay.nn.conv2d(x, weight(8, 8, 3, 3), padding=(1, 1))
    stem = relay.nn.bias_add(stem, weight(8))
    norm = relay.nn.batch_norm(
        stem, weight(8), weight(8), weight(8), relay.const(np.ones(8), "float32")
    )[0]
    a, b = relay.split(relay.nn.relu(norm), 2, axis=1)
    a = relay.nn.max_pool2d(a, (3, 3), strides=(2, 2), padding=(1, 1))
    b = relay.strided_slice(b, [0, 0, 0, 0], [1, 4, 10, 10], strides=[1, 1, 2, 2])
    b = relay.nn.conv2d(relay.nn.pad(b, ((0, 0), (0, 0), (1, 1), (0, 2))), weight(4, 4, 3, 3))
    y = relay.concatenate([a, b], axis=1)
    y = y * relay.sigmoid(relay.mean(y, axis=[2, 3], keepdims=True)) + weight(8, 1, 1)
    y = relay.nn.conv2d(y, weight(8, 1, 3, 3), groups=8, padding=(1, 1))
    y = relay.image.resize2d(y, (7, 7))
    row = relay.squeeze(relay.strided_slice(y, [0, 0, 0, 0], [1, 8, 1, 7]), [2])
    top = relay.argmax(y, axis=[1], keepdims=True)
    return relay.Function(
        [x],
        relay.Tuple([
            relay.transpose(y, (0, 2, 3, 1)), relay.max(y, axis=[1]), row, top,
            relay.nn.batch_flatten(relay.nn.global_avg_pool2d(y)),
        ]),
    )  # fmt: skip


def run(mod: Any) -> list[np.ndarray]:
    x = np.random.default_rng(4).standard_normal(SHAPE).astype("float32")
    found = relay.create_executor("graph", mod, target="llvm").evaluate()(x)
    return [f.numpy() for f in found]


def calls(mod: Any, name: str) -> list[Any]:
    nodes = post_order(mod["main"])
    return [n for n in nodes if isinstance(n, relay.Call) and n.op == relay.op.get(name)]


@pytest.fixture(scope="module")
def expected() -> list[np.ndarray]:
    return run(tvm.IRModule.from_expr(network()))


def check(mod: Any, expected: Sequence[np.ndarray]) -> None:
    for got, want in zip(run(mod), expected, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


def converted(layouts: dict[str, list[str]]) -> Any:
    passes = tvm.transform.Sequential([transform.ConvertLayout(layouts)])
    with tvm.transform.PassContext(opt_level=3):
        return passes(tvm.IRModule.from_expr(network()))


def test_channels_last(expected: list[np.ndarray]) -> None:
    mod = converted({"nn.conv2d": ["NHWC", "default"]})
    assert {c.attrs.data_layout for c in calls(mod, "nn.conv2d")} == {"NHWC"}
    assert {c.attrs.kernel_layout for c in calls(mod, "nn.conv2d")} == {"HWIO", "HWOI"}
    moved = [c for c in calls(mod, "layout_transform") if c.attrs.src_layout[0] == "N"]
    # In: the input and two broadcast vectors; out: the results that have all axes.
    assert len(moved) <= 6
    check(mod, expected)


def test_max_pool_keeps_the_layout_it_is_given(expected: list[np.ndarray]) -> None:
    mod = converted({"nn.conv2d": ["NHWC", "OHWI"], "nn.max_pool2d": ["NCHW"]})
    assert [c.attrs.layout for c in calls(mod, "nn.max_pool2d")] == ["NCHW"]
    check(mod, expected)


def test_skipped_layers() -> None:
    with transform.LayoutConfig(skip_layers=[0]):
        mod = converted({"nn.conv2d": ["NHWC", "default"]})
    found = [c.attrs.data_layout for c in calls(mod, "nn.conv2d")]
    assert found.count("NCHW") == 1 and found.count("NHWC") == 2


def test_channels_in_blocks(expected: list[np.ndarray]) -> None:
    """A function of a user asks for blocks of 4 channels where there are groups of 1."""

    def blocks(attrs: Any, inputs: Any, tinfos: Any, out_type: Any) -> Any:
        if attrs.groups > 1:
            return None
        new = {**attrs, "data_layout": "NCHW4c", "kernel_layout": "OIHW4i4o"}
        return relay.nn.conv2d(*inputs, **new)

    passes = tvm.transform.Sequential([transform.CanonicalizeOps(), transform.AlterOpLayout()])
    with (
        TempOpAttr("nn.conv2d", "FTVMAlterOpLayout", blocks),
        tvm.transform.PassContext(opt_level=3),
    ):
        mod = passes(tvm.IRModule.from_expr(network()))
    layouts = [c.attrs.data_layout for c in calls(mod, "nn.conv2d")]
    assert sorted(layouts) == ["NCHW", "NCHW4c", "NCHW4c"]
    check(mod, expected)


def test_filters_that_no_block_divides() -> None:
    x = relay.var("x", shape=(1, 4, 5, 5))
    weight = RNG.uniform(-1, 1, (3, 4, 1, 1)).astype("float32")
    data = RNG.uniform(-1, 1, (1, 4, 5, 5)).astype("float32")
    made = relay.nn.bias_add(relay.nn.conv2d(x, relay.const(weight)), relay.const([1.0, 2.0, 3.0]))
    mod = tvm.IRModule.from_expr(relay.Function([x], made))
    mod = transform.ConvertLayout({"nn.conv2d": ["NCHW2c", "default"]})(transform.InferType()(mod))
    got = relay.create_executor("graph", mod=mod).evaluate()(data).numpy()
    want = np.einsum("nchw,oc->nohw", data, weight[..., 0, 0]) + np.arange(1, 4)[:, None, None]
    np.testing.assert_allclose(got, want, 1e-5, 1e-5)


def test_functions_of_earlier_versions() -> None:
    """Until TVM 0.7 the function did not get the type of the result."""

    def alter(attrs: Any, inputs: Any, tinfos: Any) -> Any:
        return relay.nn.conv2d(relay.negative(inputs[0]), inputs[1], **attrs)

    x, w = relay.var("x", shape=(1, 2, 3, 3)), relay.var("w", shape=(2, 2, 1, 1))
    with TempOpAttr("nn.conv2d", "FTVMAlterOpLayout", alter):
        mod = transform.AlterOpLayout()(tvm.IRModule.from_expr(relay.nn.conv2d(x, w)))
    assert mod["main"].body.args[0].op.name == "negative"


def test_rule_of_a_user() -> None:
    """Without a rule the layout ends before the operator."""
    x = relay.var("x", shape=(1, 4, 5, 5))
    y = relay.cosh(relay.nn.conv2d(x, relay.const(np.ones((4, 4, 1, 1)), "float32")))
    mod = tvm.IRModule.from_expr(y)

    def rule(attrs: Any, new: Any, old: Any, types: Any) -> Any:
        from convoy.relay.transform.infer_layout_utils import InferCorrectLayoutOutput

        found = new[0] if new else old[0]
        return InferCorrectLayoutOutput([found], [found], attrs)

    def last(found: Any) -> Any:
        return transform.ConvertLayout({"nn.conv2d": ["NHWC", "default"]})(found)["main"].body

    assert last(mod).op.name == "cosh"
    with TempOpAttr("cosh", "FInferCorrectLayout", rule):
        assert last(mod).op.name == "layout_transform"


@pytest.mark.parametrize("order", [(0, 1, 3, 2), (0, 2, 3, 1)])
def test_transposed_images(order: tuple[int, ...]) -> None:
    """Rows and columns of one size change places, which no shape shows."""
    rng = np.random.default_rng(5)
    first, second = (
        relay.const(rng.standard_normal((10, 8 + 2 * i, 3, 3)), "float32") for i in (0, 1)
    )
    x = relay.var("x", shape=SHAPE)
    y = relay.nn.conv2d(x, first, padding=(1, 1))
    turned = relay.transpose(y, order)
    pooled = relay.nn.avg_pool2d(turned, (3, 1), padding=(1, 0))
    last = relay.nn.conv2d(pooled, second, padding=(1, 0))
    mod = relay.IRModule.from_expr(relay.Function([x], relay.Tuple([last, turned + y])))
    with tvm.transform.PassContext(opt_level=3):
        converted = transform.ConvertLayout({"nn.conv2d": ["NHWC", "default"]})(mod)
    assert calls(converted, "layout_transform")
    for got, want in zip(run(converted), run(mod), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)
