"""Calls that are written twice are made once; what only looks alike stays."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.relax import op

from convoy.graph.expr import op_name
from convoy.graph.function import bindings_of, main_function
from convoy.normalize.common_calls import EliminateCommonCalls

WEIGHT = np.random.default_rng(0).standard_normal((8, 8)).astype("float32")
NEARLY = WEIGHT.copy()
NEARLY[-1, -1] += 1


def _module(*build):
    """Return a function that returns what each of ``build`` makes of ``x``."""
    x = relax.Var("x", relax.TensorType((3, 8), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            values = [one(builder, x) for one in build]
            result = builder.emit_output(relax.Tuple(values))
        builder.emit_func_output(result)
    return builder.get()


def _product(weight, activation=op.nn.relu):
    def build(builder, x):
        product = builder.emit(op.matmul(x, relax.const(weight.copy())))
        return builder.emit(activation(product))

    return build


@pytest.mark.parametrize(
    ("build", "calls"),
    [
        ((_product(WEIGHT), _product(WEIGHT)), 2),  # also the second relu
        ((_product(WEIGHT), _product(NEARLY)), 4),
        ((_product(WEIGHT), _product(WEIGHT.T.copy())), 4),
        ((_product(WEIGHT), _product(WEIGHT, op.exp)), 3),
        ((_product(WEIGHT, op.nn.gelu), _product(WEIGHT, op.nn.gelu), _product(WEIGHT)), 3),
    ],
)
def test_as_many_calls_as_differ(build, calls) -> None:
    mod = _module(*build)
    found = EliminateCommonCalls()(mod)
    _, func = main_function(found)
    assert sum(isinstance(b.value, relax.Call) for b in bindings_of(func)) == calls
    assert len(func.ret_ty.fields) == len(build)
    x = tvm.runtime.tensor(np.random.default_rng(1).standard_normal((3, 8)).astype("float32"))
    values = [
        relax.VirtualMachine(tvm.compile(one, "llvm"), tvm.cpu())["main"](x) for one in (mod, found)
    ]
    for want, got in zip(*values, strict=True):
        np.testing.assert_array_equal(got.numpy(), want.numpy())


def test_attributes_count() -> None:
    same = [lambda builder, x, axis=axis: builder.emit(op.sum(x, axis)) for axis in (0, 1, 0)]
    found = EliminateCommonCalls()(_module(*same))
    assert sum(isinstance(b.value, relax.Call) for b in bindings_of(found["main"])) == 2


def test_what_has_effects_is_done_each_time() -> None:
    def printed(builder, x):
        builder.emit(op.print(x, format="{}"))
        return x

    found = EliminateCommonCalls()(_module(printed, printed))
    assert [op_name(b.value) for b in bindings_of(found["main"])] == ["relax.print"] * 2
