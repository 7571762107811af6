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
from convoy.relay.with_fields import (
    CallWithFields,
    ConstantWithFields,
    IfWithFields,
    LetWithFields,
    RefCreateWithFields,
    RefReadWithFields,
    RefWriteWithFields,
    TupleGetItemWithFields,
    TupleWithFields,
    VarWithFields,
)

RelayExpr = ExprWithOp = Expr

__all__ = [
    "Call",
    "CallWithFields",
    "Constant",
    "ConstantWithFields",
    "Expr",
    "ExprWithOp",
    "Function",
    "GlobalVar",
    "If",
    "IfWithFields",
    "Let",
    "LetWithFields",
    "Op",
    "RefCreate",
    "RefCreateWithFields",
    "RefRead",
    "RefReadWithFields",
    "RefWrite",
    "RefWriteWithFields",
    "RelayExpr",
    "Tuple",
    "TupleGetItem",
    "TupleGetItemWithFields",
    "TupleWithFields",
    "TupleWrapper",
    "Var",
    "VarWithFields",
    "bind",
    "const",
    "var",
]
