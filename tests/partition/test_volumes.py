"""Convolutions over volumes: channels last through the network, what is offloaded and in which
shape, and that it computes the same."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from hypothesis import given, settings
from hypothesis import strategies as st
from tvm import relax
from tvm.relax import op

from convoy.normalize.normal_form import normalize
from convoy.partition.subgraphs import find_subgraphs

from ..graph.nets import count_ops, random_inputs, relative_error, run_llvm
from ..helpers.longest import longest
from .test_subgraphs import run_rewritten


class Volumes:
    """A network over (n, c, d, h, w) under construction."""

    def __init__(self, shape, dtype="float32"):
        self.builder, self.rng = relax.BlockBuilder(), np.random.default_rng(0)
        self.x = relax.Var("x", relax.TensorType(shape, dtype))
        self.function = self.builder.function("main", [self.x])
        self.function.__enter__()
        self.block = self.builder.dataflow()
        self.block.__enter__()

    def emit(self, call):
        return self.builder.emit(call)

    def weights(self, *shape):
        return relax.const(self.rng.uniform(-0.5, 0.5, shape).astype("float32"))

    def conv(self, x, k, window, bias=False, **attrs):
        groups = attrs.get("groups", 1)
        c = int(x.ty.shape[1]) // groups
        y = self.emit(op.nn.conv3d(x, self.weights(k, c, *window), **attrs))
        return self.emit(op.add(y, self.weights(1, k, 1, 1, 1))) if bias else y

    def finish(self, result):
        out = self.builder.emit_output(result)
        self.block.__exit__(None, None, None)
        self.builder.emit_func_output(out)
        self.function.__exit__(None, None, None)
        return self.builder.get()


def check(mod, tolerance=1e-5):
    """Offload all that there is; compare with TVM's kernels. Returns the workloads."""
    normal = normalize(mod, dtype="float32")
    chosen = longest(find_subgraphs(normal))
    inputs = random_inputs(mod)
    rewritten, got = run_rewritten(normal, chosen, inputs)
    for a, b in zip(got, run_llvm(mod, *inputs), strict=True):
        assert relative_error(a, b) < tolerance
    return rewritten, [subgraph.require_workload() for subgraph in chosen]


def test_residual_block_keeps_channels_last() -> None:
    net = Volumes((1, 4, 3, 6, 5))
    first = net.emit(op.nn.relu(net.conv(net.x, 8, (3, 3, 3), bias=True, padding=[1, 1, 1])))
    y = net.emit(op.nn.relu(net.conv(first, 8, (3, 3, 3), bias=True, padding=[1, 1, 1])))
    y = net.conv(y, 8, (3, 3, 3), bias=True, padding=[1, 1, 1])
    y = net.emit(op.nn.relu(net.emit(op.add(y, first))))
    y = net.emit(op.nn.max_pool3d(y, [1, 2, 2], [1, 2, 2]))
    mod = net.finish(y)
    rewritten, loads = check(mod)
    assert [load.epilogue.name for load in loads] == [
        "bias_relu", "bias_relu", "residual_bias_relu",
    ]  # fmt: skip
    assert all(load.is_3d for load in loads)
    assert count_ops(rewritten)["relax.permute_dims"] == 2, "of the input and of the result"


def test_filters_of_one_plane_or_pixel_are_over_images() -> None:
    net = Volumes((2, 4, 4, 6, 5))
    y = net.emit(op.nn.relu(net.conv(net.x, 8, (1, 3, 3), True, padding=[0, 1, 1])))
    y = net.emit(op.nn.relu(net.conv(y, 8, (3, 1, 1), True, padding=[1, 0, 0], strides=[2, 1, 1])))
    other = net.conv(net.x, 8, (1, 1, 1), strides=[2, 1, 1])
    y = net.emit(op.nn.relu(net.emit(op.add(y, other))))
    rewritten, loads = check(net.finish(net.conv(y, 3, (1, 1, 1))))
    assert not any(load.is_3d for load in loads)
    sizes = [(load.n, load.h, load.w, load.r, load.s) for load in loads]
    assert sizes == [(8, 6, 5, 3, 3), (2, 4, 30, 3, 1), (2, 4, 30, 1, 1), (4, 6, 5, 1, 1)]
    assert "residual" in "".join(load.epilogue.name for load in loads)
    assert count_ops(rewritten)["relax.permute_dims"] == 2


def test_branches_over_volumes_are_one_convolution() -> None:
    net = Volumes((1, 4, 2, 5, 5))
    parts = [net.emit(op.nn.relu(net.conv(net.x, k, (1, 1, 1), True))) for k in (8, 4)]
    mod = net.finish(net.emit(op.concat(parts, axis=1)))
    normal = normalize(mod, dtype="float32")
    (joint,) = [subgraph for subgraph in find_subgraphs(normal) if subgraph.split]
    inputs = random_inputs(mod)
    _, got = run_rewritten(normal, [joint], inputs)
    assert relative_error(got[0], run_llvm(mod, *inputs)[0]) < 1e-5


@settings(max_examples=12, deadline=None)
@given(st.data())
def test_transposed_convolutions(data) -> None:
    groups = data.draw(st.sampled_from([1, 1, 2]))
    window = [data.draw(st.integers(1, 3)) for _ in range(3)]
    whole = groups == 1 and data.draw(st.booleans())
    strides = window if whole else [data.draw(st.integers(1, 2)) for _ in range(3)]
    padding = [0] * 3 if whole else [data.draw(st.integers(0, (k - 1) // 2)) for k in window]
    extra = [0] * 3 if whole else [data.draw(st.integers(0, s - 1)) for s in strides]
    net = Volumes((2, 4, 2, 3, 4))
    w = net.weights(4, 6 // groups, *window)
    mod = net.finish(
        net.emit(
            op.nn.conv3d_transpose(
                net.x, w, strides=strides, padding=padding, output_padding=extra, groups=groups
            )
        )
    )
    _, (load,) = check(mod)
    assert load.op == ("matmul" if groups == 1 and strides == window and not any(padding + extra)
                       else "dgrad")  # fmt: skip


def test_padding_in_front_of_a_causal_convolution_is_folded() -> None:
    net = Volumes((1, 4, 4, 5, 5))
    y = net.emit(op.nn.relu(net.conv(net.x, 4, (1, 1, 1))))
    padded = net.emit(op.nn.pad(y, [0, 0, 0, 0, 2, 0, 1, 1, 1, 1]))
    _, (_, load) = check(net.finish(net.conv(padded, 8, (3, 3, 3))))
    assert load.depth.padding == (2, 0) and load.padding == (1, 1, 1, 1)


@pytest.mark.parametrize("channels", [1, 3])
def test_stems_have_eight_channels_in_16_bit(channels: int) -> None:
    net = Volumes((1, channels, 3, 6, 6))
    mod = net.finish(net.conv(net.x, 8, (3, 3, 3)))
    loads = [s.require_workload() for s in find_subgraphs(normalize(mod, dtype="float16"))]
    assert {load.c for load in loads} == {8}
    loads = [s.require_workload() for s in find_subgraphs(normalize(mod, dtype="float32"))]
    assert {load.c for load in loads} == {channels}


def test_scale_is_folded_into_the_filter() -> None:
    net = Volumes((1, 4, 3, 4, 4))
    y = net.conv(net.x, 8, (3, 3, 3))
    y = net.emit(op.multiply(y, net.weights(1, 8, 1, 1, 1)))
    mod = net.finish(net.emit(op.add(y, net.weights(1, 8, 1, 1, 1))))
    _, (load,) = check(mod)
    assert load.epilogue.name == "bias"


def test_permutations_of_five_axes_stay_in_networks_without_volumes() -> None:
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((1, 3, 4, 5, 2), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            y = builder.emit(op.permute_dims(x, [0, 2, 3, 4, 1]))
            y = builder.emit_output(op.add(builder.emit(op.reshape(x, (1, 4, 5, 2, 3))), y))
        builder.emit_func_output(y)
    mod = builder.get()
    tvm.ir.assert_structural_equal(normalize(mod, dtype="float32")["main"].body, mod["main"].body)
