"""Rolls are computed indices, fused with what stands around them; long means are means of means."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from hypothesis import given, settings
from hypothesis import strategies as st
from tvm import relax
from tvm.relax import op

from convoy.ir.device import Device
from convoy.lower import legalize
from convoy.lower.executable import lower, lower_calls
from convoy.lower.target import cuda_target
from convoy.streams.program import read


def network(shape, dtype, body):
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType(shape, dtype))
    with builder.function("main", [x]):
        with builder.dataflow():
            result = builder.emit_output(body(builder, x))
        builder.emit_func_output(result)
    return builder.get()


def run(mod, x):
    vm = relax.VirtualMachine(lower(mod, "llvm"), tvm.cpu())
    return vm["main"](tvm.runtime.tensor(x)).numpy()


def kernels(mod):
    """The kernels of a module on a GPU."""
    device = Device()
    return read(lower_calls(mod, cuda_target(device)), device).ops


PADDINGS = st.sampled_from(["edge", "reflect", "symmetric", "wrap"])


@settings(max_examples=16, deadline=None)
@given(st.data())
def test_indices_of_any_kind_are_taken(data) -> None:
    shape = tuple(data.draw(st.lists(st.integers(1, 6), min_size=1, max_size=3)))
    axis = data.draw(st.integers(0, len(shape) - 1))
    size = shape[axis]
    first, count = data.draw(st.integers(0, size - 1)), data.draw(st.integers(1, 2 * size))
    runs = (first + np.arange(count)) % size
    anything = np.array(data.draw(st.lists(st.integers(-size, size - 1), min_size=1, max_size=7)))
    padded = np.pad(np.arange(size), (first, count % size), data.draw(PADDINGS))
    rules = [runs, anything, np.arange(size)[::-1], np.array(first), padded]
    places = data.draw(st.sampled_from(rules))
    index = relax.const(places.astype("int64"))
    mod = network(shape, "float32", lambda b, x: b.emit(op.take(x, index, axis)))
    x = np.random.default_rng(0).standard_normal(shape).astype("float32")
    np.testing.assert_array_equal(run(mod, x), np.take(x, places, axis))


def test_parts_of_a_split_are_read_where_they_are() -> None:
    def gates(builder, x):
        parts = builder.emit(op.split(x, 4, 3))
        i, f, g, o = (builder.emit(relax.TupleGetItem(parts, k)) for k in range(4))
        both = builder.emit(op.multiply(op.sigmoid(i), op.tanh(g)))
        return builder.emit(op.add(both, builder.emit(op.multiply(op.sigmoid(f), o))))

    mod = network((1, 4, 4, 32), "float16", gates)
    assert len(kernels(mod)) == 1
    x = np.random.default_rng(0).standard_normal((1, 4, 4, 32)).astype("float16")
    i, f, g, o = np.split(x.astype("float64"), 4, 3)
    want = np.tanh(g) / (1 + np.exp(-i)) + o / (1 + np.exp(-f))
    np.testing.assert_allclose(run(mod, x), want, rtol=4e-3, atol=4e-3)


def test_a_rolled_image_is_cut_into_windows_by_one_kernel() -> None:
    def windows(builder, x):
        for axis in (1, 2):
            around = np.roll(np.arange(8), -3).astype("int64")
            x = builder.emit(op.take(x, relax.const(around), axis))
        x = builder.emit(op.reshape(x, (1, 2, 4, 2, 4, 16)))
        return builder.emit(op.permute_dims(x, [0, 1, 3, 2, 4, 5]))

    mod = network((1, 8, 8, 16), "float16", windows)
    assert len(kernels(mod)) == 1
    x = np.random.default_rng(0).standard_normal((1, 8, 8, 16)).astype("float16")
    apart = np.roll(x, (-3, -3), (1, 2)).reshape(1, 2, 4, 2, 4, 16)
    np.testing.assert_array_equal(run(mod, x), apart.transpose(0, 1, 3, 2, 4, 5))


@pytest.mark.parametrize("mode", ["reflect", "edge"])
def test_a_padded_image_is_one_kernel_that_moves_vectors(mode) -> None:
    def padded(builder, x):
        for axis, size in ((1, 8), (2, 6)):
            places = np.pad(np.arange(size), (2, 3), mode)
            x = builder.emit(op.take(builder.emit(op.nn.relu(x)), relax.const(places), axis))
        return x

    mod = network((1, 8, 6, 16), "float16", padded)
    found = lower_calls(mod, cuda_target(Device()))
    assert len(read(found, Device()).ops) == 1
    (kernel,) = (f for f in found.functions.values() if isinstance(f, tvm.tirx.PrimFunc))
    assert "T.vectorized(T.int64(8))" in kernel.without_attr("convoy.unscheduled").script()
    x = np.random.default_rng(0).standard_normal((1, 8, 6, 16)).astype("float16")
    want = np.pad(np.maximum(x, 0), ((0, 0), (2, 3), (2, 3), (0, 0)), mode)
    np.testing.assert_array_equal(run(mod, x), want)


@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize("keepdims", [False, True])
@pytest.mark.parametrize(
    ("shape", "count"),
    [
        ((1, 64, 48, 24), 2), ((2, 2500, 8), 2), ((1, 13, 211, 9), 2), ((1, 4, 4, 4, 40, 8), 2),
        ((1, 8, 8, 64), 1), ((600, 64, 64, 8), 1), ((1, 64, 64, 3), 1),
    ],
)  # fmt: skip
def test_long_means_of_few_images_take_two_kernels(shape, count, dtype, keepdims) -> None:
    axes = list(range(1, len(shape) - 1))
    mod = network(shape, dtype, lambda b, x: b.emit(op.mean(x, axes, keepdims)))
    found = kernels(mod)
    assert len(found) == count
    assert count == 1 or found[0].occupancy.blocks >= 30


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_means_of_means_are_means(monkeypatch: pytest.MonkeyPatch, dtype: str) -> None:
    monkeypatch.setattr(legalize, "on_gpu", lambda: True)
    for shape, axes, keepdims in (
        ((2, 64, 36, 10), [1, 2], True), ((1, 2310, 16), [1], False),
        ((1, 2311, 16), [1], True), ((1, 64, 64, 8), [1, 2], False), ((2, 64, 64, 8), [1, 3], True),
    ):  # fmt: skip
        x = (3 + np.random.default_rng(1).standard_normal(shape)).astype(dtype)
        mod = network(shape, dtype, lambda b, x, a=axes, k=keepdims: b.emit(op.mean(x, a, k)))
        want = x.astype("float64").mean(tuple(axes), keepdims=keepdims)
        got = run(mod, x)
        assert got.shape == want.shape and got.dtype == dtype
        np.testing.assert_allclose(got, want, rtol=1e-3 if dtype == "float16" else 1e-5)


def test_averages_of_equal_windows_are_shared_by_threads() -> None:
    def pooled(builder, x):
        return op.nn.adaptive_avg_pool2d(x, (2, 3), layout="NHWC")

    mod = network((2, 20, 24, 16), "float16", pooled)
    (kernel,) = kernels(mod)
    results = 2 * 2 * 3 * 16 // 8  # vectors of channels
    assert kernel.occupancy.blocks * kernel.occupancy.threads >= 4 * results
    x = np.random.default_rng(0).standard_normal((2, 20, 24, 16)).astype("float16")
    want = x.astype("float64").reshape(2, 2, 10, 3, 8, 16).mean((2, 4))
    np.testing.assert_allclose(run(mod, x), want, rtol=2e-3, atol=1e-3)
