"""Find programs that need the evaluator: those that no Relax function holds."""

from __future__ import annotations

from convoy.relay import adt, ast
from convoy.relay.analysis.calls import reachable, recursive
from convoy.relay.ast import Expr, Function, GlobalVar
from convoy.relay.module import IRModule
from convoy.relay.types import FuncType, TupleType, Type, TypeCall, type_parts
from convoy.relay.visit import children, post_order

_NODES = (adt.Match, adt.Constructor, adt.RefCreate, adt.RefRead, adt.RefWrite)


def needs_evaluator(mod: IRModule, entry: str = "main") -> bool:
    """Check for data types, references, recursion, and functions as values, below a function."""
    names = reachable(mod, entry)
    return bool(recursive(mod, names)) or any(_special(mod[name]) for name in names)


def _special(function: Function) -> bool:
    if isinstance(function.body, (Function, GlobalVar)) or function.type_params:
        return True
    for node in post_order(function):
        if isinstance(node, _NODES):
            return True
        if isinstance(node, ast.Var) and _is_special(node.type_annotation):
            return True
        if isinstance(node, ast.Let) and _is_recursive(node):
            return True
        values: tuple[Expr, ...] = tuple(children(node))
        if isinstance(node, ast.Call):
            values = tuple(node.args)
            if isinstance(node.op, (ast.Call, ast.If, ast.TupleGetItem, ast.Let)):
                return True  # the callee is computed
        elif isinstance(node, ast.Let):
            values = (node.body,)
        elif node is function:
            values = ()
        if any(isinstance(v, (Function, GlobalVar, ast.Op)) for v in values):
            return True
    return False


def _is_recursive(let: ast.Let) -> bool:
    return isinstance(let.value, Function) and let.var in set(post_order(let.value))


def _is_special(type_: Type | None) -> bool:
    if type_ is None:
        return False
    if isinstance(type_, TupleType):
        return any(map(_is_special, type_parts(type_)))
    return isinstance(type_, (FuncType, TypeCall))
