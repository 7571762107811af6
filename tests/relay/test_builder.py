"""Building expressions with TVM 0.18's conventions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm

from convoy import relay
from convoy.errors import RelayTypeError, UnsupportedOp

X = relay.var("x", shape=(1, 4, 8, 8))
W = relay.var("w", shape=(6, 4, 3, 3))


def typed(body: Any, *params: relay.Var) -> relay.Type:
    body = body.astuple() if isinstance(body, relay.TupleWrapper) else body
    mod = relay.IRModule.from_expr(relay.Function(params, body))
    return relay.transform.InferType()(mod)["main"].checked_type.ret_type


class TestLeaves:
    def test_var(self) -> None:
        assert relay.var("a", "int32").type_annotation == relay.TensorType((), "int32")
        assert relay.var(shape=(), name_hint="a").name_hint == "a"
        assert relay.var("a", shape=(2,)).type_annotation == relay.TensorType((2,), "float32")
        assert relay.var("a", relay.scalar_type("bool")).type_annotation.dtype == "bool"
        with pytest.raises(ValueError, match="either"):
            relay.var("a", "int32", shape=(1,))

    @pytest.mark.parametrize(
        ("value", "dtype"),
        [
            (1, "int32"),
            (1.5, "float32"),
            (True, "bool"),
            ([1, 2], "int32"),
            (np.float64(1), "float32"),
            (np.array([1.5]), "float32"),
            (np.array([1, 2]), "int32"),
            (np.array([2**40]), "int64"),
            (tvm.runtime.tensor(np.zeros(2, "float64")), "float64"),
            (np.zeros(2, "int8"), "int8"),
            (tvm.runtime.tensor(np.zeros(2, "float16")), "float16"),
        ],
    )
    def test_const(self, value: Any, dtype: str) -> None:
        assert relay.const(value).value.dtype == dtype
        assert relay.const(value, "float32").value.dtype == "float32"

    def test_const_data(self) -> None:
        assert relay.const(3).data.numpy() == 3


class TestOperators:
    def test_symbols(self) -> None:
        names = [e.op.name for e in (X + X, X - X, X * X, X / X, X < X, X >= X, -X)]
        assert names == [
            "add",
            "subtract",
            "multiply",
            "divide",
            "less",
            "greater_equal",
            "negative",
        ]
        assert X.astype("int8").attrs.dtype == "int8"

    def test_numbers_are_refused(self) -> None:
        for use in (lambda: X + 1, lambda: 1 + X, lambda: relay.add(X, 1)):
            with pytest.raises(TypeError, match="with `const` first"):
                use()

    def test_sizes_are_spread(self) -> None:
        attrs = relay.nn.conv2d(X, W, strides=2, padding=1, kernel_size=3).attrs
        assert (attrs.strides, attrs.padding, attrs.kernel_size) == ((2, 2), (1, 1, 1, 1), (3, 3))
        assert relay.nn.conv2d(X, W, padding=(1, 2)).attrs.padding == (1, 2, 1, 2)
        assert relay.nn.max_pool2d(X, 3, 2).attrs.pool_size == (3, 3)
        with pytest.raises(ValueError, match="padding"):
            relay.nn.conv2d(X, W, padding=(1, 2, 3))

    def test_defaults_of_the_helpers(self) -> None:
        """They are not those of the attribute classes, which text gets."""
        assert relay.nn.leaky_relu(X).attrs.alpha == 0.01
        assert relay.nn.batch_matmul(X, X).attrs.transpose_b is True
        assert relay.nn.lrn(X).attrs.alpha == 1e-5
        mod = relay.parse(
            '#[version = "0.0.5"]\ndef @main(%x: Tensor[(1, 4, 8, 8), float32]) '
            "{ nn.leaky_relu(nn.lrn(%x)) }"
        )
        assert mod["main"].body.attrs.alpha == 0.25
        assert mod["main"].body.args[0].attrs.alpha == 1e-4

    def test_results_of_several(self) -> None:
        norm = relay.nn.batch_norm(X, *(relay.var(n) for n in "abcd"))
        assert len(norm) == 3
        assert norm[0].index == 0
        assert norm[-1].index == 2
        first, *_ = relay.split(X, 2, axis=1)
        assert isinstance(first, relay.TupleGetItem)
        with pytest.raises(IndexError):
            norm[3]

    def test_backward_weight_shifts_its_layouts(self) -> None:
        call = relay.nn.conv2d_backward_weight(
            X, X, kernel_size=3, grad_layout="NHWC", data_layout="NCHW", kernel_layout="OHWI"
        )
        found = (call.attrs.data_layout, call.attrs.kernel_layout, call.attrs.out_layout)
        assert found == ("NHWC", "NCHW", "OHWI")

    def test_attributes(self) -> None:
        attrs = relay.nn.conv2d(X, W).attrs
        assert attrs["groups"] == attrs.groups == attrs.get_int("groups") == 1
        assert attrs.out_dtype == ""
        with pytest.raises(AttributeError, match="Conv2DAttrs has no field 'stride'"):
            _ = attrs.stride
        with pytest.raises(AttributeError):
            attrs.groups = 2

    def test_unknown_operator(self) -> None:
        with pytest.raises(UnsupportedOp, match=r"nn\.conv2d"):
            relay.op.get("nn.conv2")


class TestScopeBuilder:
    def test_lets_and_ifs(self) -> None:
        flag, x = relay.var("flag", "bool"), relay.var("x", "float32")
        sb = relay.ScopeBuilder()
        doubled = sb.let("d", x + x)
        with sb.if_scope(flag):
            inner = sb.let("i", relay.exp(doubled))
            sb.ret(inner)
        with sb.else_scope():
            sb.ret(doubled)
        body = sb.get()
        assert isinstance(body, relay.Let)
        assert isinstance(body.body, relay.If)
        assert typed(body, flag, x) == relay.TensorType((), "float32")

    def test_misuse(self) -> None:
        sb = relay.ScopeBuilder()
        with pytest.raises(RuntimeError):
            sb.get()
        with pytest.raises(RuntimeError), sb.else_scope():
            pass
        sb.ret(X)
        with pytest.raises(RuntimeError):
            sb.ret(X)


class TestFunctionsAndModules:
    def test_attributes_of_a_function(self) -> None:
        function = relay.Function([X], X).with_attr("Composite", "a").with_attr({"b": 1})
        assert function.attrs == {"Composite": "a", "b": 1}

    def test_module(self) -> None:
        mod = relay.IRModule.from_expr(relay.nn.relu(X))
        assert [p.name_hint for p in mod["main"].params] == ["x"]
        f = relay.GlobalVar("f")
        mod[f] = relay.Function([X], X)
        mod["g"] = relay.Function([W], W)
        assert mod.get_global_var("f") is f
        assert {v.name_hint for v in mod.get_global_vars()} == {"main", "f", "g"}
        mod.update_func(f, relay.Function([W], W))
        assert mod[f].params == (W,)
        with pytest.raises(RelayTypeError, match="'main'"):
            mod["mian"]

    def test_calls(self) -> None:
        function = relay.Function([X], relay.nn.relu(X))
        y = relay.var("y", shape=(1, 4, 8, 8))
        assert typed(function(y), y).shape == (1, 4, 8, 8)

    def test_bind(self) -> None:
        function = relay.Function([X, W], relay.nn.conv2d(X, W))
        bound = relay.bind(function, {W: relay.const(np.ones((6, 4, 3, 3), "float32"))})
        assert list(bound.params) == [X]
        assert relay.analysis.free_vars(bound.body) == [X]
        assert relay.analysis.free_vars(function) == []


class TestVisitors:
    def test_visitor(self) -> None:
        class Count(relay.ExprVisitor):
            calls = 0

            def visit_call(self, call: relay.Call) -> None:
                self.calls += 1
                super().visit_call(call)

        shared = relay.exp(X)
        count = Count()
        count.visit(relay.Function([X], shared + shared))
        assert count.calls == 2

    def test_mutator(self) -> None:
        class Swap(relay.ExprMutator):
            def visit_op(self, op: Any) -> Any:
                return relay.op.get("abs") if op.name == "exp" else op

        function = relay.Function([X], relay.exp(X) + relay.exp(X))
        swapped = Swap().visit(function)
        assert swapped.body.args[0].op.name == "abs"
        assert swapped.params == function.params

    def test_post_order(self) -> None:
        seen: list[Any] = []
        relay.analysis.post_order_visit(relay.exp(X), seen.append)
        assert isinstance(seen[-1], relay.Call)
        assert X in seen


class TestStructuralEquality:
    def test_names_do_not_count(self) -> None:
        y = relay.var("other", shape=(1, 4, 8, 8))
        assert relay.structural_equal(
            relay.Function([X], relay.exp(X)), relay.Function([y], relay.exp(y))
        )

    def test_sharing_counts(self) -> None:
        shared = relay.exp(X)
        assert not relay.structural_equal(shared + shared, relay.exp(X) + relay.exp(X))

    @pytest.mark.parametrize(
        ("a", "b"),
        [
            (relay.exp(X), relay.log(X)),
            (relay.clip(X, 0, 1), relay.clip(X, 0, 2)),
            (relay.const(1), relay.const(2)),
            (relay.const(1), relay.const(1.0)),
            (relay.Tuple([X]), relay.Tuple([X, X])),
            (relay.Function([X], X), relay.Function([X], X, attrs={"a": 1})),
            (X, relay.var("x", shape=(1, 4, 8, 9))),
        ],
    )
    def test_different(self, a: Any, b: Any) -> None:
        assert not relay.structural_equal(a, b)
        assert relay.structural_equal(a, a)


def test_nodes_show_themselves_in_lists() -> None:
    found = [X, relay.GlobalVar("main"), relay.op.get("nn.relu")]
    assert repr(found) == "[Var(x, ty=Tensor[(1, 4, 8, 8), float32]), GlobalVar(main), Op(nn.relu)]"


def test_operators_say_how_they_fuse() -> None:
    kinds = relay.op.op.OpPattern
    found = [relay.op.get(name).get_attr("TOpPattern") for name in ("exp", "nn.conv2d", "argsort")]
    assert found == [kinds.ELEMWISE, kinds.OUT_ELEMWISE_FUSABLE, kinds.OPAQUE]
    assert {"exp", "nn.conv2d", "argsort"} <= set(relay.op.get("exp").list_op_names())


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: relay.Call(relay.op.get("add"), [X, 1]), "int as operator or argument.*const"),
        (lambda: relay.Call("add", [X, X]), "str as operator or argument of a call.*op.get"),
        (lambda: relay.Tuple([X, 1.5]), "float as field of a tuple; expected an expression"),
        (lambda: relay.Function([relay.const(1)], X), "Constant as parameter; expected a Var"),
        (lambda: relay.Function([X], relay.split(X, 2, 1)), "TupleWrapper as body.*astuple"),
        (lambda: relay.TupleGetItem(relay.split(X, 2, 1), 0), "TupleWrapper as tuple.*astuple"),
        (lambda: relay.Let(X + X, X, X), "Call as variable of a let; expected a Var"),
        (lambda: relay.If(True, X, X), "bool as condition or branch of an if"),
    ],
)
def test_parts_that_are_no_expressions(make: Any, words: str) -> None:
    with pytest.raises(RelayTypeError, match=words):
        make()
