"""Kernels of two element-wise results: as CUDA run on the CPU against NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import relax
from tvm.relax import op

from convoy.ir.device import Device
from convoy.pipeline import place

from ..emulation.network import Emulation


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


@pytest.mark.parametrize(("rows", "size"), [(3, 16), (2, 5), (1, 8), (300, 64)])
def test_steps_of_a_recurrent_cell(rows: int, size: int) -> None:
    """State and output of an LSTM come of one kernel: a step is a matmul and this kernel."""
    gates = relax.Var("gates", relax.TensorType((rows, 4 * size), "float32"))
    state = relax.Var("state", relax.TensorType((rows, size), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [gates, state]):
        with builder.dataflow():
            part = [
                builder.emit(op.strided_slice(gates, [1], [i * size], [(i + 1) * size]))
                for i in range(4)
            ]
            kept = op.multiply(op.sigmoid(part[0]), state)
            new = builder.emit(op.add(kept, op.multiply(op.sigmoid(part[1]), op.tanh(part[2]))))
            out = builder.emit(op.multiply(op.sigmoid(part[3]), op.tanh(new)))
            total = builder.emit(op.sum(new, axis=[1]))
            result = builder.emit_output(relax.Tuple([new, out, total]))
        builder.emit_func_output(result)
    placement = place(builder.get(), precision="float16", device=Device(), measure=False)
    emulation = Emulation(placement, 1)
    rng = np.random.default_rng(0)
    x, c = (rng.standard_normal((rows, n)).astype("float32") for n in (4 * size, size))
    f, i, g, o = np.split(x.astype("float64"), 4, axis=1)
    wanted = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
    for got, want in zip(
        emulation(x, c), (wanted, sigmoid(o) * np.tanh(wanted), wanted.sum(1)), strict=True
    ):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)
    assert len(emulation.program.ops) == 2, [one.symbol for one in emulation.program.ops]


@pytest.mark.parametrize("case", ["shifted", "later", "reduced", "twice"])
def test_kernels_that_stay_apart(case: str) -> None:
    """Those that read other elements, or what comes of the first result, or it twice."""
    x = relax.Var("x", relax.TensorType((8, 16), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            first = builder.emit(op.exp(x))
            total = builder.emit(op.sum(first, axis=[1], keepdims=True))
            if case == "shifted":
                second = op.permute_dims(op.reshape(op.permute_dims(first), (8, 16)), [0, 1])
                second = op.add(op.strided_slice(first, [1], [15], [-17], [-1]), second)
            elif case == "later":
                second = op.add(first, total)
            elif case == "twice":
                second = op.multiply(first, first)
            else:
                second = op.subtract(first, op.max(first, axis=[1], keepdims=True))
            result = builder.emit_output(relax.Tuple([total, builder.emit(second)]))
        builder.emit_func_output(result)
    placement = place(builder.get(), precision="float16", device=Device(), measure=False)
    emulation = Emulation(placement, 1)
    data = np.random.default_rng(0).standard_normal((8, 16)).astype("float32")
    e = np.exp(data)
    sums = e.sum(1, keepdims=True)
    wanted = {
        "shifted": e[:, ::-1] + e.T.reshape(8, 16),
        "later": e + sums,
        "twice": e * e,
        "reduced": e - e.max(1, keepdims=True),
    }[case]
    got = emulation(data)
    np.testing.assert_allclose(got[0], sums, rtol=1e-5)
    np.testing.assert_allclose(got[1], wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["sort", "argsort", "scatter", "add"])
def test_parts_of_a_concatenation(name: str) -> None:
    """A result of a kernel that has two does not lie in another tensor."""
    shape, places = (
        (12, 16),
        np.random.default_rng(1).permuted(np.tile(np.arange(16), (12, 1)), axis=1),
    )
    x = relax.Var("x", relax.TensorType(shape, "int32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            first = builder.emit(op.max(op.reshape(x, (12, 8, 2)), axis=[2]))
            if name == "scatter":
                part = op.scatter_elements(x, relax.const(places), builder.emit(op.add(x, x)), 1)
            elif name == "add":
                part = op.add(x, relax.const(1, "int32"))
            else:
                part = getattr(op, name)(x, axis=1)
            part = builder.emit(op.astype(part, "int32") if name == "argsort" else part)
            both = builder.emit(op.multiply(part, part))
            wide = builder.emit(op.concat([first, part], axis=1))
            whole = builder.emit(op.sum(wide, axis=[1]))
            result = builder.emit_output(relax.Tuple([wide, both, whole]))
        builder.emit_func_output(result)
    placement = place(builder.get(), precision="float16", device=Device(), measure=False)
    data = np.random.default_rng(0).integers(-9, 9, shape).astype("int32")
    y = {
        "sort": lambda: np.sort(data, 1),
        "argsort": lambda: np.argsort(data, 1, kind="stable"),
        "scatter": lambda: np.take_along_axis(2 * data, np.argsort(places, 1), 1),
        "add": lambda: data + 1,
    }[name]()
    wide = np.concatenate([data.reshape(12, 8, 2).max(2), y], 1)
    for got, want in zip(Emulation(placement, 1)(data), (wide, y * y, wide.sum(1)), strict=True):
        np.testing.assert_array_equal(got, want)


def test_a_scatter_leaves_other_parts_in_their_places() -> None:
    """Its kernel has several results, so that it alone is copied."""
    x = relax.Var("x", relax.TensorType((1, 8, 8, 16), "float32"))
    places = np.random.default_rng(0).integers(0, 16, (1, 8, 8, 16))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            parts = [
                builder.emit(pool(x, (3, 3), (1, 1), (1, 1, 1, 1), layout="NHWC"))
                for pool in (op.nn.max_pool2d, op.nn.avg_pool2d)
            ]
            scatter = op.scatter_elements(x, relax.const(places), x, 3, "max")
            wide = builder.emit(op.concat([*parts, builder.emit(scatter)], axis=3))
            smaller = builder.emit(op.nn.max_pool2d(wide, (2, 2), (2, 2), layout="NHWC"))
            result = builder.emit_output(relax.Tuple([wide, smaller]))
        builder.emit_func_output(result)
    emulation = Emulation(
        place(builder.get(), precision="float16", device=Device(), measure=False), 1
    )
    written = [one.symbol for one in emulation.program.ops if "_in_place" in one.symbol]
    assert {symbol.split("_in_place")[0] for symbol in written} >= {"max_pool2d", "avg_pool2d"}
    data = np.random.default_rng(1).standard_normal((1, 8, 8, 16)).astype("float32")
    wanted = data.copy()
    np.maximum.at(wanted, (*np.indices(places.shape)[:3], places), data)
    np.testing.assert_array_equal(emulation(data)[0][..., 32:], wanted)
