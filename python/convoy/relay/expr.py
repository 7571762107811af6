"""`tvm.relay.expr`: expressions under their former path."""

from convoy.relay.adt import RefCreate, RefRead, RefWrite
from convoy.relay.ast import (
    Call,
    Constant,
    Expr,
    Function,
    GlobalVar,
    If,
    Let,
    Op,
    Tuple,
    TupleGetItem,
    TupleWrapper,
    Var,
)
from convoy.relay.builder import const, var
from convoy.relay.visit import bind

RelayExpr = ExprWithOp = Expr

__all__ = [
    "Call",
    "Constant",
    "Expr",
    "ExprWithOp",
    "Function",
    "GlobalVar",
    "If",
    "Let",
    "Op",
    "RefCreate",
    "RefRead",
    "RefWrite",
    "RelayExpr",
    "Tuple",
    "TupleGetItem",
    "TupleWrapper",
    "Var",
    "bind",
    "const",
    "var",
]
