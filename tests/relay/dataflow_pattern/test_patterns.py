"""What a user does with patterns: networks partitioned and rewritten, and mistakes."""

from __future__ import annotations

import numpy as np
import pytest

from convoy import relay
from convoy.errors import InvalidOption, RelayTypeError, UnsupportedOp
from convoy.relay.dataflow_pattern import (
    DFPatternCallback,
    dominates,
    has_dtype,
    has_shape,
    is_constant,
    is_expr,
    is_op,
    is_tuple,
    is_var,
    rewrite,
    wildcard,
)
from convoy.relay.visit import post_order

DEEP = 20_000


def float_var(name: str, *shape: int) -> relay.Var:
    return relay.var(name, shape=shape)


def chain(length: int) -> relay.Expr:
    value: relay.Expr = float_var("x", 4)
    for _ in range(length):
        value = relay.nn.relu(value)
    return value


class Drop(DFPatternCallback):
    """relu of relu is relu."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = is_op("nn.relu")(wildcard())
        self.pattern = is_op("nn.relu")(self.inner)

    def callback(self, pre, post, node_map):
        return node_map[self.inner][0]


def test_deep_graphs_do_not_recurse() -> None:
    graph = chain(DEEP)
    assert len([n for n in post_order(graph) if isinstance(n, relay.Call)]) == DEEP
    parted = is_op("nn.relu")(wildcard()).partition(graph, {"Composite": "relu"})
    functions = [n for n in post_order(parted) if isinstance(n, relay.Function)]
    assert len(functions) == DEEP
    assert all(f.attrs["Composite"] == "relu" for f in functions)


def test_a_path_may_be_deep() -> None:
    start = relay.tanh(float_var("x", 4))
    value = start
    for _ in range(DEEP):
        value = relay.nn.relu(value)
    pattern = dominates(is_op("tanh")(None), is_op("nn.relu")(None), is_op("add")(None))
    assert pattern.match(relay.add(value, start))
    assert not pattern.match(relay.add(value, relay.tanh(start)))


def test_a_redirected_wildcard_follows_a_deep_chain() -> None:
    hole = wildcard()
    relu = is_op("nn.relu")(hole)
    hole.redirect_to(relu | is_op("tanh")(wildcard()))
    value = relay.tanh(float_var("x", 4))
    for _ in range(DEEP):
        value = relay.nn.relu(value)
    assert relu.match(value)
    assert not relu.match(chain(3))


def test_a_wildcard_of_itself_matches_nothing() -> None:
    hole = wildcard()
    hole.redirect_to(hole)
    assert not hole.match(float_var("x", 4))


def test_rewriting_goes_on_until_nothing_matches() -> None:
    out = Drop().rewrite(chain(9))
    assert len([n for n in post_order(out) if isinstance(n, relay.Call)]) == 1


def test_rules_without_end_are_an_error() -> None:
    class Swap(DFPatternCallback):
        def __init__(self) -> None:
            super().__init__()
            self.pattern = is_op("tanh")(wildcard())

        def callback(self, pre, post, node_map):
            return relay.tanh(relay.nn.relu(post.args[0]))

    with pytest.raises(InvalidOption, match="Swap, which still rewrite"):
        Swap().rewrite(relay.tanh(float_var("x", 4)))


def test_require_type_gives_types_in_the_callback() -> None:
    class Halve(DFPatternCallback):
        def __init__(self) -> None:
            super().__init__(require_type=True, rewrite_once=True)
            self.pattern = is_op("nn.dense")(wildcard(), wildcard())
            self.seen: list[tuple[int, ...]] = []

        def callback(self, pre, post, node_map):
            self.seen.append(pre.checked_type.concrete_shape)
            return relay.nn.relu(post)

    rule = Halve()
    x, w = float_var("x", 2, 3), float_var("w", 5, 3)
    rewrite(rule, relay.Function([x, w], relay.nn.dense(x, w)))
    assert rule.seen == [(2, 5)]


def test_a_partitioned_network_computes_the_same(seed: int = 3) -> None:
    rng = np.random.default_rng(seed)
    x = float_var("x", 1, 4, 9, 9)
    value: relay.Expr = x
    for _ in range(3):
        weight = relay.const(rng.standard_normal((4, 4, 3, 3)).astype("float32"))
        conv = relay.nn.conv2d(value, weight, padding=(1, 1))
        biased = relay.nn.bias_add(conv, relay.const(rng.standard_normal(4).astype("float32")))
        value = relay.add(relay.nn.relu(biased), value)
    conv = is_op("nn.conv2d")(wildcard(), is_constant())
    pattern = is_op("nn.relu")(is_op("nn.bias_add")(conv, wildcard()))
    parted = pattern.partition(value, {"Composite": "c"})
    functions = [n for n in post_order(parted) if isinstance(n, relay.Function)]
    assert len(functions) == 3
    # the kernel is part of the function, the bias is an input
    assert [len(f.params) for f in functions] == [2, 2, 2]
    data = rng.standard_normal((1, 4, 9, 9)).astype("float32")
    outs = [
        relay.create_executor("graph").evaluate(relay.Function([x], e))(data).numpy()
        for e in (value, parted)
    ]
    np.testing.assert_allclose(outs[0], outs[1], rtol=1e-4, atol=1e-5)


def test_a_value_that_is_used_outside_is_not_partitioned() -> None:
    x = float_var("x", 4)
    inner = relay.tanh(x)
    out = relay.add(relay.nn.relu(inner), inner)
    pattern = is_op("nn.relu")(is_op("tanh")(wildcard()))
    assert pattern.partition(out) is out
    assert pattern.partition(out, check=lambda e: False) is out


def test_attributes_of_calls_and_operators() -> None:
    x, w = float_var("x", 1, 4, 9, 9), float_var("w", 4, 4, 3, 3)
    conv = relay.nn.conv2d(x, w, strides=(2, 2))
    pattern = is_op("nn.conv2d")(wildcard(), wildcard())
    assert pattern.has_attr({"strides": [2, 2], "groups": 1}).match(conv)
    assert not pattern.has_attr({"strides": [1, 1]}).match(conv)
    assert not pattern.has_attr({"stride": [2, 2]}).match(conv)
    assert wildcard().has_attr({"TOpPattern": 4})(None).match(conv)


def test_types() -> None:
    x, w = float_var("x", 2, 3), float_var("w", 5, 3)
    dense = relay.nn.dense(x, w)
    assert has_shape((2, 5)).match(dense)
    assert not has_shape((5, 2)).match(dense)
    assert has_dtype("float16").match(relay.cast(dense, "float16"))
    assert wildcard().has_type(relay.TensorType((2, 5))).match(dense)
    with pytest.raises(RelayTypeError):
        has_shape((2, 5)).match(relay.nn.dense(x, float_var("w", 5, 4)))


def test_constants_match_by_value() -> None:
    x = float_var("x", 2)
    assert (wildcard() + is_expr(relay.const(2.0))).match(relay.const(2.0) + x)
    assert not (wildcard() + is_expr(relay.const(2.0))).match(relay.const(3.0) + x)


def test_mistakes_are_named() -> None:
    with pytest.raises(InvalidOption, match="a Var in a call; expected a pattern"):
        is_op("add")(float_var("x", 2), wildcard())
    with pytest.raises(UnsupportedOp, match=r"nn\.conv2d"):
        is_op("conv2d")
    with pytest.raises(InvalidOption, match="without a pattern"):
        rewrite(DFPatternCallback(), float_var("x", 2))


def test_patterns_print() -> None:
    pattern = is_op("add")(is_var("x"), is_tuple(None)) | wildcard()
    assert str(pattern) == "add(VarPattern(x), TuplePattern(...)) | *"
