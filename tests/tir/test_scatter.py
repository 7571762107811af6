"""Scatters with a thread for each update: kernels as CUDA run on the CPU against NumPy."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tvm import relax
from tvm.relax import op

from convoy.ir.device import Device
from convoy.pipeline import place
from convoy.tir.scatter import Scatter, scatter_kernels

from ..emulation.kernels import emulate
from ..emulation.network import Emulation
from ..graph.kernels import TARGET

REDUCTIONS = {"update": lambda _, y: y, "add": np.add, "max": np.maximum, "min": np.minimum}


def expected(scatter: Scatter, x: np.ndarray, places: np.ndarray, source: np.ndarray) -> np.ndarray:
    """Update by update; indices out of bounds go nowhere."""
    y = x.astype(np.float64 if scatter.reduction == "add" else x.dtype)
    for at in np.ndindex(scatter.updates):
        if scatter.axis is None:
            length = scatter.indices[-1]
            rank = len(scatter.indices) - 1
            to = [*places[at[:rank]], *at[rank:]]
            sizes = scatter.shape[:length]
        else:
            to = list(at)
            to[scatter.axis] = places[at]
            sizes = ()
            if not -scatter.shape[scatter.axis] <= places[at] < scatter.shape[scatter.axis]:
                continue
        if all(-n <= i < n for i, n in zip(to, sizes, strict=False)):
            y[tuple(to)] = REDUCTIONS[scatter.reduction](y[tuple(to)], source[at])
    return y.astype(x.dtype)


@st.composite
def scatters(draw: st.DrawFn) -> Scatter:
    shape = tuple(draw(st.lists(st.integers(1, 7), min_size=1, max_size=3)))
    dtype = draw(st.sampled_from(["float16", "float32", "int32"]))
    rest = (dtype, draw(st.sampled_from(["int32", "int64"])), draw(st.sampled_from([*REDUCTIONS])))
    if draw(st.booleans()):
        places = tuple(draw(st.lists(st.integers(1, 9), max_size=2)))
        length = draw(st.integers(1, len(shape)))
        return Scatter(shape, (*places, length), (*places, *shape[length:]), *rest, None)
    axis = draw(st.integers(0, len(shape) - 1))
    covered = [draw(st.integers(1, 99 if i == axis else n)) for i, n in enumerate(shape)]
    return Scatter(shape, tuple(covered), tuple(covered), *rest, axis)


@settings(max_examples=12, deadline=None)
@given(scatter=scatters(), seed=st.integers(0, 9), backwards=st.booleans())
def test_kernels(scatter: Scatter, seed: int, backwards: bool) -> None:
    """In any order of the threads, with equal places, and with NaN."""
    rng = np.random.default_rng(seed)
    x, source = (
        rng.integers(-9, 9, s).astype(scatter.dtype) for s in (scatter.shape, scatter.updates)
    )
    if "float" in scatter.dtype:
        for part in (x, source):
            part[rng.random(part.shape) < 0.1] = np.nan
            part[rng.random(part.shape) < 0.1] = -np.inf
    places = rng.integers(-3, 4, scatter.indices).astype(scatter.index_dtype)
    met = np.full(math.prod(scatter.shape), 77, scatter.accumulator_dtype)
    flat = [part.reshape(-1) for part in (x, places, source)]
    out = np.full(met.shape, 77, scatter.dtype)
    got = emulate(scatter_kernels(scatter), TARGET, *flat, met, out, backwards=backwards)[-1]
    with np.errstate(invalid="ignore"):
        wanted = expected(scatter, x, places, source)
    np.testing.assert_array_equal(got.reshape(scatter.shape), wanted)


def test_what_is_left_to_tvm() -> None:
    def supported(dtype: str, reduction: str, size: int = 4) -> bool:
        return Scatter((size,), (4, 1), (4,), dtype, "int64", reduction, None).supported

    assert supported("int64", "update") and supported("bool", "update")
    assert not supported("int64", "add") and not supported("float64", "max")
    assert not supported("float32", "mul") and not supported("float32", "mean")
    assert not supported("float32", "update", 1 << 31)


@pytest.mark.parametrize("reduction", [*REDUCTIONS, "mul"])
def test_networks(reduction: str) -> None:
    """A scatter between other kernels, of 16 bits."""
    x, source = (relax.Var(n, relax.TensorType((9, s), "float32")) for n, s in (("x", 8), ("y", 6)))
    places = np.random.default_rng(0).integers(0, 8, (9, 6))
    builder = relax.BlockBuilder()
    with builder.function("main", [x, source]):
        with builder.dataflow():
            parts = [builder.emit(op.astype(part, "float16")) for part in (x, source)]
            at = relax.const(places)
            found = op.scatter_elements(parts[0], at, parts[1], 1, reduction)
            doubled = builder.emit(op.add(builder.emit(found), parts[0]))
            out = builder.emit_output(op.astype(doubled, "float32"))
        builder.emit_func_output(out)
    rng = np.random.default_rng(1)
    data = [rng.integers(-4, 4, (9, n)).astype("float32") for n in (8, 6)]
    placement = place(builder.get(), precision="float16", device=Device(), measure=False)
    (got,) = Emulation(placement, 1)(*data)
    wanted = data[0].copy()
    for i, j in np.ndindex(places.shape):
        before = wanted[i, places[i, j]]
        reduce = REDUCTIONS.get(reduction, np.multiply)
        wanted[i, places[i, j]] = reduce(before, data[1][i, j])
    np.testing.assert_array_equal(got, wanted + data[0])
