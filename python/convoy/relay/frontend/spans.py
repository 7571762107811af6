"""Spans of imported expressions: the names of the nodes that they were made of."""

from __future__ import annotations

import re
from typing import Any

from convoy.relay.ast import Call, Constant, Expr, Tuple, TupleGetItem, TupleWrapper, Var
from convoy.relay.source import SourceName, Span
from convoy.relay.transform.context import PassContext

_UNPRINTABLE = re.compile(r"[*\s]")  # a name is printed inside a comment


def mark(value: Any, name: str) -> None:
    """Give expressions the name of a node as their span, down to those that have one.

    A variable is marked by the first node that uses it, as `node.variable`. The option
    "relay.frontend.fill_span" of the PassContext turns this off.

    Args:
        value: What a node became: an expression, or a list or tuple of them.
        name: The name of the node.
    """
    if not name or not PassContext.current().config.get("relay.frontend.fill_span", True):
        return
    node = _UNPRINTABLE.sub("_", name)
    span = _span(node)
    todo = [value]
    while todo:
        item = todo.pop()
        if isinstance(item, list | tuple):
            todo += item
        elif isinstance(item, TupleWrapper):
            todo.append(item.tuple_value)
        elif isinstance(item, Expr) and item.span is None:
            if isinstance(item, Var):
                _set(item, _span(f"{node}.{item.name_hint}"))
            elif isinstance(item, Call | Constant | Tuple | TupleGetItem):
                _set(item, span)
                todo += _operands(item)


def _operands(expr: Expr) -> list[Expr]:
    if isinstance(expr, Call):
        return list(expr.args)
    if isinstance(expr, Tuple):
        return list(expr.fields)
    return [expr.tuple_value] if isinstance(expr, TupleGetItem) else []


def _span(name: str) -> Span:
    return Span(SourceName(name), 0)


def _set(expr: Expr, span: Span) -> None:
    object.__setattr__(expr, "span", span)
