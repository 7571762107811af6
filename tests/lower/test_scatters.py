"""Scatters whose indices cover a part of the data, against NumPy."""

from __future__ import annotations

import numpy as np
import tvm
from hypothesis import given
from hypothesis import strategies as st
from tvm import relax

from convoy.lower.decompose import Decompose

from ..helpers.stock import machine

REDUCTIONS = {"update": lambda _, y: y, "add": np.add, "mul": np.multiply, "max": np.maximum}


def scattered(
    x: np.ndarray, places: np.ndarray, source: np.ndarray, axis: int, reduction: str
) -> np.ndarray:
    """Element by element."""
    y = x.copy()
    for at in np.ndindex(places.shape):
        to = list(at)
        to[axis] = places[at]
        y[tuple(to)] = REDUCTIONS[reduction](y[tuple(to)], source[at])
    return y


@given(st.data())
def test_every_part_of_the_data(data: st.DataObject) -> None:
    shape = data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=3), "shape")
    axis = data.draw(st.integers(-len(shape), len(shape) - 1), "axis")
    covered = [data.draw(st.integers(1, size), "covered") for size in shape]
    reduction = data.draw(st.sampled_from([*REDUCTIONS]), "reduction")
    rng = np.random.default_rng(0)
    # Different places for each: which of several values is the last is not defined.
    order = np.argsort(rng.random(shape), axis).astype("int64")
    places = order[tuple(map(slice, covered))]
    x, source = (rng.normal(size=size).astype("float32") for size in (shape, covered))

    values = relax.Var("x", relax.TensorType(shape, "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [values]):
        with builder.dataflow():
            call = relax.op.scatter_elements(
                values, relax.const(places), relax.const(source), axis, reduction
            )
            out = builder.emit_output(call)
        builder.emit_func_output(out)
    got = machine(Decompose()(builder.get()))["main"](tvm.runtime.tensor(x)).numpy()
    np.testing.assert_allclose(got, scattered(x, places, source, axis, reduction), rtol=1e-6)
