"""Powers as a GPU is given them: products and square roots, right for every sign of the base."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from hypothesis import given
from hypothesis import strategies as st
from tvm import relax
from tvm.relax import op

from convoy.lower.executable import lower, lower_modules
from convoy.lower.power import MOST, RewritePower
from convoy.tir.rules import without_source

CUDA = tvm.target.Target({"kind": "cuda", "arch": "sm_90"})
VALUES = np.array([-3.5, -2.0, -1.0, -0.75, -0.0, 0.0, 0.5, 1.0, 2.0, 3.25], "float32")


def module(shape: tuple[int, ...], exponent: object, dtype: str = "float32") -> tvm.IRModule:
    """x to the power of a constant, or of a second input of the shape given as exponent."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType(shape, dtype))
    is_input = isinstance(exponent, tuple)
    y = relax.Var("y", relax.TensorType(exponent, dtype)) if is_input else None
    with builder.function("main", [x] if y is None else [x, y]):
        with builder.dataflow():
            power = y if y is not None else relax.const(np.asarray(exponent, "float32"), dtype)
            result = builder.emit_output(op.power(x, power))
        builder.emit_func_output(result)
    return builder.get()


def rewritten(mod: tvm.IRModule) -> tvm.IRModule:
    with CUDA:
        return RewritePower()(mod)


def by_llvm(mod: tvm.IRModule, *inputs: np.ndarray) -> np.ndarray:
    vm = relax.VirtualMachine(lower(mod, "llvm"), tvm.cpu())
    return vm["main"](*[tvm.runtime.tensor(x) for x in inputs]).numpy()


def operators(mod: tvm.IRModule) -> str:
    return str(mod["main"])


@given(exponent=st.integers(-MOST, MOST))
def test_whole_exponents_are_products(exponent: int) -> None:
    values = VALUES[VALUES != 0] if exponent < 0 else VALUES
    mod = rewritten(module(values.shape, float(exponent)))
    assert "R.power" not in operators(mod)
    want = np.power(values.astype("float64"), exponent)
    np.testing.assert_allclose(by_llvm(mod, values), want, rtol=2e-6)


@pytest.mark.parametrize(("exponent", "name"), [(0.5, "R.sqrt"), (-0.5, "R.rsqrt")])
def test_square_roots(exponent: float, name: str) -> None:
    values = np.abs(VALUES[VALUES != 0])
    mod = rewritten(module(values.shape, exponent))
    assert name in operators(mod) and "R.power" not in operators(mod)
    np.testing.assert_allclose(by_llvm(mod, values), values**exponent, rtol=1e-6)


@pytest.mark.parametrize("exponent", [1.7, -2.5, MOST + 1.0])
def test_other_constants_stay(exponent: float) -> None:
    assert "R.power" in operators(rewritten(module((4,), exponent)))


def test_exponents_that_are_computed() -> None:
    x, y = np.meshgrid(VALUES, np.array([-3, -2, -1, -0.5, 0, 0.5, 1, 1.5, 2, 3, 4], "float32"))
    mod = rewritten(module(x.shape, y.shape))
    assert "R.abs" in operators(mod)
    with np.errstate(all="ignore"):
        want = np.power(x, y)
    got = by_llvm(mod, x.astype("float32"), y.astype("float32"))
    finite = np.isfinite(want)
    np.testing.assert_allclose(got[finite], want[finite], rtol=1e-5)
    assert np.isnan(got[np.isnan(want)]).all() and np.isinf(got[np.isinf(want)]).all()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_narrow_types_are_computed_in_float32(dtype: str) -> None:
    text = operators(rewritten(module((4,), 3.0, dtype)))
    assert text.count("R.astype") >= 2 and "R.power" not in text


def test_shapes_of_constants_count() -> None:
    mod = rewritten(module((4, 1), np.full((1, 1, 1), 2.0)))
    assert tuple(int(d) for d in mod["main"].ret_ty.shape.values) == (1, 4, 1)


def test_whole_numbers_and_other_targets_are_left_alone() -> None:
    wide = module((4,), 2.0, "float64")
    assert "R.power" in operators(rewritten(wide))
    mod = module((4,), 2.0)
    with tvm.target.Target("llvm"):
        assert RewritePower()(mod) is mod


def test_a_module_without_powers_is_handed_back() -> None:
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((4,), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            result = builder.emit_output(op.exp(x))
        builder.emit_func_output(result)
    mod = builder.get()
    assert rewritten(mod) is mod


def kernels(mod: tvm.IRModule) -> str:
    with CUDA:
        lowered = without_source(lower_modules({"main": mod}, CUDA, cuda_graph=False))
    functions = [f for _, f in lowered.functions_items() if isinstance(f, tvm.tirx.PrimFunc)]
    return "".join(f.script() for f in functions)


def test_no_fast_power_of_a_negative_base_is_left_in_a_kernel() -> None:
    assert ".pow(" not in kernels(module((8,), 2.0))
    assert ".pow(" in kernels(module((8,), 1.7))  # so it would be seen
