"""The functions that build patterns: `is_op("nn.relu")(wildcard())`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from convoy.relay import ast
from convoy.relay.ast import Expr
from convoy.relay.dataflow_pattern.nodes import (
    ConstantPattern,
    IfPattern,
    LetPattern,
    TupleGetItemPattern,
    TuplePattern,
    VarPattern,
)
from convoy.relay.dataflow_pattern.pattern import (
    AttrPattern,
    DataTypePattern,
    DFPattern,
    DominatorPattern,
    ExprPattern,
    ShapePattern,
    TypePattern,
    WildcardPattern,
)
from convoy.relay.types import Type


def wildcard() -> WildcardPattern:
    """Match anything."""
    return WildcardPattern()


def is_var(name: str = "") -> VarPattern:
    """Match a variable, of any name or of this one."""
    return VarPattern(name)


def is_constant() -> ConstantPattern:
    """Match a constant."""
    return ConstantPattern()


def is_expr(expr: Expr) -> ExprPattern:
    """Match an expression that is structurally equal to `expr`."""
    return ExprPattern(expr)


def is_op(op_name: str) -> ExprPattern:
    """Match an operator; `is_op("add")(a, b)` matches calls of it.

    Raises:
        UnsupportedOp: Relay has no such operator.
    """
    return ExprPattern(ast.op(op_name))


def is_tuple(fields: Sequence[DFPattern] | None) -> TuplePattern:
    """Match a tuple; None stands for any fields."""
    return TuplePattern(fields)


def is_tuple_get_item(tuple_value: DFPattern, index: int | None = None) -> TupleGetItemPattern:
    """Match a field of a tuple; None stands for any field."""
    return TupleGetItemPattern(tuple_value, index)


def is_if(cond: DFPattern, true_branch: DFPattern, false_branch: DFPattern) -> IfPattern:
    """Match an `if`."""
    return IfPattern(cond, true_branch, false_branch)


def is_let(var: DFPattern, value: DFPattern, body: DFPattern) -> LetPattern:
    """Match a `let`."""
    return LetPattern(var, value, body)


def has_type(ttype: Type, pattern: DFPattern | None = None) -> TypePattern:
    """Match what has this type (and matches `pattern`)."""
    return TypePattern(wildcard() if pattern is None else pattern, ttype)


def has_dtype(dtype: str, pattern: DFPattern | None = None) -> DataTypePattern:
    """Match tensors of this dtype (that match `pattern`)."""
    return DataTypePattern(wildcard() if pattern is None else pattern, dtype)


def has_shape(shape: Sequence[Any], pattern: DFPattern | None = None) -> ShapePattern:
    """Match tensors of this shape (that match `pattern`)."""
    return ShapePattern(wildcard() if pattern is None else pattern, shape)


def has_attr(attrs: Mapping[str, Any], pattern: DFPattern | None = None) -> AttrPattern:
    """Match what has these attributes (and matches `pattern`)."""
    return AttrPattern(wildcard() if pattern is None else pattern, attrs)


def dominates(parent: DFPattern, path: DFPattern, child: DFPattern) -> DominatorPattern:
    """Match `child` where all that it computes comes from `parent` along `path`."""
    return DominatorPattern(parent, path, child)


def match(pattern: DFPattern, expr: Expr) -> bool:
    """Check whether an expression matches a pattern."""
    return pattern.match(expr)
