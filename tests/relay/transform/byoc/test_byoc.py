"""Composite functions, annotated regions and functions of external compilers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from convoy import relay
from convoy.errors import RelayTypeError
from convoy.relay import transform
from convoy.relay import tvm018 as tvm
from convoy.relay.dataflow_pattern import is_op, wildcard
from convoy.relay.op.annotation import compiler_end
from convoy.relay.testing import TempOpAttr


@pytest.fixture(autouse=True)
def compiler() -> Any:
    """A compiler that takes additions, products and relu."""
    names = ("add", "multiply", "nn.relu")
    attrs = [TempOpAttr(n, "target.toy", lambda call: True) for n in names]
    for attr in attrs:
        attr.__enter__()
    yield
    for attr in attrs:
        attr.__exit__(None, None, None)


def partitioned(mod: Any, **options: Any) -> Any:
    for step in (
        transform.AnnotateTarget("toy"), transform.MergeCompilerRegions(),
        transform.PartitionGraph(**options),
    ):  # fmt: skip
        mod = step(mod)
    return mod


def parts(mod: Any) -> list[Any]:
    return [f for n, f in sorted((v.name_hint, f) for v, f in mod.items()) if n != "main"]


def diamond() -> Any:
    """The middle of one branch is of no compiler, so that its ends must not be one function."""
    x = relay.var("x", shape=(2, 3))
    top = relay.nn.relu(x + relay.const(np.ones((2, 3)), "float32"))
    left = relay.exp(top)
    right = top * top
    return tvm.IRModule.from_expr(relay.Function([x], relay.nn.relu(left + right)))


def run(mod: Any) -> np.ndarray:
    x = np.random.default_rng(0).standard_normal((2, 3)).astype("float32")
    out: np.ndarray = relay.create_executor("vm", mod, target="llvm").evaluate()(x).numpy()
    return out


def test_partitions_compute_the_same() -> None:
    mod = diamond()
    found = partitioned(mod)
    functions = parts(found)
    assert len(functions) == 2
    for function in functions:
        assert function.attrs["Compiler"] == "toy" and function.attrs["Primitive"] == 1
        assert function.attrs["global_symbol"].startswith("tvmgen_default_toy_main_")
    np.testing.assert_allclose(run(found), run(mod), rtol=1e-6)


def test_constants_are_inside_or_passed() -> None:
    inside, passed = (
        partitioned(diamond()),
        partitioned(diamond(), bind_constants=False, mod_name="m"),
    )
    assert sorted(len(f.params) for f in parts(inside)) == [1, 2]
    assert sorted(len(f.params) for f in parts(passed)) == [2, 2]
    assert all("tvmgen_m_toy" in f.attrs["global_symbol"] for f in parts(passed))


def test_several_results() -> None:
    x = relay.var("x", shape=(2, 3))
    top = relay.nn.relu(x)
    mod = tvm.IRModule.from_expr(relay.Function([x], relay.exp(top) - relay.exp(top + x)))
    found = partitioned(mod)
    (function,) = parts(found)
    assert isinstance(function.body, relay.Tuple)
    np.testing.assert_allclose(run(found), run(mod), rtol=1e-6)


def test_composites_belong_to_their_compiler() -> None:
    pattern = is_op("exp")(is_op("subtract")(wildcard(), wildcard()))
    x = relay.var("x", shape=(2, 3))
    mod = tvm.IRModule.from_expr(relay.Function([x], relay.exp(x - relay.nn.relu(x)) + x))
    table = [("toy.exp", pattern, lambda call: call.args[0].checked_type.shape[0] == 2)]
    found = partitioned(transform.MergeComposite(table)(mod))
    assert len(parts(found)) == 1
    np.testing.assert_allclose(run(found), run(mod), rtol=1e-6)
    never = [("toy.exp", pattern, lambda call: False)]
    assert relay.structural_equal(transform.MergeComposite(never)(mod), transform.InferType()(mod))


def test_annotating_again_changes_nothing() -> None:
    once = transform.AnnotateTarget("toy")(diamond())
    assert relay.structural_equal(transform.AnnotateTarget("toy")(once), once)


def test_end_without_begin() -> None:
    x = relay.var("x", shape=(2,))
    mod = tvm.IRModule.from_expr(compiler_end(relay.exp(x), "toy"))
    with pytest.raises(RelayTypeError, match="compiler_begin"):
        transform.PartitionGraph()(mod)
