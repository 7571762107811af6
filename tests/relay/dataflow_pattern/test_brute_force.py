"""Matching against a matcher that tries everything, on random patterns and graphs."""

from __future__ import annotations

import random
from itertools import product

from hypothesis import given, settings
from hypothesis import strategies as st

from convoy import relay
from convoy.relay import dataflow_pattern as dfp
from convoy.relay.ast import Call, Expr, Tuple, TupleGetItem
from convoy.relay.visit import post_order

UNARY, BINARY = ["nn.relu", "tanh"], ["add", "subtract", "multiply"]


def make_graph(rng: random.Random, size: int) -> Expr:
    """A graph in which later nodes use any earlier ones."""
    nodes: list[Expr] = [relay.var("x"), relay.var("y"), relay.const(1.0)]
    for _ in range(size):
        a, b = rng.choice(nodes), rng.choice(nodes[-3:])
        kind = rng.randrange(4)
        if kind == 0:
            nodes.append(Call(relay.op.get(rng.choice(UNARY)), [b]))
        elif kind == 1:
            nodes.append(TupleGetItem(Tuple([a, b]), rng.randrange(2)))
        else:
            nodes.append(Call(relay.op.get(rng.choice(BINARY)), [a, b]))
    return nodes[-1]


def make_pattern(rng: random.Random, depth: int, known: list[dfp.DFPattern]) -> dfp.DFPattern:
    """A pattern; with `known`, parts may occur twice."""
    if known and rng.random() < 0.3:
        return rng.choice(known)
    kind = rng.randrange(8) if depth else rng.randrange(3)
    inner = lambda: make_pattern(rng, depth - 1, known)  # noqa: E731
    if kind == 0:
        found: dfp.DFPattern = dfp.wildcard()
    elif kind == 1:
        found = dfp.is_var(rng.choice(["", "x"]))
    elif kind == 2:
        found = dfp.is_constant() | dfp.wildcard()
    elif kind == 3:
        found = dfp.is_op(rng.choice(UNARY))(inner())
    elif kind == 4:
        found = inner() | inner()
    elif kind == 5:
        found = dfp.is_tuple_get_item(dfp.is_tuple([inner(), inner()]), rng.choice([None, 0, 1]))
    else:
        found = dfp.is_op(rng.choice(BINARY))(inner(), inner())
    return found


Capture = dict[int, int]


def brute(pattern: dfp.DFPattern, expr: Expr) -> list[Capture]:
    """All ways to match, each with the node of every part; a part matches one node."""
    if isinstance(pattern, dfp.WildcardPattern):
        found = [{}]
    elif isinstance(pattern, dfp.VarPattern):
        found = [{}] if isinstance(expr, relay.Var) and pattern.name in ("", expr.name_hint) else []
    elif isinstance(pattern, dfp.ConstantPattern):
        found = [{}] if isinstance(expr, relay.Constant) else []
    elif isinstance(pattern, dfp.AltPattern):
        found = brute(pattern.left, expr) + brute(pattern.right, expr)
    elif isinstance(pattern, dfp.TupleGetItemPattern):
        same = isinstance(expr, TupleGetItem) and pattern.index in (-1, expr.index)
        found = brute(pattern.tuple, expr.tuple_value) if same else []
    elif isinstance(pattern, dfp.TuplePattern):
        found = several(pattern.fields, expr.fields) if isinstance(expr, Tuple) else []
    else:
        assert isinstance(pattern, dfp.CallPattern)
        found = []
        if isinstance(expr, Call) and expr.op is pattern.op.expr:
            found = several(pattern.args, expr.args)
            if expr.op.name in ("add", "multiply"):
                found += several(pattern.args[::-1], expr.args)
    return [{**f, id(pattern): id(expr)} for f in found if f.get(id(pattern), id(expr)) == id(expr)]


def several(patterns: list[dfp.DFPattern], exprs: tuple[Expr, ...]) -> list[Capture]:
    out = []
    for choice in product(*(brute(p, e) for p, e in zip(patterns, exprs, strict=True))):
        merged: Capture = {}
        if all(merged.setdefault(k, v) == v for part in choice for k, v in part.items()):
            out.append(merged)
    return out


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 10**9))
def test_patterns_of_distinct_parts_match_exactly(seed: int) -> None:
    rng = random.Random(seed)
    graph, pattern = make_graph(rng, 8), make_pattern(rng, 3, [])
    for node in post_order(graph):
        if not isinstance(node, relay.op.get("add").__class__):
            assert pattern.match(node) == bool(brute(pattern, node)), f"{pattern} on {node}"


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 10**9))
def test_patterns_with_shared_parts_never_match_wrongly(seed: int) -> None:
    rng = random.Random(seed)
    shared: list[dfp.DFPattern] = [dfp.wildcard(), dfp.is_op("nn.relu")(dfp.wildcard())]
    graph, pattern = make_graph(rng, 8), make_pattern(rng, 3, shared)
    for node in post_order(graph):
        if pattern.match(node):
            assert brute(pattern, node), f"{pattern} on {node}"


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 10**9))
def test_partitions_inline_to_the_graph(seed: int) -> None:
    rng = random.Random(seed)
    graph = make_graph(rng, 12)
    pattern = dfp.is_op(rng.choice(BINARY))(make_pattern(rng, 1, []), make_pattern(rng, 1, []))
    parted = pattern.partition(graph)

    def inline(node: Expr) -> Expr | None:
        if isinstance(node, Call) and isinstance(node.op, relay.Function):
            args = dict(zip(node.op.params, node.args, strict=True))
            return relay.bind(node.op.body, args)
        return None

    assert text_of(relay.visit.rewrite(parted, inline)) == text_of(graph)


def text_of(expr: Expr) -> str:
    """The expression as a tree, so that sharing does not count."""
    memo: dict[Expr, str] = {}
    for node in post_order(expr):
        if isinstance(node, relay.Var):
            memo[node] = node.name_hint
        elif isinstance(node, Call):
            name = getattr(node.op, "name", "call")
            memo[node] = f"{name}({', '.join(memo[a] for a in node.args)})"
        elif isinstance(node, Tuple):
            memo[node] = f"({', '.join(memo[f] for f in node.fields)})"
        elif isinstance(node, TupleGetItem):
            memo[node] = f"{memo[node.tuple_value]}.{node.index}"
        else:
            memo[node] = "c"
    return memo[expr]
