"""Patterns of variables, constants, functions, tuples, `if` and `let`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from convoy.relay import ast
from convoy.relay.ast import Expr
from convoy.relay.dataflow_pattern.matching import Matching, Pattern
from convoy.relay.dataflow_pattern.pattern import DFPattern, checked, listed
from convoy.relay.trampoline import Step
from convoy.relay.visit import post_order


class VarPattern(DFPattern):
    """Match a variable, of any name or of the given one."""

    def __init__(self, name_hint: str = "") -> None:
        self.name = name_hint

    @property
    def name_hint(self) -> str:
        """The name."""
        return self.name

    def attempt(self, matching: Matching, expr: Expr) -> Any:
        return isinstance(expr, ast.Var) and self.name in ("", expr.name_hint)

    def __repr__(self) -> str:
        return f"VarPattern({self.name})"


class ConstantPattern(DFPattern):
    """Match a constant."""

    def attempt(self, matching: Matching, expr: Expr) -> Any:
        return isinstance(expr, ast.Constant)

    def keeps_constant(self, expr: Expr) -> bool:
        return True

    def __repr__(self) -> str:
        return "ConstantPattern()"


class FunctionPattern(DFPattern):
    """Match a function; `params` None stands for any parameters."""

    def __init__(self, params: Sequence[DFPattern] | None, body: DFPattern) -> None:
        self.params, self.body = listed(params, "a function"), checked(body, "a function")

    def attempt(self, matching: Matching, expr: Expr) -> Any:
        return self._attempt(matching, expr) if isinstance(expr, ast.Function) else False

    def _attempt(self, matching: Matching, function: ast.Function) -> Step:
        if self.params is not None and not (yield matching.visit_all(self.params, function.params)):
            return False
        return (yield matching.visit(self.body, function.body))

    def parts(self) -> Sequence[Pattern]:
        return (*(self.params or ()), self.body)

    def interior(self, matched: dict[Pattern, list[Expr]]) -> list[Expr]:
        return [node for function in matched.get(self, ())[:1] for node in post_order(function)]

    @property
    def is_callee(self) -> bool:
        return True

    def __repr__(self) -> str:
        params = "..." if self.params is None else ", ".join(map(str, self.params))
        return f"FunctionPattern([{params}], {self.body})"


class TuplePattern(DFPattern):
    """Match a tuple; `fields` None stands for any fields."""

    def __init__(self, fields: Sequence[DFPattern] | None) -> None:
        self.fields = listed(fields, "a tuple")

    def __getitem__(self, index: int) -> DFPattern:
        return (self.fields or [])[index]

    def __len__(self) -> int:
        return len(self.fields or ())

    def attempt(self, matching: Matching, expr: Expr) -> Any:
        if not isinstance(expr, ast.Tuple):
            return False
        return self.fields is None or matching.visit_all(self.fields, expr.fields)

    def parts(self) -> Sequence[Pattern]:
        return tuple(self.fields or ())

    def free_inputs(self, expr: Expr) -> Sequence[Expr]:
        if self.fields is None and isinstance(expr, ast.Tuple):
            return expr.fields
        return super().free_inputs(expr)

    def __repr__(self) -> str:
        fields = "..." if self.fields is None else ", ".join(map(str, self.fields))
        return f"TuplePattern({fields})"


class TupleGetItemPattern(DFPattern):
    """Match a field of a tuple; `index` None stands for any field."""

    def __init__(self, tuple_value: DFPattern, index: int | None = None) -> None:
        self.tuple = checked(tuple_value, "a field of a tuple")
        self.index = -1 if index is None else index

    def attempt(self, matching: Matching, expr: Expr) -> Any:
        if not isinstance(expr, ast.TupleGetItem) or self.index not in (-1, expr.index):
            return False
        return matching.visit(self.tuple, expr.tuple_value)

    def parts(self) -> Sequence[Pattern]:
        return (self.tuple,)

    def __repr__(self) -> str:
        return f"TupleGetItemPattern({self.tuple}, {self.index})"


class IfPattern(DFPattern):
    """Match an `if`."""

    def __init__(self, cond: DFPattern, true_branch: DFPattern, false_branch: DFPattern) -> None:
        self.cond, self.true_branch = checked(cond, "an if"), checked(true_branch, "an if")
        self.false_branch = checked(false_branch, "an if")

    def attempt(self, matching: Matching, expr: Expr) -> Any:
        if not isinstance(expr, ast.If):
            return False
        exprs = (expr.cond, expr.true_branch, expr.false_branch)
        return matching.visit_all(self.parts(), exprs)

    def parts(self) -> Sequence[Pattern]:
        return (self.cond, self.true_branch, self.false_branch)

    def __repr__(self) -> str:
        return f"IfPattern{self.cond, self.true_branch, self.false_branch}"


class LetPattern(DFPattern):
    """Match a `let`."""

    def __init__(self, var: DFPattern, value: DFPattern, body: DFPattern) -> None:
        self.var, self.value = checked(var, "a let"), checked(value, "a let")
        self.body = checked(body, "a let")

    def attempt(self, matching: Matching, expr: Expr) -> Any:
        if not isinstance(expr, ast.Let):
            return False
        return matching.visit_all(self.parts(), (expr.var, expr.value, expr.body))

    def parts(self) -> Sequence[Pattern]:
        return (self.var, self.value, self.body)

    def __repr__(self) -> str:
        return f"LetPattern{self.var, self.value, self.body}"
