"""The kinds of expressions that a program has."""

from __future__ import annotations

from enum import IntEnum

from convoy.relay import ast
from convoy.relay.ast import Expr
from convoy.relay.module import IRModule
from convoy.relay.visit import children, free_vars, post_order


class Feature(IntEnum):
    """A kind of expression, a shared expression (fGraph) or a recursive let (fLetRec)."""

    fVar = 0
    fGlobalVar = 1
    fConstant = 2
    fTuple = 3
    fTupleGetItem = 4
    fFunction = 5
    fOp = 6
    fCall = 7
    fLet = 8
    fIf = 9
    fRefCreate = 10
    fRefRead = 11
    fRefWrite = 12
    fConstructor = 13
    fMatch = 14
    fGraph = 15
    fLetRec = 16


# Sharing these has no meaning.
_ATOMS = ("Var", "Op", "Constructor", "GlobalVar", "Constant")


def detect_feature(a: Expr | IRModule, b: Expr | IRModule | None = None) -> set[Feature]:
    """Return the features of an expression or a module, or of both.

    Args:
        a, b: An expression, a module, or one of each in either order.
    """
    found: set[Feature] = set()
    for part in (a, b):
        if isinstance(part, IRModule):
            for function in part.functions.values():
                found |= _features(function)
        elif part is not None:
            found |= _features(part)
    return found


def _features(expr: Expr) -> set[Feature]:
    found: set[Feature] = set()
    used: set[int] = set()
    for node in post_order(expr):
        found.add(Feature[f"f{type(node).__name__}"])
        if isinstance(node, ast.Let) and node.var in free_vars(node.value):
            found.add(Feature.fLetRec)
        for child in children(node):
            if type(child).__name__ not in _ATOMS:
                if id(child) in used:
                    found.add(Feature.fGraph)
                used.add(id(child))
    return found
