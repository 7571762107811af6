"""Evaluation with expressions for tensors: a program becomes one without functions and references.

Calls are inlined, matches of known data and recursion over it are unrolled; what is left is
operators, tuples and `if`.
"""

from __future__ import annotations

from typing import Any

from convoy.errors import UnsupportedOp
from convoy.relay import adt, ast
from convoy.relay.ast import Expr, Function, Var
from convoy.relay.evaluate.machine import Machine
from convoy.relay.evaluate.values import Closure, Frame
from convoy.relay.module import IRModule
from convoy.relay.trampoline import Step

# An `if` that is nested deeper comes from a recursion that the data decides.
_MAX_IF_DEPTH = 32
_REMEDY = "Relay's gradient unrolls a program; let its recursion end by known data"


def straight_line(function: Function, mod: IRModule, params: list[Var]) -> Expr:
    """Return the body of a function as an expression of other parameters.

    Args:
        function: The function.
        mod: The module with the functions that it calls.
        params: Variables for its parameters.

    Raises:
        UnsupportedOp: Recursion that values of tensors end, data types that are not known, or a
            function as the result.
    """
    machine = Symbolic(mod)
    return as_expr(machine.call(Closure(function, Frame()), params))


def as_expr(value: Any) -> Expr:
    """Return the expression of a value.

    Raises:
        UnsupportedOp: A function, data or a reference.
    """
    if isinstance(value, tuple):
        return ast.Tuple([as_expr(field) for field in value])
    if not isinstance(value, Expr) or isinstance(value, (ast.Op, adt.Constructor)):
        kind = "function" if isinstance(value, (Closure, Expr)) else type(value).__name__
        raise UnsupportedOp(f"a {kind} as a result", "tensors and tuples of them")
    return value


class Symbolic(Machine):
    """Evaluate to expressions."""

    def __init__(self, mod: IRModule) -> None:
        super().__init__(mod)
        self._depth = 0
        # References that exist outside of the branch that is evaluated.
        self._branch_start: list[set[int]] = []
        self._created: list[adt.RefValue] = []

    def operator(self, call: ast.Call, op: ast.Op, args: list[Any]) -> Any:
        exprs = [as_expr(a) for a in args]
        if call.op is op and all(a is b for a, b in zip(exprs, call.args, strict=True)):
            return call
        return ast.Call(op, exprs, call.attrs, call.type_args, span=call.span)

    def constant(self, node: ast.Constant) -> Any:
        return node

    def field(self, value: Any, index: int) -> Any:
        return value[index] if isinstance(value, tuple) else ast.TupleGetItem(value, index)

    def fits(self, pattern: adt.Pattern, value: Any, bound: dict[Expr, Any]) -> bool:
        if isinstance(pattern, adt.PatternConstructor) and isinstance(value, Expr):
            raise UnsupportedOp("a match of data that is not known", "constructors", _REMEDY)
        return super().fits(pattern, value, bound)

    def choose(self, node: ast.If, condition: Any, frame: Frame) -> Step:
        if isinstance(condition, ast.Constant):
            branch = node.true_branch if condition.value.item() else node.false_branch
            return (yield self.visit(branch, frame))
        if self._depth >= _MAX_IF_DEPTH:
            raise UnsupportedOp(
                f"ifs nested over {_MAX_IF_DEPTH} deep, or a loop over computed values", "", _REMEDY
            )
        self._depth += 1
        branches = []
        for body in (node.true_branch, node.false_branch):
            self._branch_start.append({id(r) for r in self._created})
            branches.append((yield self.visit(body, Frame(frame))))
            self._branch_start.pop()
        self._depth -= 1
        return ast.If(as_expr(condition), as_expr(branches[0]), as_expr(branches[1]))

    def _create(self, node: adt.RefCreate, frame: Frame) -> Step:
        ref = adt.RefValue((yield self.visit(node.value, frame)))
        self._created.append(ref)
        return ref

    def write(self, ref: adt.RefValue, value: Any) -> tuple[()]:
        if self._branch_start and id(ref) in self._branch_start[-1]:
            raise UnsupportedOp("a reference that a branch of an if writes", "", _REMEDY)
        return super().write(ref, value)
