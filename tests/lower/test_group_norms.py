"""Group and instance norms of images against float64, and as kernels that use the GPU."""

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
    """A norm in float32, as the precision policy leaves it, then a relu."""
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


def reference(x, groups, gamma, beta, layout="NHWC"):
    """In float64."""
    if layout[1] == "C":
        return np.moveaxis(reference(np.moveaxis(x, 1, -1), groups, gamma, beta), -1, 1)
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


@settings(max_examples=12, deadline=None)
@given(st.data())
def test_norms_of_any_shape(data) -> None:
    groups, each = data.draw(st.integers(1, 4)), data.draw(st.integers(1, 5))
    image = data.draw(st.lists(st.integers(1, 7), min_size=1, max_size=2))
    layout = data.draw(st.sampled_from(["NHWC", "NCHW"] if len(image) == 2 else ["NWC", "NCW"]))
    shape = [data.draw(st.integers(1, 3)), *image]
    shape.insert(layout.index("C"), groups * each)
    kind = data.draw(st.sampled_from(["group", "instance"]))
    dtype = data.draw(st.sampled_from(["float16", "float32"]))
    mod, gamma, beta = network(shape, groups, layout, kind, dtype)
    rewritten = GroupNorms()(mod)
    assert f"relax.nn.{kind}_norm" not in count_ops(rewritten)
    offset = data.draw(st.sampled_from([0.0, 8.0]))
    x = (offset + np.random.default_rng(1).standard_normal(shape)).astype(dtype)
    groups = groups if kind == "group" else groups * each
    want = reference(x, groups, gamma, beta, layout)
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


@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("groups", [1, 16])
def test_the_whole_gpu_adds_up(groups: int, layout: str, dtype: str) -> None:
    shape = (2, 64, 48, 32) if layout == "NCHW" else (2, 48, 32, 64)
    mod, gamma, beta = network(shape, groups, layout, dtype=dtype)
    x = (3 + np.random.default_rng(2).standard_normal(shape)).astype(dtype)
    want = reference(x, groups, gamma, beta, layout)
    np.testing.assert_allclose(run(GroupNorms()(mod), x), want, rtol=4e-3, atol=4e-3)
    found = read(lower_calls(mod, cuda_target(Device())), Device()).ops
    assert [op.occupancy.blocks >= 8 for op in found if "sums" in op.symbol] == [True]
    assert all(op.duration_us < 8 for op in found)
