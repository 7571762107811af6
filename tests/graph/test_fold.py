"""Constant folding in numpy gives what TVM computes: values, shapes and dtypes."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import relax
from tvm.relax import op

from convoy.graph.expr import as_numpy, make_const
from convoy.graph.fold import fold_call
from convoy.ir.dtypes import numpy_dtype

from ..helpers.stock import machine


def constant(*shape, dtype="float32", low=0.5):
    values = np.random.default_rng(len(shape)).uniform(low, 2.0, shape)
    return relax.const(values.astype(dtype))


CASES = {
    "add": lambda: op.add(constant(3, 4), constant(4)),
    "add_scalars": lambda: op.add(constant(), constant()),
    "subtract_16": lambda: op.subtract(constant(3, dtype="float16"), constant(3, dtype="float16")),
    "divide": lambda: op.divide(constant(2, 3), constant(3)),
    "maximum": lambda: op.maximum(constant(2, 3), constant()),
    "sqrt": lambda: op.sqrt(constant(5)),
    "rsqrt_16": lambda: op.rsqrt(constant(5, dtype="float16")),
    "relu": lambda: op.nn.relu(constant(4, low=-2.0)),
    "permute": lambda: op.permute_dims(constant(2, 3, 4), [2, 0, 1]),
    "reverse": lambda: op.permute_dims(constant(2, 3, 4)),
    "reshape": lambda: op.reshape(constant(2, 6), (3, 4)),
    "reshape_scalar": lambda: op.reshape(constant(1), ()),
    "broadcast": lambda: op.broadcast_to(constant(1, 3), (2, 3)),
    "astype": lambda: op.astype(constant(4), "float16"),
    "flip": lambda: op.flip(constant(2, 3), 1),
    "ones": lambda: op.ones((2, 3), "float16"),
    "zeros": lambda: op.zeros((), "int32"),
    "zeros_like": lambda: op.zeros_like(constant(3)),
    "power": lambda: op.power(constant(2, 3), constant()),
    "power_16": lambda: op.power(constant(3, dtype="float16"), constant(dtype="float16")),
    "abs": lambda: op.abs(constant(4, low=-2.0)),
    "square": lambda: op.square(constant(4)),
    "sum": lambda: op.sum(constant(2, 3, 4), [1, 2], True),
    "sum_of_all": lambda: op.sum(constant(2, 3)),
    "mean_16": lambda: op.mean(constant(2, 3, dtype="float16"), [-1]),
    "variance": lambda: op.variance(constant(2, 3, 4), [0, 2]),
    "std": lambda: op.std(constant(2, 9), 1, True),
    "max": lambda: op.max(constant(2, 9), 1),
    "instance_norm": lambda: op.nn.instance_norm(
        constant(2, 5, 7), constant(5), constant(5), 1, [2], 1e-3
    ),
    "standardized_weights": lambda: op.nn.instance_norm(
        constant(1, 5, 7), constant(5), constant(5), 1, [0, 2], 1e-5
    ),
    "isnan": lambda: op.isnan(constant()),
    "where": lambda: op.where(relax.const(np.array([True, False, True])), constant(3), constant()),
}


@pytest.mark.parametrize("name", CASES)
def test_folded_value(name):
    bb = relax.BlockBuilder()
    with bb.function("main", []):
        with bb.dataflow():
            result = bb.emit_output(bb.normalize(CASES[name]()))
        bb.emit_func_output(result)
    vm = machine(bb.get())
    want = vm["main"]().numpy()
    folded = fold_call(relax.BlockBuilder().normalize(CASES[name]()))
    got = as_numpy(folded)
    assert got.shape == want.shape and got.dtype == want.dtype
    np.testing.assert_allclose(got.astype("float64"), want.astype("float64"), rtol=2e-3)


def test_variables_and_unknown_operators_are_left():
    x = relax.Var("x", relax.TensorType((3,), "float32"))
    bb = relax.BlockBuilder()
    assert fold_call(bb.normalize(op.add(constant(3), x))) is None
    assert fold_call(bb.normalize(op.cumsum(constant(3), 0))) is None


def test_few_numbers_alike_are_made_and_many_left():
    """A kernel writes them itself where it would have to read as many."""
    bb = relax.BlockBuilder()
    few, many = (relax.Var("x", relax.TensorType((n, 1), "float32")) for n in (3, 2000))
    np.testing.assert_array_equal(as_numpy(fold_call(bb.normalize(op.ones_like(few)))), [[1]] * 3)
    assert fold_call(bb.normalize(op.ones_like(many))) is None


def test_statistics_of_nothing_are_left() -> None:
    empty = relax.const(np.zeros((2, 0), "float32"))
    for function in (op.max, op.mean):
        assert fold_call(relax.BlockBuilder().normalize(function(empty, 1))) is None


def test_integer_division_is_left():
    a = relax.const(np.array([7], "int32"))
    assert fold_call(relax.BlockBuilder().normalize(op.divide(a, a))) is None


@pytest.mark.parametrize(
    "dtype", ["float32", "float16", "bfloat16", "float64", "int64", "int8", "uint8", "bool"]
)
@pytest.mark.parametrize("shape", [(), (3,), (0, 4), (5, 7)])
def test_constants_hold_what_they_were_made_of(dtype: str, shape: tuple[int, ...]) -> None:
    values = np.random.default_rng(3).integers(0, 2, shape).astype(numpy_dtype(dtype))
    for array in (values, values.T):
        made = make_const(array)
        assert (made.ty.dtype, as_numpy(made).dtype) == (dtype, values.dtype)
        np.testing.assert_array_equal(as_numpy(made), array)


@pytest.mark.parametrize("shape", [(2050, 1300), (3, 1030, 901), (1, 1 << 21), (1 << 21, 1)])
def test_large_constants_in_other_orders_and_dtypes(shape: tuple[int, ...]) -> None:
    values = np.random.default_rng(5).integers(-1000, 1000, shape).astype("int32")
    for array in (values, values.T, values[::-1, ::2], np.broadcast_to(values[:1], shape)):
        for dtype in ("float32", "float16", "int64"):
            made = make_const(array, dtype)
            np.testing.assert_array_equal(as_numpy(made), array.astype(dtype))


def test_a_constant_is_cast_as_it_is_made_and_keeps_its_values() -> None:
    values = np.random.default_rng(4).normal(size=(6, 4)).astype("float32")
    for dtype in ("float16", "bfloat16", "float64"):
        want = values.T.astype(numpy_dtype(dtype))
        np.testing.assert_array_equal(as_numpy(make_const(values.T, dtype)), want)
    view = as_numpy(make_const(values))
    with pytest.raises(ValueError, match="read-only"):
        view[0, 0] = 1.0
    np.testing.assert_array_equal(view, values)
