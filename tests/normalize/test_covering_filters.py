"""Filters that cover all of the data are products of all of it."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import relax
from tvm.relax import op

from convoy.graph.expr import shape_of
from convoy.graph.function import calls_of
from convoy.normalize.covering_filters import FlattenCovered

from ..graph.kernels import Case, conv
from ..graph.nets import relative_error, run_llvm

CONV = frozenset({"relax.nn.conv2d"})


def window_after(
    size: tuple[int, int], window: tuple[int, int], **attrs: object
) -> tuple[int, ...]:
    """The filter's window behind the pass; the values stay."""
    rng = np.random.default_rng(0)
    weights = relax.const(rng.standard_normal((8, *window, 3)).astype("float32"))

    def build(emit, x):  # type: ignore[no-untyped-def]
        return conv(emit, x, weights, **attrs)

    def reference(emit, x):  # type: ignore[no-untyped-def]
        x = emit(op.permute_dims(x, [0, 3, 1, 2]))
        w = emit(op.permute_dims(weights, [0, 3, 1, 2]))
        return emit(op.permute_dims(emit(op.nn.conv2d(x, w, **attrs)), [0, 2, 3, 1]))

    case = Case("", [(2, *size, 3)], ["float32"], build, "", reference)
    mod = FlattenCovered()(case.module())
    (x,) = case.inputs()
    assert relative_error(run_llvm(mod, x)[0], case.reference([x])) < 1e-5
    (call,) = calls_of(mod, CONV)
    return shape_of(call.args[1])[1:3]


@pytest.mark.parametrize("size", [(8, 1), (1, 7), (4, 5)])
@pytest.mark.parametrize("attrs", [{}, {"strides": (2, 3)}])
def test_covered(size: tuple[int, int], attrs: dict[str, object]) -> None:
    assert window_after(size, size, **attrs) == (1, 1)


@pytest.mark.parametrize(
    ("size", "window", "attrs"),
    [
        ((4, 5), (4, 4), {}),
        ((4, 5), (4, 5), {"padding": 1}),
        ((5, 1), (3, 1), {"dilation": (2, 1)}),  # every other row alone
    ],
)
def test_not_covered(size, window, attrs) -> None:  # type: ignore[no-untyped-def]
    assert window_after(size, window, **attrs) == window
