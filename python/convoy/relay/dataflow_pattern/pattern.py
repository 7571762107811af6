"""The patterns of Relay's pattern language, each with its rule of matching."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeGuard

from convoy.errors import InvalidOption
from convoy.relay import ast
from convoy.relay.ast import Expr
from convoy.relay.attrs import Attrs
from convoy.relay.dataflow_pattern.attributes import has_attributes
from convoy.relay.dataflow_pattern.dominance import match_dominator
from convoy.relay.dataflow_pattern.graph import Graph
from convoy.relay.dataflow_pattern.matching import Matching, Pattern
from convoy.relay.dataflow_pattern.partitioning import _always, partition
from convoy.relay.dataflow_pattern.typed import same_shape, type_of
from convoy.relay.equality import structural_equal
from convoy.relay.trampoline import Step
from convoy.relay.types import TensorType, Type
from convoy.relay.visit import post_order


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


def _checked(part: object, where: str) -> DFPattern:
    if not isinstance(part, DFPattern):
        raise InvalidOption(
            f"a {type(part).__name__} in {where}",
            "a pattern",
            "is_expr(expr) matches an expression",
        )
    return part


def _listed(parts: Sequence[DFPattern] | None, where: str) -> list[DFPattern] | None:
    return None if parts is None else [_checked(p, where) for p in parts]


# ---- leaves


class WildcardPattern(DFPattern):
    """Match anything."""

    def __init__(self) -> None:
        self.pattern: DFPattern | None = None

    def redirect_to(self, pat: DFPattern) -> None:
        """Match from now on what `pat` matches, which may be a pattern around this one."""
        self.pattern = _checked(pat, "redirect_to")

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
        self.op, self.args = _checked(op, "a call"), _listed(args, "a call")

    def attempt(self, matching: Matching, expr: Expr) -> Any:
        return self._attempt(matching, expr) if isinstance(expr, ast.Call) else False

    def _attempt(self, matching: Matching, call: ast.Call) -> Step:
        if not (yield matching.visit(self.op, call.op)):
            for same in self._associated(call):
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

    def _associated(self, call: ast.Call) -> list[CallPattern]:
        """Return equal patterns that begin with the call's operator."""
        if self.args is None or len(self.args) != 2:
            return []
        first, second = self.args
        found = []
        if self.op_name == "divide" and _is_call(call, "multiply") and _with(call, "divide"):
            if _is_pattern(first, "multiply"):
                for a, b in (first.args or [], (first.args or [])[::-1]):
                    found.append(CallPattern(first.op, [b, CallPattern(self.op, [a, second])]))
        elif self.op_name == "multiply" and _is_call(call, "divide") and _with(call, "multiply"):
            for quotient, factor in ((first, second), (second, first)):
                if _is_pattern(quotient, "divide"):
                    above, below = quotient.args or []
                    product = CallPattern(self.op, [above, factor])
                    found.append(CallPattern(quotient.op, [product, below]))
        return found

    def parts(self) -> Sequence[Pattern]:
        return (self.op, *(self.args or ()))

    def free_inputs(self, expr: Expr) -> Sequence[Expr]:
        return expr.args if self.args is None and isinstance(expr, ast.Call) else ()

    def __repr__(self) -> str:
        args = "..." if self.args is None else ", ".join(map(str, self.args))
        return f"{self.op}({args})"


def _is_call(expr: Expr, name: str) -> bool:
    return isinstance(expr, ast.Call) and expr.op is ast.op(name)


def _with(call: ast.Call, name: str) -> bool:
    return any(_is_call(arg, name) for arg in call.args)


def _is_pattern(pattern: Any, name: str) -> TypeGuard[CallPattern]:
    return isinstance(pattern, CallPattern) and pattern.op_name == name and bool(pattern.args)


class FunctionPattern(DFPattern):
    """Match a function; `params` None stands for any parameters."""

    def __init__(self, params: Sequence[DFPattern] | None, body: DFPattern) -> None:
        self.params, self.body = _listed(params, "a function"), _checked(body, "a function")

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
        self.fields = _listed(fields, "a tuple")

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
        self.tuple = _checked(tuple_value, "a field of a tuple")
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
        self.cond, self.true_branch = _checked(cond, "an if"), _checked(true_branch, "an if")
        self.false_branch = _checked(false_branch, "an if")

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
        self.var, self.value = _checked(var, "a let"), _checked(value, "a let")
        self.body = _checked(body, "a let")

    def attempt(self, matching: Matching, expr: Expr) -> Any:
        if not isinstance(expr, ast.Let):
            return False
        return matching.visit_all(self.parts(), (expr.var, expr.value, expr.body))

    def parts(self) -> Sequence[Pattern]:
        return (self.var, self.value, self.body)

    def __repr__(self) -> str:
        return f"LetPattern{self.var, self.value, self.body}"


# ---- choices and conditions


class AltPattern(DFPattern):
    """Match what the left pattern matches, else what the right one does."""

    def __init__(self, left: DFPattern, right: DFPattern) -> None:
        self.left, self.right = _checked(left, "an alternative"), _checked(right, "an alternative")

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
        self.pattern = _checked(pattern, "a condition")

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
        self.parent, self.path = _checked(parent, "dominates"), _checked(path, "dominates")
        self.child = _checked(child, "dominates")

    def attempt(self, matching: Matching, expr: Expr) -> Step:
        return match_dominator(matching, self.parent, self.path, self.child, expr)

    def parts(self) -> Sequence[Pattern]:
        return (self.parent, self.path, self.child)

    def interior(self, matched: dict[Pattern, list[Expr]]) -> list[Expr]:
        return [*matched.get(self.parent, ()), *matched.get(self.path, ())]

    def __repr__(self) -> str:
        return f"DominatorPattern{self.parent, self.path, self.child}"
