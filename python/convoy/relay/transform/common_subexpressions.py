"""EliminateCommonSubexpr: compute equal calls once."""

from __future__ import annotations

from collections.abc import Callable

from convoy.relay import ast
from convoy.relay.ast import Call, Constant, Expr
from convoy.relay.equality import same_attrs
from convoy.relay.transform.base import Pass, register_pass
from convoy.relay.transform.rewriting import expr_pass, op_name
from convoy.relay.visit import post_order, rebuild

_STATEFUL = ("random.", "nn.dropout", "memory.", "annotation.")


@register_pass
def EliminateCommonSubexpr(fskip: Callable[[Expr], bool] | None = None) -> Pass:
    """Compute equal calls of operators once.

    Args:
        fskip: Returns whether to leave a call alone.
    """
    return expr_pass("EliminateCommonSubexpr", 3, lambda f: _eliminate(f, fskip))


def _eliminate(expr: Expr, fskip: Callable[[Expr], bool] | None) -> Expr:
    memo: dict[int, Expr] = {}
    seen: dict[object, list[Expr]] = {}
    for node in post_order(expr):
        new = memo[id(node)] = rebuild(node, memo)
        key: object = None
        if isinstance(new, ast.TupleGetItem):
            key = (id(new.tuple_value), new.index)
        elif isinstance(new, Call) and op_name(new) and not op_name(new).startswith(_STATEFUL):
            key = (op_name(new), tuple(map(_identity, new.args)))
        if key is None or (fskip is not None and fskip(new)):
            continue
        for other in seen.setdefault(key, []):
            if isinstance(new, ast.TupleGetItem) or same_attrs(new.attrs, other.attrs):  # type: ignore[attr-defined]
                memo[id(node)] = other
                break
        else:
            seen[key].append(new)
    return memo[id(expr)]


def _identity(arg: Expr) -> object:
    """Return what two equal arguments have in common: scalars and tuples count by content."""
    if isinstance(arg, Constant) and arg.value.size == 1:
        return (arg.value.dtype.name, arg.value.shape, arg.value.tobytes())
    if isinstance(arg, ast.Tuple):
        return tuple(map(_identity, arg.fields))
    return id(arg)
