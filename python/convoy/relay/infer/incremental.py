"""Type inference of expressions while they are built.

`infer_expr` walks all that an expression is made of. A builder that asks for a type after each call
would walk its graph once for each node; `type_of` walks what is new since the last question.
"""

from __future__ import annotations

from convoy.relay import ast
from convoy.relay.ast import Expr, Function, Var
from convoy.relay.infer.engine import _Inference, _operands, _Step, _write, infer_expr
from convoy.relay.module import IRModule
from convoy.relay.types import Type


class _Incremental(_Inference):
    """Inference that takes the types of earlier questions as given."""

    def _get(self, node: Expr) -> Type | None:
        found = super()._get(node)
        return node.checked_type_ if found is None else found


def type_of(expr: Expr) -> Type:
    """Return the type of an expression whose variables have annotations.

    The type of every expression that it is made of is written to `checked_type_`, and is not
    inferred again.

    Raises:
        RelayTypeError: Shapes or dtypes that do not fit.
        UnsupportedOp: An operator without a type rule.
    """
    if expr.checked_type_ is not None:
        return expr.checked_type_
    inference = _Incremental(IRModule(), {}, "")
    stack = [expr]
    while stack:
        node = stack[-1]
        if node.checked_type_ is not None or isinstance(node, ast.Op):
            stack.pop()
        elif isinstance(node, (ast.Let, Function)):
            infer_expr(node)
        elif missing := [n for n in _operands(node) if _is_missing(n)]:
            stack.extend(missing)
        else:
            inference._do(_Step("type", node))
            _write(node, inference._need(node))
    return expr.checked_type


def _is_missing(node: Expr) -> bool:
    return not isinstance(node, (ast.Op, Var)) and node.checked_type_ is None
