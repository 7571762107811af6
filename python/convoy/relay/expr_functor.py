"""Visitors with a method for each kind of node, as in TVM 0.18.

They recurse, as user code expects; `visit.post_order` and `visit.rewrite` do not.
"""

from __future__ import annotations

from typing import Any

from convoy.relay import adt, ast
from convoy.relay.ast import Expr
from convoy.relay.visit import children, rebuild

_METHODS: tuple[tuple[type[Expr], str], ...] = (
    (ast.Function, "visit_function"),
    (ast.Call, "visit_call"),
    (ast.Let, "visit_let"),
    (ast.Var, "visit_var"),
    (ast.If, "visit_if"),
    (ast.Tuple, "visit_tuple"),
    (ast.TupleGetItem, "visit_tuple_getitem"),
    (ast.GlobalVar, "visit_global_var"),
    (ast.Op, "visit_op"),
    (ast.Constant, "visit_constant"),
    (adt.RefCreate, "visit_ref_create"),
    (adt.RefRead, "visit_ref_read"),
    (adt.RefWrite, "visit_ref_write"),
    (adt.Constructor, "visit_constructor"),
    (adt.Match, "visit_match"),
)


class ExprFunctor:
    """Call the method of a node's kind; each node is visited once."""

    def __init__(self) -> None:
        self.memo_map: dict[Expr, Any] = {}

    def visit(self, expr: Expr) -> Any:
        """Return the result of the node's method, computed once."""
        if expr not in self.memo_map:
            name = next(method for kind, method in _METHODS if isinstance(expr, kind))
            self.memo_map[expr] = getattr(self, name, self.visit_default)(expr)
        return self.memo_map[expr]

    def visit_default(self, expr: Expr) -> Any:
        """Handle a kind of node without a method."""
        raise NotImplementedError(f"no method for a {type(expr).__name__}")


class ExprVisitor(ExprFunctor):
    """Visit all parts of an expression."""

    def visit_default(self, expr: Expr) -> Any:
        for child in children(expr):
            self.visit(child)

    visit_function = visit_call = visit_let = visit_var = visit_if = visit_default
    visit_tuple = visit_tuple_getitem = visit_global_var = visit_op = visit_default
    visit_constant = visit_ref_create = visit_ref_read = visit_ref_write = visit_default
    visit_constructor = visit_match = visit_default


class ExprMutator(ExprFunctor):
    """Rebuild an expression from its rebuilt parts; unchanged parts are shared."""

    def visit_default(self, expr: Expr) -> Any:
        return rebuild(expr, {id(child): self.visit(child) for child in children(expr)})

    visit_function = visit_call = visit_let = visit_var = visit_if = visit_default
    visit_tuple = visit_tuple_getitem = visit_global_var = visit_op = visit_default
    visit_constant = visit_ref_create = visit_ref_read = visit_ref_write = visit_default
    visit_constructor = visit_match = visit_default
