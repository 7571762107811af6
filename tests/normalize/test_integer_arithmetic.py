"""Quantized convolutions and matmuls as those of int8, against integers in numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm
import tvm_ffi
from hypothesis import given, settings
from hypothesis import strategies as st
from tvm import relax
from tvm.relax import op

from convoy.graph.expr import dtype_of, shape_of
from convoy.graph.function import calls_of
from convoy.normalize.integer_arithmetic import IntegerArithmetic
from convoy.partition.subgraphs import find_subgraphs

from ..graph.nets import count_ops, run_llvm
from .test_normalize import convs


def reference(x: np.ndarray, w: np.ndarray, attrs: dict[str, Any]) -> np.ndarray:
    """The convolution in int64, NHWC and OHWI."""
    (top, left, bottom, right), stride, dilation = (
        attrs["padding"],
        attrs["strides"],
        attrs["dilation"],
    )
    x = np.pad(x.astype(np.int64), ((0, 0), (top, bottom), (left, right), (0, 0)))
    k, r, s, _ = w.shape
    p = (x.shape[1] - dilation * (r - 1) - 1) // stride + 1
    q = (x.shape[2] - dilation * (s - 1) - 1) // stride + 1
    y = np.zeros((x.shape[0], p, q, k), np.int64)
    for i in range(r):
        for j in range(s):
            rows = slice(i * dilation, i * dilation + (p - 1) * stride + 1, stride)
            columns = slice(j * dilation, j * dilation + (q - 1) * stride + 1, stride)
            y += x[:, rows, columns] @ w[:, i, j].T.astype(np.int64)
    return y


def network(
    q: tuple[tuple[int, ...], str], weights: relax.Expr, zero: float, scale: float,
    form: str = "integers", **attrs: Any,
) -> tvm.IRModule:  # fmt: skip
    """A convolution of ``scale * (q - zero)``, or without a scale of the integers.

    The zero point is subtracted from integers or floats, or scaled behind the scale."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType(*q))
    with builder.function("main", [x]):
        with builder.dataflow():
            dtype = "int32" if form == "integers" else "float32"
            value = builder.emit(op.astype(x, dtype))
            if form != "shift":
                value = builder.emit(op.subtract(value, relax.const(zero, dtype)))
            if scale:
                if dtype == "int32":
                    value = builder.emit(op.astype(value, "float32"))
                value = builder.emit(op.multiply(value, relax.const(scale, "float32")))
            if form == "shift":
                value = builder.emit(op.add(value, relax.const(-zero * scale, "float32")))
            layouts = {"data_layout": "NHWC", "kernel_layout": "OHWI"}
            y = builder.emit_output(op.nn.conv2d(value, weights, **layouts, **attrs))
        builder.emit_func_output(y)
    return builder.get()


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_values_are_those_of_integers(data: st.DataObject) -> None:
    """For any zero points, padding, stride, dilation and channels; int32 is equal."""
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    dtype = data.draw(st.sampled_from(["int8", "uint8"]))
    limits = np.iinfo(dtype)
    zero = data.draw(st.sampled_from([0, limits.min, limits.max, 3]))
    shape = (data.draw(st.integers(1, 2)), 9, 7, data.draw(st.integers(1, 9)))
    window = data.draw(st.integers(1, 3)), data.draw(st.integers(1, 3))
    w = rng.integers(-128, 128, (data.draw(st.integers(1, 5)), *window, shape[3]))
    w += data.draw(st.sampled_from([0, 0, 30, -128]))
    scales = np.exp(rng.uniform(-5, 5, (len(w), 1, 1, 1)))
    scale = data.draw(st.sampled_from([0.0, 0.037]))
    attrs = {
        "padding": tuple(data.draw(st.integers(0, 2)) for _ in range(4)),
        "strides": data.draw(st.integers(1, 2)),
        "dilation": data.draw(st.integers(1, 2)),
    }
    weights = (w * scales).astype("float32") if scale else w.astype("int32")
    form = data.draw(st.sampled_from(["integers", "floats", "shift"])) if scale else "integers"
    mod = network((shape, dtype), relax.const(weights), zero, scale, form, **attrs)
    normal = IntegerArithmetic()(mod)
    (conv,) = convs(normal)
    assert {dtype_of(arg) for arg in conv.args} == {"int8"} and dtype_of(conv) == "int32"
    assert shape_of(conv.args[0])[3] % 4 == 0
    x = rng.integers(limits.min, limits.max, shape, dtype, endpoint=True)
    x.flat[:2] = limits.min, limits.max
    got = run_llvm(normal, x)[0]
    want = reference(x.astype(np.int64) - zero, w, attrs)
    if scale:
        np.testing.assert_allclose(got, want * (scale * scales.reshape(-1)), rtol=1e-6)
    else:
        assert np.array_equal(got, want)


def small(**changed: Any) -> tvm.IRModule:
    rng = np.random.default_rng(0)
    fields: dict[str, Any] = {
        "q": ((1, 5, 5, 8), "int8"),
        "weights": relax.const(rng.integers(-9, 9, (4, 3, 3, 8)).astype("int32")),
        "zero": 0, "scale": 0.0,
    }  # fmt: skip
    return network(**{**fields, **changed})


@pytest.mark.parametrize(
    "mod",
    [
        small(weights=relax.const(np.resize([-200, 200], (4, 3, 3, 8)).astype("int32"))),
        small(weights=relax.const(np.full((4, 3, 3, 4), 2, "int32")), groups=2),
        small(q=((1, 5, 5, 8), "int16")),
        small(zero=900, padding=1),
        small(
            zero=0.5,
            scale=0.1,
            form="floats",
            weights=relax.const(np.ones((4, 3, 3, 8), "float32")),
        ),
        small(
            q=((1, 2, 2, 1 << 15), "int8"),
            weights=relax.const(np.ones((4, 2, 2, 1 << 15), "int32")),
        ),
        small(
            q=((1, 2, 2, 24576), "int8"),
            zero=127,
            scale=0.1,
            weights=relax.const(np.full((4, 2, 2, 24576), 127, "float32")),
        ),
        small(
            scale=0.1,
            weights=relax.const(np.random.default_rng(0).random((4, 3, 3, 8)).astype("float32")),
        ),
    ],
    ids=[
        "wide weights", "groups", "wide data", "wide zero", "no integer", "long sums",
        "sums beyond int32", "float weights",
    ],
)  # fmt: skip
def test_others_stay(mod: tvm.IRModule) -> None:
    assert tvm_ffi.structural_equal(IntegerArithmetic()(mod), mod)


def test_padding_of_zeros_stays_the_convolutions_own() -> None:
    normal = IntegerArithmetic()(small(padding=1))
    assert "relax.nn.pad" not in count_ops(normal)
    assert tuple(convs(normal)[0].attrs.padding) == (1, 1, 1, 1)


def test_the_zero_point_is_a_bias_of_the_workload() -> None:
    normal = IntegerArithmetic()(small(zero=5))
    longest = find_subgraphs(normal)[0]
    workload = longest.require_workload()
    assert (workload.dtype, workload.out_dtype, workload.acc_dtype) == ("int8", "int32", "int32")
    assert workload.epilogue.name == "bias" and len(longest.ops) == 2


def product(
    rows: int, weights: np.ndarray, dtype: str, scale: float, swapped: bool = False, zero: int = 3
) -> tvm.IRModule:
    """A matmul of ``scale * (q - zero)`` in two axes of three; without a scale of the integers, of
    which a second zero point is an input."""
    builder, length = relax.BlockBuilder(), weights.shape[0]
    q = relax.Var("q", relax.TensorType((length, rows // 2, 2), dtype))
    point = relax.Var("point", relax.TensorType((), "int32"))
    with builder.function("main", [q, point]):
        with builder.dataflow():
            value = builder.emit(op.astype(q, "int32"))
            value = builder.emit(op.subtract(value, relax.const(zero, "int32")))
            if scale:
                value = builder.emit(op.astype(value, "float32"))
                value = builder.emit(op.multiply(value, relax.const(scale, "float32")))
            else:
                value = builder.emit(op.subtract(value, point))
            value = builder.emit(op.permute_dims(value, [1, 2, 0]))
            value = builder.emit(op.reshape(value, (rows, length)))
            matrix = relax.const(np.ascontiguousarray(weights.T if swapped else weights))
            if swapped:
                matrix = builder.emit(op.permute_dims(matrix, [1, 0]))
            y = builder.emit_output(op.matmul(value, matrix))
        builder.emit_func_output(y)
    return builder.get()


@settings(max_examples=20, deadline=None)
@given(st.data())
def test_matmuls_are_those_of_integers(data: st.DataObject) -> None:
    """Of data that is permuted and reshaped, with a zero point that the network computes."""
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    dtype = data.draw(st.sampled_from(["int8", "uint8"]))
    scale = data.draw(st.sampled_from([0.0, 0.037]))
    length, count = data.draw(st.integers(1, 9)), data.draw(st.integers(1, 5))
    rows, swapped = data.draw(st.sampled_from([18, 64])), data.draw(st.booleans())
    w = rng.integers(-128, 128, (length, count)) + data.draw(st.sampled_from([0, 17]))
    scales = np.exp(rng.uniform(-5, 5, count))
    weights = (w * scales).astype("float32") if scale else w.astype("int32")
    mod = product(rows, weights, dtype, scale, swapped)
    normal = IntegerArithmetic()(mod)
    (call,) = calls_of(normal, frozenset({"relax.matmul"}))
    assert {dtype_of(arg) for arg in call.args} == {"int8"} and dtype_of(call) == "int32"
    assert shape_of(call.args[0])[1] % 4 == 0
    limits = np.iinfo(dtype)
    q = rng.integers(limits.min, limits.max, (length, rows // 2, 2), dtype, endpoint=True)
    point = np.array(data.draw(st.integers(0, 255)), "int32")
    got = run_llvm(normal, q, point)[0]
    x = q.transpose(1, 2, 0).reshape(rows, length).astype(np.int64) - 3
    if scale:
        np.testing.assert_allclose(got, x @ w * (scale * scales), rtol=1e-6)
    else:
        assert np.array_equal(got, (x - point) @ w)


def test_float_weights_of_a_few_rows_stay() -> None:
    weights = np.full((8, 4), 0.5, "float32")
    mod = product(16, weights, "int8", 0.5)
    assert tvm_ffi.structural_equal(IntegerArithmetic()(mod), mod)
    (longest, *_) = find_subgraphs(IntegerArithmetic()(product(18, weights, "int8", 0.5)))
    workload = longest.require_workload()
    assert (workload.op, workload.dtype, workload.out_dtype) == ("matmul", "int8", "int32")


@pytest.mark.parametrize(
    ("zero", "bounds"), [(None, (0, 255)), (128, (0, 255)), (7, (7, 200)), (None, (0.5, 255))]
)
def test_uint8_is_made_of_int8(zero: int | None, bounds: tuple[int, int]) -> None:
    """Where floats become uint8, they become int8 first, which a convolution then reads."""
    rng, builder = np.random.default_rng(0), relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((1, 9, 9, 8), "float32"))
    w = rng.integers(-128, 128, (4, 3, 3, 8))
    with builder.function("main", [x]):
        with builder.dataflow():
            value = builder.emit(op.round(x))
            if zero is not None:
                value = builder.emit(op.add(value, relax.const(float(zero), "float32")))
            q = builder.emit_output(op.astype(builder.emit(op.clip(value, *bounds)), "uint8"))
            wide = builder.emit(op.astype(q, "int32"))
            layouts = {"data_layout": "NHWC", "kernel_layout": "OHWI"}
            y = op.nn.conv2d(wide, relax.const(w.astype("int32")), **layouts)
            y = builder.emit_output(y)
        builder.emit_func_output(relax.Tuple([q, y]))
    mod = builder.get()
    normal = IntegerArithmetic()(mod)
    (conv,) = convs(normal)
    whole = bounds[0] == int(bounds[0])
    values = {b.var: b.value for block in normal["main"].body.blocks for b in block.bindings}
    data = values[conv.args[0]]
    assert data.op.name == "relax.astype"
    assert (values[data.args[0]].op.name == "relax.clip") == whole
    given = np.concatenate([rng.uniform(-300, 300, 600), [1e30, -1e30, 0.5, 1.5, -0.5, -128.5]])
    given = np.resize(given, (1, 9, 9, 8)).astype("float32")
    for got, want in zip(run_llvm(normal, given), run_llvm(mod, given), strict=True):
        assert got.dtype == want.dtype and np.array_equal(got, want)
