"""Random modules: printed and saved, they read back equal."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, note, settings
from hypothesis import strategies as st

from convoy import relay
from convoy.relay import tvm018
from convoy.relay.ast import Expr

SHAPE = (2, 3)


# Of PyTorch, ONNX and TensorFlow, of nobody, and words of the format.
NAMES = (
    st.sampled_from(["p0", "x", "input.1", "x.0", "x.1", "layer1.0.conv.weight", "onnx::Conv_497"])
    | st.sampled_from(["/model/Add_1", "a/b", "let", "fn", "meta", "True", "float32"])
    | st.sampled_from(["a b", "a-b", "é", "", "1z", "_y", "a.", "a:b", "%q"])
    | st.text(max_size=5)
)
ATTRS = st.sampled_from([{}, {"Primitive": 1}, {"Composite": "a.b"}, {"k": '"quoted" \\ \n'}])


@st.composite
def modules(draw: st.DrawFn) -> relay.IRModule:
    """Functions of shared values, tuples, lets, ifs, inner functions and constants."""
    names = draw(st.lists(NAMES, min_size=1, max_size=3))
    params = [relay.var(name, shape=SHAPE) for name in names]
    flag = relay.var("flag", "bool")
    pool: list[Expr] = list(params)

    def value() -> Expr:
        return pool[draw(st.integers(0, len(pool) - 1))]

    def constant() -> Expr:
        kind = draw(st.sampled_from(["scalar", "tensor", "nan"]))
        if kind == "tensor":
            return relay.const(np.arange(6, dtype="float32").reshape(SHAPE))
        if kind == "nan":
            return relay.const(float("nan"))
        return relay.const(
            draw(st.sampled_from([0.0, -1.5, 2.0**20, 1 / 3, 1e-5, -1e-40, float("inf")]))
        )

    def step(depth: int) -> Expr:
        kind = draw(st.integers(0, 9 if depth < 2 else 5))
        if kind == 0:
            return relay.nn.relu(value())
        if kind == 1:
            return relay.add(value(), value())
        if kind == 2:
            return relay.multiply(value(), constant())
        if kind == 3:
            return relay.clip(value(), draw(st.sampled_from([-1, 0.25])), 3)
        if kind == 4:
            return relay.Tuple([value(), value()]).fields[0] + relay.TupleGetItem(
                relay.Tuple([value(), value()]), draw(st.integers(0, 1))
            )
        if kind == 5:
            parts = relay.split(relay.reshape(value(), (6,)), draw(st.sampled_from([2, (1, 3)])))
            return relay.reshape(relay.concatenate(parts, axis=0), SHAPE)
        if kind == 6:
            return relay.If(flag, step(depth + 1), step(depth + 1))
        if kind == 7:
            inner = relay.var(draw(NAMES), shape=SHAPE)
            attrs = draw(
                st.sampled_from(
                    [{}, {"Primitive": 1}, {"Composite": "a.b"}, {"k": '"quoted" \\ \n'}]
                )
            )
            body = relay.add(inner, step(depth + 1))
            return relay.Function([inner], body, attrs=attrs)(value())
        name = relay.var(draw(NAMES))
        let_value = step(depth + 1)
        return relay.Let(name, let_value, relay.add(name, value()))

    for _ in range(draw(st.integers(1, 8))):
        pool.append(step(0))
    result: Any = pool[-1] if draw(st.booleans()) else relay.Tuple(pool[-3:])
    return relay.transform.InferType()(
        relay.IRModule.from_expr(relay.Function([*params, flag], result))
    )


@settings(max_examples=150)
@given(modules())
def test_text(mod: relay.IRModule) -> None:
    text = mod.astext()
    note(text)
    again = relay.parse(text)
    assert relay.structural_equal(mod, again)
    assert again.astext() == text


@settings(max_examples=100)
@given(modules())
def test_json(mod: relay.IRModule) -> None:
    again = relay.load_json(relay.save_json(mod))
    assert relay.structural_equal(mod, again)
    assert again.astext() == mod.astext()


@settings(max_examples=50)
@given(modules())
def test_converts(mod: relay.IRModule) -> None:
    """Whatever infers a type converts, and Relax finds the same type."""
    converted = relay.to_relax(mod)
    want = mod["main"].checked_type.ret_type
    fields = want.fields if isinstance(want, relay.TupleType) else [want]
    got = converted["main"].ret_ty
    got = list(got.fields) if hasattr(got, "fields") else [got]
    assert [tuple(int(d) for d in g.shape.values) for g in got] == [f.shape for f in fields]


def test_named_sizes_are_entries_of_the_metadata() -> None:
    """Sizes that are variables of TVM or were loaded; an expression of some is unknown in text."""
    n = tvm018.te.size_var("n")
    x, w = relay.var("x", shape=(n, 3, 8, 8)), relay.var("w", shape=(2, 3, 3, 3))
    convolved = relay.Function([x, w], relay.nn.conv2d(x, w))
    read = relay.parse(relay.transform.InferType()(relay.IRModule.from_expr(convolved)).astext())
    assert str(read["main"].params[0].type_annotation) == "Tensor[(n, 3, 8, 8), float32]"
    assert str(read["main"].ret_type) == "Tensor[(n, 2, 6, 6), float32]"
    again = relay.parse(read.astext())
    assert relay.structural_equal(read, again)
    assert relay.structural_equal(relay.load_json(relay.save_json(read)), again)
    flat = relay.IRModule.from_expr(relay.reshape(relay.var("x", shape=(n, 4)), (-1,)))
    text = relay.transform.InferType()(flat).astext()
    assert "meta[tir.SizeVar][0], 4" in text and "-> Tensor[(?), float32]" in text
    assert str(relay.parse(text)["main"].params[0].type_annotation) == "Tensor[(n, 4), float32]"
