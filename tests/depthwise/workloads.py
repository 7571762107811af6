"""Random small depthwise workloads and their operands."""

from __future__ import annotations

import numpy as np
from hypothesis import assume
from hypothesis import strategies as st

from convoy.backends.kernels.depthwise.space import ACTIVATIONS
from convoy.errors import InvalidWorkload
from convoy.ir.epilogue import Epilogue
from convoy.ir.workload import Workload

from . import reference


@st.composite
def depthwise(draw, ops=("fprop", "dgrad", "wgrad"), dtypes=("float16", "float32")):
    """Odd channels, uneven padding, dilation, strides and multipliers; some are declined."""
    op, dtype = draw(st.sampled_from(ops)), draw(st.sampled_from(dtypes))
    square = draw(st.sampled_from([3, 5, 7, None]))
    sizes = st.sampled_from([1, 2, 3, 4, 5, 8, 9, 13])
    r, s = (square, square) if square else (draw(sizes), draw(sizes))
    c = draw(st.sampled_from([2, 3, 4, 8, 12, 16, 24, 50]))
    epilogue = Epilogue()
    if op == "fprop":
        epilogue = Epilogue(
            residual=draw(st.booleans()),
            bias=draw(st.booleans()),
            activation=draw(st.sampled_from(ACTIVATIONS)),
            clip_min=-0.5,
            clip_max=0.75,
        )
    pair = st.tuples(*[st.sampled_from([1, 1, 2, 3])] * 2)
    try:
        return Workload(
            op,
            n=draw(st.integers(1, 3)),
            h=draw(st.integers(1, 17)),
            w=draw(st.integers(1, 21)),
            c=c,
            k=c * draw(st.sampled_from([1, 1, 1, 2, 3])),
            r=r,
            s=s,
            stride=draw(st.one_of(st.just((1, 1)), st.just((2, 2)), pair)),
            padding=draw(st.tuples(*[st.integers(0, 2 * max(r, s))] * 4)),
            dilation=draw(st.one_of(st.just((1, 1)), pair)),
            groups=c,
            dtype=dtype,
            out_dtype=dtype,
            epilogue=epilogue,
        )
    except InvalidWorkload:
        assume(False)


@st.composite
def grouped(draw):
    """Groups of several channels, forward; some are declined."""
    groups = draw(st.sampled_from([2, 3, 5]))
    r, s = draw(st.sampled_from([(1, 1), (3, 3), (3, 3), (5, 5), (1, 7), (4, 2)]))
    pair = st.tuples(*[st.sampled_from([1, 1, 2, 3])] * 2)
    try:
        return Workload(
            "fprop",
            n=draw(st.integers(1, 2)),
            h=draw(st.integers(1, 11)),
            w=draw(st.integers(1, 13)),
            c=groups * draw(st.sampled_from([2, 4, 8, 12, 16, 24, 32, 56])),
            k=groups * draw(st.sampled_from([2, 3, 4, 8, 10, 16, 24, 40])),
            r=r,
            s=s,
            stride=draw(pair),
            padding=draw(st.tuples(*[st.integers(0, max(r, s))] * 4)),
            dilation=draw(pair),
            groups=groups,
            epilogue=Epilogue(
                residual=draw(st.booleans()),
                bias=draw(st.booleans()),
                activation=draw(st.sampled_from(ACTIVATIONS)),
                clip_min=-0.5,
                clip_max=0.75,
            ),
        )
    except InvalidWorkload:
        assume(False)


def operands(w: Workload, seed: int) -> dict[str, np.ndarray]:
    """Random operands by name."""
    generator = np.random.default_rng(seed)
    dtype = np.dtype(w.dtype)
    inputs = w.operand_shapes()[:-1]
    return {name: generator.standard_normal(size).astype(dtype) for name, size, _ in inputs}


def expected(w: Workload, given: dict[str, np.ndarray]) -> np.ndarray:
    """The result in float64."""
    if w.op == "fprop":
        filt, extra = given["w"], (given.get("residual"), given.get("bias"))
        return reference.fprop(w, given["x"], filt, *extra)
    if w.op == "dgrad":
        return reference.dgrad(w, given["dy"], given["w"])
    return reference.wgrad(w, given["dy"], given["x"])
