"""Operators that take shapes as arguments, against numpy."""

from __future__ import annotations

import numpy as np
import pytest
import tvm

from convoy import relay
from convoy.errors import RelayTypeError, UnsupportedOp

from ..running import HEAD, run_stock

RNG = np.random.default_rng(3)

DYNAMIC = {
    "dyn.reshape(%x, meta[relay.Constant][0], newshape=None)": ([3, -1], lambda x: x.reshape(3, 4)),
    "dyn.tile(%x, meta[relay.Constant][0], reps=None)": ([2, 1], lambda x: np.tile(x, (2, 1))),
    "dyn.broadcast_to(%x, meta[relay.Constant][0], shape=None)": (
        [3, 2, 6], lambda x: np.broadcast_to(x, (3, 2, 6)),
    ),
    "dyn.squeeze(expand_dims(%x, axis=1), meta[relay.Constant][0])": ([1], lambda x: x),
    "dyn.expand_dims(%x, meta[relay.Constant][0])": (1, lambda x: x[:, None]),
    "dyn.zeros(meta[relay.Constant][0], shape=None, dtype=\"float32\")": (
        [2, 3], lambda x: np.zeros((2, 3)),
    ),
    "dyn.full(1.5f, meta[relay.Constant][0], shape=None)": ([4], lambda x: np.full(4, 1.5)),
    "dyn.nn.pad(%x, meta[relay.Constant][0], 0f, pad_width=None)": (
        [[0, 1], [2, 0]], lambda x: np.pad(x, [(0, 1), (2, 0)]),
    ),
    "dyn.one_hot(cast(%x, dtype=\"int32\"), 1f, 0f, meta[relay.Constant][0],"
    " depth=0, axis=-1, dtype=\"float32\")": (4, lambda x: np.eye(4)[x.astype("int32")]),
    "dyn.topk(%x, meta[relay.Constant][0], k=None, ret_type=\"values\", dtype=\"int32\")": (
        2, lambda x: -np.sort(-x, axis=1)[:, :2],
    ),
    "dyn.strided_slice(%x, meta[relay.Constant][0], meta[relay.Constant][0],"
    " meta[relay.Constant][0], begin=None, end=None, strides=None, axes=None)": (
        [1, 1], lambda x: x[1:1, 1:1],
    ),
}  # fmt: skip


@pytest.mark.parametrize("body", DYNAMIC)
def test_shapes_as_constants(body: str) -> None:
    shape, function = DYNAMIC[body]
    x = RNG.uniform(0, 4, (2, 6)).astype("float32")
    text = f"{HEAD}def @main(%x: Tensor[(2, 6), float32]) {{ {body} }}"
    table = {"relay.Constant": [relay.const(np.asarray(shape, "int32"))]}
    mod = relay.parse(text, "text", None, table)
    assert relay.structural_equal(mod, relay.parse(mod.astext()))
    (got,) = run_stock(mod, x)
    np.testing.assert_allclose(got, function(x), 1e-6)


@pytest.mark.parametrize(
    "body",
    [
        "dyn.expand_dims(%x, meta[relay.Constant][0])",
        "dyn.topk(%x, meta[relay.Constant][0], k=None)",
        "dyn.nn.pad(%x, meta[relay.Constant][0], 0f, pad_width=None)",
    ],
)
def test_too_many_values(body: str) -> None:
    text = f"{HEAD}def @main(%x: Tensor[(2, 6), float32]) {{ {body} }}"
    table = {"relay.Constant": [relay.const(np.array([1, 1, 1], "int32"))]}
    with pytest.raises(RelayTypeError, match=r"text:2:"):
        relay.parse(text, "text", None, table)


def test_shapes_that_are_computed() -> None:
    text = f"""{HEAD}def @main(%x: Tensor[(2, 6), float32], %s: Tensor[(2), int32]) {{
      dyn.reshape(%x, %s, newshape=None)
    }}"""
    module = relay.parse(text)
    with pytest.raises(UnsupportedOp, match="a shape that is computed"):
        relay.build(module, "llvm")
    machine = relay.vm.VirtualMachine(relay.vm.compile(module, "llvm"), tvm.cpu())
    x = np.arange(12, dtype="float32").reshape(2, 6)
    for sizes in ((3, 4), (12, 1)):
        y = machine.invoke("main", x, np.array(sizes, "int32"))
        np.testing.assert_array_equal(y.numpy(), x.reshape(sizes))


def test_a_slice_keeps_the_axes_that_it_does_not_cut() -> None:
    x, bounds = relay.var("x", shape=(4, 5, 6)), relay.var("b", shape=(2,), dtype="int64")
    sliced = relay.strided_slice(x, bounds, relay.const([3, 4]))
    inferred = relay.transform.InferType()(relay.IRModule.from_expr(sliced))
    found = inferred["main"].body.checked_type
    assert [isinstance(size, relay.Any) for size in found.shape] == [True, True, False]
    assert found.shape[2] == 6
    (x_value, y) = np.random.default_rng(0).random((4, 5, 6), "float32"), np.array([1, 2])
    got = relay.create_executor("vm").evaluate(relay.Function([x, bounds], sliced))(x_value, y)
    np.testing.assert_array_equal(got.numpy(), x_value[1:3, 2:4])
