"""gelu of 16 bits: what it is rounded to, and where it stands for TVM's operator."""

from __future__ import annotations

import re

import numpy as np
import pytest
import tvm
from scipy.special import ndtr
from tvm import relax
from tvm.relax import op

from convoy import paths
from convoy.graph.expr import op_name
from convoy.graph.function import bindings_of
from convoy.lower.accumulate import AccumulateInFloat32
from convoy.ops import activation

CUDA = tvm.target.Target("nvidia/nvidia-h100", host="llvm")


def module(make, dtype: str, size: int = 8) -> tvm.IRModule:
    builder, x = relax.BlockBuilder(), relax.Var("x", relax.TensorType((size,), dtype))
    with builder.function("main", [x]):
        with builder.dataflow():
            y = builder.emit_output(make(x))
        builder.emit_func_output(y)
    return builder.get()


def values(x: np.ndarray) -> np.ndarray:
    built = relax.build(module(activation.gelu16, "float32", len(x)), "llvm")
    return relax.VirtualMachine(built, tvm.cpu())["main"](tvm.runtime.tensor(x)).numpy()


def test_rounds_to_16_bits_as_the_exact_value_does() -> None:
    x = np.linspace(-9, 9, 100001, dtype="float32")
    exact = x.astype("float64") * ndtr(x.astype("float64"))
    found = values(x).astype("float16")
    spacing = np.spacing(np.abs(exact).astype("float16")).astype("float64")
    assert (np.abs(found - exact) / spacing).max() < 0.56
    assert (found != exact.astype("float16")).mean() < 0.01


def test_large_and_special_values() -> None:
    x = np.array([np.nan, np.inf, 65504.0, -65504.0, 0.0], "float32")
    found = values(x).astype("float16")
    assert np.isnan(found[0])
    np.testing.assert_array_equal(found[1:], np.array([np.inf, 65504.0, 0.0, 0.0], "float16"))


@pytest.mark.parametrize(
    ("dtype", "target", "own"),
    [("float16", CUDA, True), ("bfloat16", CUDA, True), ("float32", CUDA, False),
     ("float16", tvm.target.Target("llvm"), False)],
)  # fmt: skip
def test_stands_for_gelu_where_the_result_is_rounded(dtype, target, own) -> None:
    with target:
        mod = AccumulateInFloat32()(module(op.nn.gelu, dtype))
    names = {op_name(binding.value) for binding in bindings_of(mod["main"])}
    assert ("relax.convoy.gelu16" in names) == own == ("relax.nn.gelu" not in names)


def test_kernels_of_libraries_have_the_same_polynomial() -> None:
    text = (paths.codegen_dir() / "cutlass" / "gelu16.cuh").read_text()
    (body,) = re.findall(r"activate<kGelu16>.*?^}", text, re.DOTALL | re.MULTILINE)
    numbers = re.findall(r"exponent = (?:exponent \* t )?([-+]? ?[\d.e-]+)f;", body)
    assert [float(n.replace(" ", "")) for n in numbers] == list(activation._LOG_PHI)
