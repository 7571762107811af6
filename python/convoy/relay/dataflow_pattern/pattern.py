"""Patterns, and how they combine: calls, alternatives, conditions and dominators of patterns.

`nodes` has the patterns of all other expressions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from convoy.errors import InvalidOption
from convoy.relay import ast
from convoy.relay.ast import Expr
from convoy.relay.attrs import Attrs
from convoy.relay.dataflow_pattern.associativity import associated
from convoy.relay.dataflow_pattern.attributes import has_attributes
from convoy.relay.dataflow_pattern.dominance import match_dominator
from convoy.relay.dataflow_pattern.graph import Graph
from convoy.relay.dataflow_pattern.matching import Matching, Pattern
from convoy.relay.dataflow_pattern.partitioning import _always, partition
from convoy.relay.dataflow_pattern.typed import same_shape, type_of
from convoy.relay.equality import structural_equal
from convoy.relay.trampoline import Step
from convoy.relay.types import TensorType, Type


class DFPattern(Pattern):
    """Base of all patterns: `a + b`, `a | b` and `f(a, b)` build patterns of patterns."""

    def __call__(self, *args: DFPattern | None) -> CallPattern:
        """Match a call of what this matches; `pattern(None)` has any arguments."""
        return CallPattern(self, None if args == (None,) else args)  # type: ignore[arg-type]

    def __or__(self, other: DFPattern) -> AltPattern:
        return AltPattern(self, other)

    def __add__(self, other: DFPattern) -> CallPattern:
        return ExprPattern(ast.op("add"))(self, other)

    def __sub__(self, other: DFPattern) -> CallPattern:
        return ExprPattern(ast.op("subtract"))(self, other)

    def __mul__(self, other: DFPattern) -> CallPattern:
        return ExprPattern(ast.op("multiply"))(self, other)

    def __truediv__(self, other: DFPattern) -> CallPattern:
        return ExprPattern(ast.op("divide"))(self, other)

    def has_attr(self, attrs: Mapping[str, Any]) -> AttrPattern:
        """Match only what has these attributes (of an operator, a call or a function)."""
        return AttrPattern(self, attrs)

    def has_type(self, ttype: Type) -> TypePattern:
        """Match only what has this type."""
        return TypePattern(self, ttype)

    def has_dtype(self, dtype: str) -> DataTypePattern:
        """Match only tensors of this dtype."""
        return DataTypePattern(self, dtype)

    def has_shape(self, shape: Sequence[Any]) -> ShapePattern:
        """Match only tensors of this shape."""
        return ShapePattern(self, shape)

    def optional(self, option_constructor: Callable[[DFPattern], DFPattern]) -> AltPattern:
        """Match this, or what `option_constructor` makes of it."""
        return self | option_constructor(self)

    def dominates(self, parent: DFPattern, path: DFPattern | None = None) -> DominatorPattern:
        """Match this where all that it computes comes from `parent` along `path`."""
        return DominatorPattern(parent, WildcardPattern() if path is None else path, self)

    def match(self, expr: Expr) -> bool:
        """Check whether an expression matches."""
        return Matching(Graph(expr)).match(self, expr)

    def partition(
        self,
        expr: Expr,
        attrs: Mapping[str, Any] | None = None,
        check: Callable[[Expr], bool] = _always,
    ) -> Expr:
        """Replace each match by a call of a function; see `partition`."""
        return partition(self, expr, attrs, check)

    def astext(self, show_meta_data: bool = True, annotate: object = None) -> str:
        """Print the pattern."""
        return str(self)


def checked(part: object, where: str) -> DFPattern:
    """Return a part of a pattern, which must be a pattern."""
    if not isinstance(part, DFPattern):
        raise InvalidOption(
            f"a {type(part).__name__} in {where}",
            "a pattern",
            "is_expr(expr) matches an expression",
        )
    return part


def listed(parts: Sequence[DFPattern] | None, where: str) -> list[DFPattern] | None:
    """Return parts of a pattern, which must be patterns; None stands for any."""
    return None if parts is None else [checked(p, where) for p in parts]


# ---- leaves


class WildcardPattern(DFPattern):
    """Match anything."""

    def __init__(self) -> None:
        self.pattern: DFPattern | None = None

    def redirect_to(self, pat: DFPattern) -> None:
        """Match from now on what `pat` matches, which may be a pattern around this one."""
        self.pattern = checked(pat, "redirect_to")

    def attempt(self, matching: Matching, expr: Expr) -> Any:
        if self.pattern is None:
            return True
        return matching.redirected(self, self.pattern, expr)

    def parts(self) -> Sequence[Pattern]:
        return () if self.pattern is None else (self.pattern,)

    def __repr__(self) -> str:
        return "*"


class ExprPattern(DFPattern):
    """Match an expression that is structurally equal to the given one."""

    def __init__(self, expr: Expr) -> None:
        self.expr = expr

    def attempt(self, matching: Matching, expr: Expr) -> Any:
        return self.expr is expr or (
            type(self.expr) is type(expr)
            and not isinstance(expr, ast.Op)
            and structural_equal(self.expr, expr)
        )

    def keeps_constant(self, expr: Expr) -> bool:
        return isinstance(self.expr, ast.Constant)

    def __repr__(self) -> str:
        return self.expr.name if isinstance(self.expr, ast.Op) else f"ExprPattern({self.expr})"


# ---- expressions with parts


class CallPattern(DFPattern):
    """Match a call.

    `add` and `multiply` match with their arguments in either order, and a product of a quotient
    matches a quotient of a product: `a * (b / c)` is `(a * b) / c`.

    Args:
        op: What is called.
        args: The arguments; None for any.
    """

    def __init__(self, op: DFPattern, args: Sequence[DFPattern] | None) -> None:
        self.op, self.args = checked(op, "a call"), listed(args, "a call")

    def attempt(self, matching: Matching, expr: Expr) -> Any:
        return self._attempt(matching, expr) if isinstance(expr, ast.Call) else False

    def _attempt(self, matching: Matching, call: ast.Call) -> Step:
        if not (yield matching.visit(self.op, call.op)):
            for same in associated(self, call):
                mark = matching.mark()
                if (yield matching.visit(same, call)):
                    return True
                matching.forget(mark)
            return False
        if self.args is None or (yield matching.visit_all(self.args, call.args)):
            return True
        if self.op_name in ("add", "multiply") and len(self.args) == 2:
            return (yield matching.visit_all(self.args[::-1], call.args))
        return False

    @property
    def op_name(self) -> str:
        """The operator, "" where anything else is called."""
        found = self.op.expr if isinstance(self.op, ExprPattern) else None
        return found.name if isinstance(found, ast.Op) else ""

    def parts(self) -> Sequence[Pattern]:
        return (self.op, *(self.args or ()))

    def free_inputs(self, expr: Expr) -> Sequence[Expr]:
        return expr.args if self.args is None and isinstance(expr, ast.Call) else ()

    def __repr__(self) -> str:
        args = "..." if self.args is None else ", ".join(map(str, self.args))
        return f"{self.op}({args})"


# ---- choices and conditions


class AltPattern(DFPattern):
    """Match what the left pattern matches, else what the right one does."""

    def __init__(self, left: DFPattern, right: DFPattern) -> None:
        self.left, self.right = checked(left, "an alternative"), checked(right, "an alternative")

    def attempt(self, matching: Matching, expr: Expr) -> Step:
        if (yield matching.visit(self.left, expr)):
            return True
        return (yield matching.visit(self.right, expr))

    def parts(self) -> Sequence[Pattern]:
        return (self.left, self.right)

    def __repr__(self) -> str:
        return f"{self.left} | {self.right}"


class _Condition(DFPattern):
    """A pattern with a condition on what it matched."""

    def __init__(self, pattern: DFPattern) -> None:
        self.pattern = checked(pattern, "a condition")

    def attempt(self, matching: Matching, expr: Expr) -> Step:
        return (yield matching.visit(self.pattern, expr)) and self.holds(expr)

    def holds(self, expr: Expr) -> bool:
        """Check the condition."""
        raise NotImplementedError

    def parts(self) -> Sequence[Pattern]:
        return (self.pattern,)


class AttrPattern(_Condition):
    """Match an operator, a call or a function with certain attributes."""

    def __init__(self, pattern: DFPattern, attrs: Mapping[str, Any]) -> None:
        super().__init__(pattern)
        self.attrs = Attrs(None, attrs)

    def holds(self, expr: Expr) -> bool:
        return has_attributes(expr, self.attrs)

    def __repr__(self) -> str:
        return f"AttrPattern({self.pattern} has attributes {dict(self.attrs)})"


class TypePattern(_Condition):
    """Match an expression of a type."""

    def __init__(self, pattern: DFPattern, ttype: Type) -> None:
        super().__init__(pattern)
        self.type = ttype

    def holds(self, expr: Expr) -> bool:
        return type_of(expr) == self.type

    def __repr__(self) -> str:
        return f"TypePattern({self.pattern} has type {self.type})"


class DataTypePattern(_Condition):
    """Match a tensor of a dtype."""

    def __init__(self, pattern: DFPattern, dtype: str) -> None:
        super().__init__(pattern)
        self.dtype = str(dtype)

    def holds(self, expr: Expr) -> bool:
        found = type_of(expr)
        return isinstance(found, TensorType) and found.dtype == self.dtype

    def __repr__(self) -> str:
        return f"DataTypePattern({self.pattern} has dtype {self.dtype})"


class ShapePattern(_Condition):
    """Match a tensor of a shape."""

    def __init__(self, pattern: DFPattern, shape: Sequence[Any]) -> None:
        super().__init__(pattern)
        self.shape = shape

    def holds(self, expr: Expr) -> bool:
        found = type_of(expr)
        return isinstance(found, TensorType) and same_shape(found.shape, self.shape)

    def __repr__(self) -> str:
        return f"ShapePattern({self.pattern} has shape {list(self.shape)})"


class DominatorPattern(DFPattern):
    """Match a node all of whose inputs come from one node along certain paths.

    Args:
        parent: The node where the paths begin.
        path: Each node on a path.
        child: The node where they end.
    """

    def __init__(self, parent: DFPattern, path: DFPattern, child: DFPattern) -> None:
        self.parent, self.path = checked(parent, "dominates"), checked(path, "dominates")
        self.child = checked(child, "dominates")

    def attempt(self, matching: Matching, expr: Expr) -> Step:
        return match_dominator(matching, self.parent, self.path, self.child, expr)

    def parts(self) -> Sequence[Pattern]:
        return (self.parent, self.path, self.child)

    def interior(self, matched: dict[Pattern, list[Expr]]) -> list[Expr]:
        return [*matched.get(self.parent, ()), *matched.get(self.path, ())]

    def __repr__(self) -> str:
        return f"DominatorPattern{self.parent, self.path, self.child}"
