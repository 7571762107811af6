"""Pools over large windows are those over their rows and columns."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tvm import relax
from tvm.relax import op

from convoy.graph.expr import ints, shape_of
from convoy.graph.function import bindings_of
from convoy.normalize.large_pools import LargePools

from ..graph.nets import count_ops, run_llvm


def pool(kind: str, shape: tuple[int, ...], window: tuple[int, int], **attrs):
    x = relax.Var("x", relax.TensorType(shape, "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            make = {"max": op.nn.max_pool2d, "avg": op.nn.avg_pool2d}[kind]
            result = builder.emit_output(
                builder.emit(make(x, list(window), layout="NHWC", **attrs))
            )
        builder.emit_func_output(result)
    return builder.get()


@settings(max_examples=15, deadline=None)
@given(st.data())
def test_results_are_the_same(data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from(["max", "avg"]))
    window = data.draw(st.tuples(st.integers(6, 13), st.integers(11, 13)))
    attrs = {
        "strides": data.draw(st.tuples(st.integers(1, 12), st.integers(1, 12))),
        "padding": [data.draw(st.integers(0, size // 2)) for size in window * 2],
        "ceil_mode": data.draw(st.booleans()),
    }
    if kind == "avg":
        attrs["count_include_pad"] = data.draw(st.booleans())
    image = [data.draw(st.integers(size, 2 * size)) for size in window]
    mod = pool(kind, (2, *image, 3), window, **attrs)
    separate = LargePools()(mod)
    if "relax.mean" not in count_ops(separate) and "relax.max" not in count_ops(separate):
        windows = [ints(b.value.attrs.pool_size) for b in bindings_of(separate["main"])]
        assert windows == [(1, window[1]), (window[0], 1)]
    x = np.random.default_rng(0).standard_normal((2, *image, 3)).astype("float32")
    got, want = run_llvm(separate, x), run_llvm(mod, x)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("kind", "reduction"), [("max", "relax.max"), ("avg", "relax.mean")])
def test_a_window_that_covers_the_image_is_a_reduction(kind: str, reduction: str) -> None:
    mod = LargePools()(pool(kind, (2, 9, 8, 16), (9, 8)))
    assert count_ops(mod) == {reduction: 1}
    assert shape_of(bindings_of(mod["main"])[-1].var) == (2, 1, 1, 16)


def test_small_windows_stay() -> None:
    mod = LargePools()(pool("avg", (2, 9, 8, 16), (7, 7)))
    assert count_ops(mod) == {"relax.nn.avg_pool2d": 1}
