"""Group and instance norms of 16-bit images against float64, and as kernels that use the GPU."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tvm import relax
from tvm.relax import op

from convoy.ir.device import Device
from convoy.lower.executable import lower_calls
from convoy.lower.group_norms import GroupNorms
from convoy.lower.target import cuda_target
from convoy.normalize.normal_form import normalize
from convoy.pipeline import place
from convoy.streams.program import read

from ..emulation.network import Emulation
from ..graph.nets import count_ops

EPSILON = 1e-5


def network(shape, groups, layout="NHWC", kind="group", dtype="float16"):
    """A norm of 16-bit data in float32, as the precision policy leaves it, then a relu."""
    rng = np.random.default_rng(0)
    channel = layout.index("C")
    axes = [i for i in range(1, len(shape)) if i != channel]
    gamma, beta = (
        relax.const(rng.standard_normal(shape[channel]).astype("float32")) for _ in range(2)
    )
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType(shape, dtype))
    with builder.function("main", [x]):
        with builder.dataflow():
            y = builder.emit(op.astype(x, "float32"))
            if kind == "group":
                y = op.nn.group_norm(y, gamma, beta, groups, channel, axes, EPSILON)
            else:
                y = op.nn.instance_norm(y, gamma, beta, channel, axes, EPSILON)
            y = builder.emit(op.nn.relu(builder.emit(y)))
            result = builder.emit_output(builder.emit(op.astype(y, dtype)))
        builder.emit_func_output(result)
    return builder.get(), gamma.value.numpy(), beta.value.numpy()


def reference(x, groups, gamma, beta):
    """Channels last, in float64."""
    apart = x.astype("float64").reshape(len(x), -1, groups, x.shape[-1] // groups)
    mean = apart.mean((1, 3), keepdims=True)
    variance = apart.var((1, 3), keepdims=True)
    unit = ((apart - mean) / np.sqrt(variance + EPSILON)).reshape(x.shape)
    return np.maximum(unit * gamma + beta, 0)


def run(mod, x):
    """The result of a network on the CPU, whose kernels are emulated."""
    placement = place(mod, precision="float16", device=Device(), measure=False)
    emulation = Emulation(placement)
    (result,), (again,) = emulation(x, seed=0), emulation(x, seed=1)
    assert np.array_equal(result, again)
    return result


@settings(max_examples=10, deadline=None)
@given(st.data())
def test_norms_of_any_shape(data) -> None:
    groups, each = data.draw(st.integers(1, 4)), data.draw(st.integers(1, 5))
    image = data.draw(st.lists(st.integers(1, 7), min_size=1, max_size=2))
    shape = (data.draw(st.integers(1, 3)), *image, groups * each)
    kind = data.draw(st.sampled_from(["group", "instance"]))
    layout = "NHWC" if len(shape) == 4 else "NWC"
    mod, gamma, beta = network(shape, groups, layout, kind)
    rewritten = GroupNorms()(mod)
    assert f"relax.nn.{kind}_norm" not in count_ops(rewritten)
    offset = data.draw(st.sampled_from([0.0, 8.0]))
    x = (offset + np.random.default_rng(1).standard_normal(shape)).astype("float16")
    want = reference(x, groups if kind == "group" else shape[-1], gamma, beta)
    np.testing.assert_allclose(run(rewritten, x), want, rtol=4e-3, atol=4e-3)


@pytest.mark.parametrize(
    ("rows", "groups", "count"),
    [(64, 2, 2), (64, 8, 2), (200, 8, 3)],  # with 8 a load has several groups
)
def test_long_ones_are_added_up_in_parts(rows: int, groups: int, count: int) -> None:
    mod, gamma, beta = network((2, rows, 48, 8), groups)
    x = (3 + np.random.default_rng(2).standard_normal((2, rows, 48, 8))).astype("float16")
    got = run(GroupNorms()(mod), x)
    np.testing.assert_allclose(got, reference(x, groups, gamma, beta), rtol=4e-3, atol=4e-3)
    found = read(lower_calls(mod, cuda_target(Device())), Device()).ops
    assert [op.occupancy.blocks >= 4 for op in found if "sums" in op.symbol] == [True]
    assert len(found) == count
    assert all(op.duration_us < 5 for op in found)


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_no_layout_is_converted_for_a_norm(layout: str) -> None:
    """Between two convolutions in the layout of the model."""
    shape = (1, 8, 12, 12) if layout == "NCHW" else (1, 12, 12, 8)
    rng = np.random.default_rng(0)
    channel = layout.index("C")
    weights = relax.const(rng.standard_normal((8, 8, 3, 3)).astype("float32"))
    ones = relax.const(np.ones(8, "float32"))
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType(shape, "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            y = x
            for _ in range(2):
                y = op.nn.conv2d(y, weights, padding=1, data_layout=layout, kernel_layout="OIHW")
                axes = [i for i in (1, 2, 3) if i != channel]
                y = op.nn.group_norm(builder.emit(y), ones, ones, 4, channel, axes, EPSILON)
                y = builder.emit(y)
            result = builder.emit_output(y)
        builder.emit_func_output(result)
    normal = normalize(builder.get(), dtype="float16")
    assert count_ops(normal).get("relax.permute_dims", 0) == (2 if layout == "NCHW" else 0)
    assert count_ops(normal)["relax.nn.group_norm"] == 2


def test_float32_is_left_as_it_is() -> None:
    mod, _, _ = network((1, 6, 6, 8), 2, dtype="float32")
    assert count_ops(GroupNorms()(mod))["relax.nn.group_norm"] == 1
