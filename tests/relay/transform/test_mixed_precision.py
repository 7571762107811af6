"""ToMixedPrecision: where casts stand, and what keeps its dtype."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from convoy import relay
from convoy.errors import InvalidOption, UnsupportedOp
from convoy.relay import transform
from convoy.relay import tvm018 as tvm
from convoy.relay.registration import register_mixed_precision_conversion
from convoy.relay.testing import lstm
from convoy.relay.visit import post_order


def dtypes(mod: Any, name: str) -> set[str]:
    nodes = [n for f in mod.functions.values() for n in post_order(f)]
    calls = [n for n in nodes if isinstance(n, relay.Call) and isinstance(n.op, tvm.ir.Op)]
    return {n.checked_type.dtype for n in calls if n.op.name == name}


def network() -> relay.Function:
    x, w = relay.var("x", shape=(2, 8)), relay.var("w", shape=(8, 8))
    y = relay.nn.relu(relay.nn.dense(x, w))
    scores = relay.nn.softmax(y)
    taken = relay.take(scores, relay.const([1, 0], "int64"), axis=0)
    total = relay.sum(relay.concatenate([y, taken], axis=1), axis=[1])
    return relay.Function([x, w], relay.Tuple([y, total]))


def test_categories() -> None:
    mod = transform.ToMixedPrecision("float16")(tvm.IRModule.from_expr(network()))
    assert dtypes(mod, "nn.dense") == dtypes(mod, "nn.relu") == {"float16"}
    assert dtypes(mod, "nn.softmax") == dtypes(mod, "sum") == {"float32"}
    first, second = mod["main"].body.checked_type.fields
    assert (first.dtype, second.dtype) == ("float16", "float32")
    with tvm.transform.PassContext(config={"relay.ToMixedPrecision.keep_orig_output_dtype": True}):
        kept = transform.ToMixedPrecision("float16")(tvm.IRModule.from_expr(network()))
    assert {f.dtype for f in kept["main"].body.checked_type.fields} == {"float32"}


def test_result_is_close() -> None:
    rng = np.random.default_rng(0)
    args = [rng.uniform(-1, 1, s).astype("float32") for s in ((2, 8), (8, 8))]
    mod = tvm.IRModule.from_expr(network())
    want = relay.create_executor("vm", mod, target="llvm").evaluate()(*args)
    half = transform.ToMixedPrecision("float16")(mod)
    got = relay.create_executor("vm", half, target="llvm").evaluate()(*args)
    for a, b in zip(got, want, strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), atol=5e-3)


def test_functions_and_branches_keep_their_types() -> None:
    mod, _ = lstm.get_workload(2, 4)
    half = transform.ToMixedPrecision("float16")(mod)
    assert dtypes(half, "nn.dense") == {"float16"}
    x, c = relay.var("x", shape=(2, 2)), relay.var("c", shape=(), dtype="bool")
    body = relay.If(c, relay.nn.dense(x, x), relay.exp(x))
    half = transform.ToMixedPrecision("float16")(tvm.IRModule.from_expr(body))
    assert half["main"].body.checked_type.dtype == "float32"


def test_changed_category_and_errors() -> None:
    x = relay.var("x", shape=(2, 2))
    mod = tvm.IRModule.from_expr(relay.nn.dense(x, x))

    def never(call: Any, dtype: str) -> list[Any]:
        return [2, dtype, dtype]

    register_mixed_precision_conversion("nn.dense", never)
    try:
        kept = transform.ToMixedPrecision("float16")(mod)
    finally:
        relay.op.get("nn.dense").reset_attr("FTVMMixedPrecisionConversionType")
    assert relay.structural_equal(kept, mod)
    with pytest.raises(InvalidOption):
        transform.ToMixedPrecision("int8")
    odd = tvm.IRModule.from_expr(
        relay.image.dilation2d(relay.var("d", shape=(1, 1, 4, 4)), relay.var("k", shape=(1, 2, 2)))
    )
    assert transform.ToMixedPrecision("float16")(odd)
    gamma = tvm.IRModule.from_expr(
        relay.nn.space_to_batch_nd(relay.var("d", shape=(1, 4, 4)), [2, 2], [[0, 0], [0, 0]])
    )
    with pytest.raises(UnsupportedOp, match="space_to_batch_nd"):
        transform.ToMixedPrecision("float16", missing_op_mode=0)(gamma)
    with pytest.warns(UserWarning, match="space_to_batch_nd"):
        transform.ToMixedPrecision("float16")(gamma)
