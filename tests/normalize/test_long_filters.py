"""Long filters of groups as sums of convolutions with shorter ones, by their values."""

from __future__ import annotations

import numpy as np
import tvm
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tvm import relax
from tvm.relax import op

from convoy.lower.executable import lower
from convoy.normalize.long_filters import MOST_TAPS, SplitLongFilters

from ..graph.nets import count_ops, relative_error


def network(shape, kernel, groups, dtype="float16", **options):
    weights = np.random.default_rng(0).standard_normal(kernel).astype(dtype)
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType(shape, dtype))
    layouts = {"data_layout": "NHWC", "kernel_layout": "OHWI"}
    with builder.function("main", [x]):
        with builder.dataflow():
            y = op.nn.conv2d(x, relax.const(weights), groups=groups, **layouts, **options)
            result = builder.emit_output(builder.emit(y))
        builder.emit_func_output(result)
    return builder.get()


def run(mod, x):
    vm = relax.VirtualMachine(lower(mod, "llvm"), tvm.cpu())
    return vm["main"](tvm.runtime.tensor(x)).numpy().astype("float64")


@settings(max_examples=6, deadline=None)
@given(
    taps=st.integers(MOST_TAPS + 1, 3 * MOST_TAPS),
    size=st.integers(5, 60),
    pads=st.tuples(st.integers(0, 70), st.integers(0, 70)),
    stride=st.integers(1, 3),
    dilation=st.integers(1, 2),
    upright=st.booleans(),
)
@example(128, 49, (64, 63), 1, 1, False)
def test_any_long_filter(taps, size, pads, stride, dilation, upright) -> None:
    size = max(size, (taps - 1) * dilation + 1 - sum(pads))
    kernel, padding = (8, 1, taps, 2), (0, pads[0], 0, pads[1])
    shape, steps = (1, 1, size, 8), (1, stride)
    if upright:
        kernel, padding = (8, taps, 1, 2), (pads[0], 0, pads[1], 0)
        shape, steps = (1, size, 1, 8), (stride, 1)
    mod = network(shape, kernel, 4, strides=steps, padding=padding, dilation=dilation)
    split = SplitLongFilters()(mod)
    filters = [
        arg.ty.shape
        for block in split["main"].body.blocks
        for binding in block.bindings
        for arg in getattr(binding.value, "args", [])[1:2]
        if "conv2d" in str(getattr(binding.value, "op", ""))
    ]
    assert filters and all(int(max(filt[1], filt[2])) <= MOST_TAPS for filt in filters)
    x = np.random.default_rng(1).standard_normal(shape).astype("float16")
    assert relative_error(run(split, x), run(mod, x)) < 2e-3


def test_others_stay() -> None:
    for changed in ({"dtype": "float32"}, {"groups": 1, "kernel": (8, 1, 40, 8)}):
        options = {"shape": (1, 1, 60, 8), "kernel": (8, 1, 40, 2), "groups": 4} | changed
        mod = SplitLongFilters()(network(**options))
        assert count_ops(mod) == {"relax.nn.conv2d": 1}
