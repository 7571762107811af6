"""The largest and smallest elements of rows: kernels as CUDA run on the CPU against numpy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tvm import relax
from tvm.relax import op

from convoy.ir.device import Device
from convoy.pipeline import place
from convoy.tir.topk import MOST, TopK, topk_kernel

from ..emulation.kernels import call, compile_kernels
from ..emulation.network import Emulation
from ..graph.kernels import TARGET


def expected(x: np.ndarray, k: int, largest: bool) -> tuple[np.ndarray, np.ndarray]:
    """Of equal elements that with the smaller index first."""
    order = np.argsort(-x.astype(float) if largest else x, axis=-1, kind="stable")[..., :k]
    return np.take_along_axis(x, order, -1), order


def selected(whole: TopK, x: np.ndarray) -> list[np.ndarray]:
    *steps, last = whole.steps()
    read = whole.size
    kernels = {}
    for i, step in enumerate([*steps, last]):
        kernels[f"step{i}"] = topk_kernel(step, read, False, i > 0, last=step is last)
        read = step.kept
    built, found = compile_kernels(kernels, TARGET), [x]
    for i, step in enumerate([*steps, last]):
        dtypes = [step.dtype, "int64"] if step is last else ["int64"]
        empty = [np.full((step.rows, step.kept), 77, dtype) for dtype in dtypes]
        found = call(built[f"step{i}"], *found, *empty)[1:]
    return found


@settings(max_examples=6, deadline=None)
@given(
    rows=st.integers(1, 5),
    size=st.sampled_from([1, 2, 3, 8, 60, 64, 65, 300]),
    share=st.floats(0.01, 1.0),
    dtype=st.sampled_from(["float32", "int32"]),
    largest=st.booleans(),
    seed=st.integers(0, 9),
)
@example(2, 2500, 0.01, "float32", True, 0)
@example(1, 1500, 0.02, "int32", False, 1)
@example(70, 8, 0.25, "float32", True, 2)
@example(600, 300, 0.1, "float32", False, 3)
@example(3, 3000, 1.0, "int32", True, 4)
def test_kernels(rows: int, size: int, share: float, dtype: str, largest: bool, seed: int) -> None:
    k = max(1, int(size * share))
    rng = np.random.default_rng(seed)
    x = rng.integers(-20, 20, (rows, size)).astype(dtype)  # with equal ones
    if dtype == "float32":
        x[rng.random(x.shape) < 0.3] = -np.inf if largest else np.inf
        x[rng.random(x.shape) < 0.1] = -0.0  # equal to 0
    else:
        x[rng.random(x.shape) < 0.1] = -(1 << 31)
    values, indices = selected(TopK(rows, size, k, dtype, largest), x)
    wanted = expected(x, k, largest)
    np.testing.assert_array_equal(values, wanted[0])
    np.testing.assert_array_equal(indices, wanted[1])


@given(rows=st.integers(1, 1 << 16), size=st.integers(1, 1 << 22), k=st.integers(1, MOST))
def test_kernels_fit_a_gpu_and_are_few(rows: int, size: int, k: int) -> None:
    k = min(k, size)
    steps = list(TopK(rows, size, k, "float32", True).steps())
    assert steps[-1].kept == k and len(steps) <= 7
    for step in steps:
        assert step.k <= step.tile and step.threads <= 1024 and step.tiles < 1 << 16
        assert step.own_rows * step.tile * 8 <= 48 << 10


@pytest.mark.parametrize(
    ("shape", "axis", "kind", "largest", "kernels"),
    [
        ((3, 40), -1, "both", True, 1),
        ((2, 30, 3), 1, "indices", False, 1),
        ((50,), 0, "values", True, 1),
        ((1, 1 << 16), -1, "both", True, 2),
        ((1, 9000), -1, "both", False, 2),
    ],
)
def test_networks(
    shape: tuple[int, ...], axis: int, kind: str, largest: bool, kernels: int
) -> None:
    """NaN is the largest, as in PyTorch."""
    bb = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType(shape, "float32"))
    with bb.function("main", [x]):
        with bb.dataflow():
            y = bb.emit(op.add(x, x))
            found = bb.emit(op.topk(y, 4, axis, kind, largest, "int64"))
            results = [found[0], found[1]] if kind == "both" else [found]
            gv = bb.emit_output(relax.Tuple([bb.emit(op.add(r, r)) for r in results]))
        bb.emit_func_output(gv)
    placement = place(bb.get(), precision="float16", device=Device(), measure=False)
    emulation = Emulation(placement, 1)
    data = np.random.default_rng(0).standard_normal(shape).astype("float32")
    data.reshape(-1)[::7] = np.nan
    doubled = np.moveaxis(2 * data, axis, -1)
    keys = np.where(np.isnan(doubled), np.inf, doubled)
    order = expected(keys, 4, largest)[1]
    values = np.take_along_axis(doubled, order, -1)
    wanted = {"both": [values, order], "values": [values], "indices": [order]}[kind]
    for got, want in zip(emulation(data), wanted, strict=True):
        np.testing.assert_array_equal(np.moveaxis(got, axis, -1), 2 * want)
    symbols = [op.symbol for op in emulation.program.ops]
    assert sum(symbol.startswith("topk") for symbol in symbols) == kernels


@pytest.mark.parametrize("name", ["sort", "argsort"])
@pytest.mark.parametrize(("size", "dtype"), [(30, "float32"), (1100, "int32"), (8195, "float32")])
def test_sorts(name: str, size: int, dtype: str) -> None:
    """In one tile, and in several that are merged."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((size, 3), dtype))
    with builder.function("main", [x]):
        with builder.dataflow():
            found = builder.emit(getattr(op, name)(x, axis=0, descending=True))
            out = builder.emit_output(op.add(found, found))
        builder.emit_func_output(out)
    placement = place(builder.get(), precision="float16", device=Device(), measure=False)
    emulation = Emulation(placement, 1)
    symbols = [one.symbol for one in emulation.program.ops]
    assert any(symbol.startswith("topk") for symbol in symbols)
    assert any(symbol.startswith("merge") for symbol in symbols) == (size > 4096)
    data = np.random.default_rng(0).integers(-50, 50, (size, 3)).astype(dtype)
    (got,) = emulation(data)
    order = np.argsort(-data, axis=0, kind="stable")
    wanted = order if name == "argsort" else np.take_along_axis(data, order, 0)
    np.testing.assert_array_equal(got, 2 * wanted)
