"""The gradient operators of a convolution: types, mistakes, TVMScript, and their loops on the CPU
against sums in float64."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tvm import relax

from convoy.errors import InvalidWorkload, UnsupportedLayout
from convoy.ir.workload import Workload
from convoy.measure import reference
from convoy.ops.conv_backward import conv2d_dgrad, conv2d_wgrad

from ..helpers.errors import l2_error
from ..helpers.stock import machine


def module(workload, data_layout="NHWC", kernel_layout="OHWI"):
    """One gradient operator as a function of its operands."""
    wl = workload
    (first, *shapes), bb = wl.operand_shapes(), relax.BlockBuilder()
    is_dgrad = wl.op == "dgrad"
    layouts = (data_layout, kernel_layout if is_dgrad else data_layout)
    args = []
    for (name, shape, dtype), layout in zip((first, shapes[0]), layouts, strict=True):
        plain = "OHWI" if name == "w" else "NHWC"
        dims = [shape[plain.index(letter)] for letter in layout]
        args.append(relax.Var(name, relax.TensorType(dims, dtype)))
    make = conv2d_dgrad if is_dgrad else conv2d_wgrad
    call = make(
        *args, (wl.h, wl.w) if is_dgrad else (wl.r, wl.s), strides=wl.stride, padding=wl.padding,
        dilation=wl.dilation, groups=wl.groups, data_layout=data_layout,
        kernel_layout=kernel_layout, out_dtype=wl.out_dtype,
    )  # fmt: skip
    with bb.function("main", args):
        with bb.dataflow():
            out = bb.emit_output(call)
        bb.emit_func_output(out)
    return bb.get()


def run(mod, *inputs):
    vm = machine(mod)
    return vm["main"](*[tvm.runtime.tensor(np.ascontiguousarray(i)) for i in inputs]).numpy()


def operands(workload, seed=0):
    rng = np.random.default_rng(seed)
    return {
        name: rng.uniform(-1, 1, shape).astype(dtype)
        for name, shape, dtype in workload.operand_shapes()[:-1]
    }


def permuted(array, layout, wanted):
    return array.transpose([layout.index(letter) for letter in wanted])


ONE, THREE = (1, 1, 1, 1), {"r": 3, "s": 3}
CASES = {
    "plain": {"h": 6, "w": 5, "c": 3, "k": 4, **THREE, "padding": ONE},
    "strided": {"h": 9, "w": 8, "c": 3, "k": 4, **THREE, "stride": (2, 3), "padding": ONE},
    "a row that no window reaches": {
        "h": 8, "w": 8, "c": 2, "k": 3, "r": 3, "s": 1, "stride": (2, 2),
    },
    "asymmetric": {
        "h": 7, "w": 6, "c": 2, "k": 2, "r": 3, "s": 2, "stride": (2, 1), "padding": (0, 2, 1, 1),
    },
    "dilated": {
        "h": 9, "w": 10, "c": 2, "k": 3, **THREE, "padding": (2, 2, 2, 2), "dilation": (2, 2),
    },
    "dilated and strided": {
        "h": 9, "w": 9, "c": 2, "k": 3, **THREE, "stride": (2, 2), "dilation": (2, 3),
    },
    "grouped": {"h": 5, "w": 5, "c": 6, "k": 4, **THREE, "padding": ONE, "groups": 2},
    "depthwise, multiplied": {
        "h": 5, "w": 5, "c": 3, "k": 6, **THREE, "stride": (2, 2), "groups": 3,
    },
    "1x1 strided": {"h": 6, "w": 7, "c": 3, "k": 5, "r": 1, "s": 1, "stride": (2, 2)},
}  # fmt: skip


@pytest.mark.parametrize("op", ["dgrad", "wgrad"])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_loops(op, case):
    wl = Workload(op, 2, **CASES[case], dtype="float32", out_dtype="float32")
    values = operands(wl)
    (expected,) = reference.full(wl, values)
    assert l2_error(run(module(wl), *values.values()), expected) < 1e-6


@given(
    op=st.sampled_from(["dgrad", "wgrad"]),
    n=st.integers(1, 2), h=st.integers(3, 7), w=st.integers(3, 7),
    per_group=st.tuples(st.integers(1, 3), st.integers(1, 3)), groups=st.integers(1, 3),
    taps=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    stride=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    padding=st.tuples(*[st.integers(0, 3)] * 4),
    dilation=st.tuples(st.integers(1, 2), st.integers(1, 2)),
)  # fmt: skip
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_any_geometry(op, n, h, w, per_group, groups, taps, stride, padding, dilation):
    try:
        wl = Workload(
            op, n, h, w, per_group[0] * groups, per_group[1] * groups, *taps, stride, padding,
            dilation, groups, "float32", "float32",
        )  # fmt: skip
    except InvalidWorkload:
        return  # the filter does not fit
    values = operands(wl)
    (expected,) = reference.full(wl, values)
    norm = np.linalg.norm(expected) or 1.0
    got = run(module(wl), *values.values())
    assert got.shape == expected.shape and np.linalg.norm(got - expected) / norm < 1e-6


@pytest.mark.parametrize("op", ["dgrad", "wgrad"])
def test_sixteen_bit_operands_are_summed_in_float32(op):
    wl = Workload(op, 4, 16, 16, 32, 32, 3, 3, padding=(1, 1, 1, 1), out_dtype="float32")
    values = operands(wl)
    (expected,) = reference.full(wl, values)
    assert l2_error(run(module(wl), *values.values()), expected) < 1e-5


@pytest.mark.parametrize("layouts", [("NCHW", "OIHW"), ("NHWC", "HWIO"), ("CNHW", "IHWO")])
@pytest.mark.parametrize("op", ["dgrad", "wgrad"])
def test_other_layouts(op, layouts):
    wl = Workload(op, 2, **CASES["asymmetric"], dtype="float32", out_dtype="float32")
    values = operands(wl)
    (expected,) = reference.full(wl, values)
    data, kernel = layouts
    given_ = [
        permuted(v, "OHWI", kernel) if name == "w" else permuted(v, "NHWC", data)
        for name, v in values.items()
    ]
    got = run(module(wl, data, kernel), *given_)
    plain = ("NHWC", data) if op == "dgrad" else ("OHWI", kernel)
    assert l2_error(permuted(got, plain[1], plain[0]), expected) < 1e-6


@pytest.mark.parametrize("op", ["dgrad", "wgrad"])
def test_script_round_trip(op):
    wl = Workload(op, 2, **CASES["dilated and strided"], out_dtype="float32")
    mod = module(wl)
    text = mod.script()
    assert f"R.convoy.conv2d_{op}(" in text
    tvm.ir.assert_structural_equal(tvm.script.from_source(text), mod)


def test_symbolic_batch():
    n = tvm.tirx.Var("n", "int64")
    dy = relax.Var("dy", relax.TensorType((n, 6, 6, 8), "float16"))
    w = relax.Var("w", relax.TensorType((8, 3, 3, 4), "float16"))
    dx = relax.BlockBuilder().normalize(conv2d_dgrad(dy, w, (6, 6), padding=1))
    assert dx.ty.shape.values[0].same_as(n)
    assert [int(d) for d in dx.ty.shape.values[1:]] == [6, 6, 4]


def _tensors(*shapes):
    return [relax.Var(f"t{i}", relax.TensorType(s, "float32")) for i, s in enumerate(shapes)]


def test_mistakes_are_named():
    dy, w = _tensors((1, 6, 6, 8), (8, 3, 3, 4))
    with pytest.raises(InvalidWorkload, match="H of dy"):
        conv2d_dgrad(dy, w, (7, 6), padding=1)
    with pytest.raises(UnsupportedLayout, match="NCHW16c"):
        conv2d_dgrad(dy, w, (6, 6), padding=1, data_layout="NCHW16c")
    with pytest.raises(InvalidWorkload, match="output channels"):
        conv2d_dgrad(dy, _tensors((9, 3, 3, 4))[0], (6, 6), padding=1)
    with pytest.raises(InvalidWorkload, match="4 dimensions"):
        conv2d_wgrad(dy, _tensors((6, 8))[0], (3, 3))
    with pytest.raises(InvalidWorkload, match="batch"):
        conv2d_wgrad(dy, _tensors((2, 6, 6, 8))[0], (3, 3), padding=1)
