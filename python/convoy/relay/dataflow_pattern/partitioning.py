"""`partition`: matches become calls of functions."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import Any

from convoy.relay import ast
from convoy.relay.ast import Expr
from convoy.relay.dataflow_pattern.grouping import PARTITIONED, group_matches
from convoy.relay.dataflow_pattern.matching import Pattern
from convoy.relay.visit import post_order, rebuild


def _always(expr: Expr) -> bool:
    return True


def partition(
    pattern: Pattern,
    expr: Expr,
    attrs: Mapping[str, Any] | None = None,
    check: Callable[[Expr], bool] = _always,
) -> Expr:
    """Replace each match of a pattern by a call of a function with the matched nodes.

    Args:
        pattern: The pattern.
        expr: The expression.
        attrs: Attributes of the functions, besides `PartitionedFromPattern`.
        check: Returns False for a matched expression that is to stay as it is.
    """
    if pattern.is_callee:
        warnings.warn("a pattern of a function that is not called partitions nothing", stacklevel=2)
        return expr
    groups = group_matches(pattern, expr)
    memo: dict[int, Expr] = {}
    for node in post_order(expr):
        memo[id(node)] = rebuild(node, memo)
        group = groups.get(node)
        if group is not None and check(node):
            function = group.function.with_attr({PARTITIONED: group.name, **(attrs or {})})
            memo[id(node)] = ast.Call(function, [memo[id(a)] for a in group.args])
    return memo[id(expr)]
