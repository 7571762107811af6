"""`rewrite`: matches are replaced by what a callback makes of them."""

from __future__ import annotations

from collections.abc import Sequence

from convoy.errors import InvalidOption
from convoy.relay.ast import Expr
from convoy.relay.dataflow_pattern.grouping import group_matches
from convoy.relay.dataflow_pattern.matching import Pattern
from convoy.relay.equality import structural_equal
from convoy.relay.infer import infer_expr
from convoy.relay.module import IRModule
from convoy.relay.visit import post_order, rebuild

_MAX_ROUNDS = 100


class DFPatternCallback:
    """A rewrite rule: a pattern and what to put in the place of its matches.

    Subclasses set `self.pattern` and define `callback`.

    Args:
        require_type: Infer the types of the expression before it is matched.
        rewrite_once: Stop after the first pass over the expression that changed something.

    Attributes:
        pattern: The pattern.
    """

    pattern: Pattern | None

    def __init__(self, require_type: bool = False, rewrite_once: bool = False) -> None:
        self.pattern = None
        self.require_type, self.rewrite_once = require_type, rewrite_once

    def rewrite(self, expr: Expr) -> Expr:
        """Rewrite an expression with this rule alone."""
        return rewrite(self, expr)

    def callback(self, pre: Expr, post: Expr, node_map: dict[Pattern, list[Expr]]) -> Expr:
        """Return the replacement of a match.

        Args:
            pre: The match in the expression as it was.
            post: The match, its inputs rewritten already.
            node_map: What each part of the pattern matched, rewritten already.
        """
        raise NotImplementedError(f"{type(self).__name__} defines no callback")


def rewrite(
    callbacks: DFPatternCallback | Sequence[DFPatternCallback],
    expr: Expr,
    mod: IRModule | None = None,
) -> Expr:
    """Apply rules, one after the other, until none of them changes the expression.

    Args:
        callbacks: A rule, or several.
        expr: The expression.
        mod: The module with the functions that it calls, for rules that need types.

    Raises:
        InvalidOption: A rule without a pattern, or rules that never come to an end.
    """
    rules = [callbacks] if isinstance(callbacks, DFPatternCallback) else list(callbacks)
    for rule in rules:
        if rule.pattern is None:
            raise InvalidOption(f"{type(rule).__name__} without a pattern", "self.pattern set")
    done: set[DFPatternCallback] = set()
    for _ in range(_MAX_ROUNDS):
        before = expr
        for rule in rules:
            if rule in done:
                continue
            new = _apply(rule, expr, mod)
            if rule.rewrite_once and not structural_equal(expr, new):
                done.add(rule)
            expr = new
        if structural_equal(before, expr):
            return expr
    names = ", ".join(type(rule).__name__ for rule in rules)
    raise InvalidOption(
        f"{names}, which still rewrite after {_MAX_ROUNDS} rounds",
        "rules that come to an end",
        "Let the pattern not match its own replacement, or pass rewrite_once=True",
    )


def _apply(rule: DFPatternCallback, expr: Expr, mod: IRModule | None) -> Expr:
    assert rule.pattern is not None
    if rule.require_type:
        infer_expr(expr, mod)
    groups = group_matches(rule.pattern, expr)
    if not groups:
        return expr
    memo: dict[int, Expr] = {}
    for node in post_order(expr):
        post = memo[id(node)] = rebuild(node, memo)
        group = groups.get(node)
        if group is not None:
            node_map = {p: [memo[id(e)] for e in found] for p, found in group.matched.items()}
            memo[id(node)] = rule.callback(node, post, node_map)
    return memo[id(expr)]
