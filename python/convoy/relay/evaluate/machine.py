"""The evaluator of Relay: closures, data types, references; tensors are up to a subclass.

`symbolic.Symbolic` computes with expressions, `interpreter.Interpreter` with tensors. Nothing
recurses in Python, so that recursion in a program is limited by memory only.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from convoy.errors import RelayTypeError, UnmatchedValue
from convoy.relay import adt, ast
from convoy.relay.ast import Expr, Function, GlobalVar
from convoy.relay.evaluate.values import MISSING, Closure, Frame
from convoy.relay.module import IRModule
from convoy.relay.trampoline import Step, run


class Machine:
    """Evaluate expressions over a module.

    A value is a tensor of the subclass, a Python tuple, a Closure, an `adt.ConstructorValue`, an
    `adt.RefValue`, or an operator or constructor that may be called.

    Attributes:
        mod: The module.
    """

    def __init__(self, mod: IRModule) -> None:
        self.mod = mod
        self._globals: dict[str, Closure] = {}

    # ---- what tensors are

    def operator(self, call: ast.Call, op: ast.Op, args: list[Any]) -> Any:
        """Compute an operator; `call` has its attributes."""
        raise NotImplementedError

    def constant(self, node: ast.Constant) -> Any:
        """Return the value of a constant."""
        raise NotImplementedError

    def field(self, value: Any, index: int) -> Any:
        """Return a field of a tuple."""
        return value[index]

    def choose(self, node: ast.If, condition: Any, frame: Frame) -> Any:
        """Evaluate an `if`: a value, or a step of the trampoline."""
        raise NotImplementedError

    # ---- entry points

    def evaluate(self, expr: Expr, frame: Frame | None = None) -> Any:
        """Return the value of an expression."""
        return run(self.visit(expr, Frame() if frame is None else frame))

    def call(self, function: Any, args: Sequence[Any]) -> Any:
        """Call a function with values."""
        return run(self.apply(function, list(args), ast.Call(ast.Var("f"), ())))

    # ---- expressions

    def visit(self, node: Expr, frame: Frame) -> Step:
        """Evaluate a node, once in a frame."""
        first = node
        while True:
            found = frame.find(node)
            if found is not MISSING:
                break
            if not isinstance(node, ast.Let):
                found = self._compute(node, frame)
                if hasattr(found, "send"):
                    found = yield found
                frame.values[node] = found
                break
            if isinstance(node.value, Function):  # which may call itself
                closure = Closure(node.value, frame, node.var.name_hint)
                frame.values[node.var] = closure
            else:
                frame.values[node.var] = yield self.visit(node.value, frame)
            node = node.body
        frame.values[first] = found
        return found

    def _compute(self, node: Expr, frame: Frame) -> Any:
        if isinstance(node, ast.Call):
            return self._call(node, frame)
        if isinstance(node, ast.Constant):
            return self.constant(node)
        if isinstance(node, ast.Tuple):
            return self._tuple(node, frame)
        if isinstance(node, ast.TupleGetItem):
            return self._projection(node, frame)
        if isinstance(node, ast.If):
            return self._if(node, frame)
        if isinstance(node, Function):
            return Closure(node, frame)
        if isinstance(node, GlobalVar):
            return self.function(node.name_hint)
        if isinstance(node, (ast.Op, adt.Constructor)):
            return node
        if isinstance(node, adt.Match):
            return self._match(node, frame)
        if isinstance(node, adt.RefCreate):
            return self._create(node, frame)
        if isinstance(node, adt.RefRead):
            return self._read(node, frame)
        if isinstance(node, adt.RefWrite):
            return self._write(node, frame)
        assert isinstance(node, ast.Var)
        raise RelayTypeError(f"%{node.name_hint}, which is not defined here")

    def function(self, name: str) -> Closure:
        """Return a function of the module as a value."""
        if name not in self._globals:
            self._globals[name] = Closure(self.mod[name], Frame(), f"@{name}")
        return self._globals[name]

    def _values(self, nodes: Sequence[Expr], frame: Frame) -> Step:
        found = []
        for node in nodes:
            value = frame.find(node)
            found.append((yield self.visit(node, frame)) if value is MISSING else value)
        return found

    def _tuple(self, node: ast.Tuple, frame: Frame) -> Step:
        return tuple((yield self._values(node.fields, frame)))

    def _projection(self, node: ast.TupleGetItem, frame: Frame) -> Step:
        return self.field((yield self.visit(node.tuple_value, frame)), node.index)

    def _if(self, node: ast.If, frame: Frame) -> Step:
        found = self.choose(node, (yield self.visit(node.cond, frame)), frame)
        return (yield found) if hasattr(found, "send") else found

    # ---- calls

    def _call(self, node: ast.Call, frame: Frame) -> Step:
        callee: Any = node.op
        if not isinstance(callee, (ast.Op, adt.Constructor)):
            callee = yield self.visit(node.op, frame)
        args = yield self._values(node.args, frame)
        return (yield self.apply(callee, args, node))

    def apply(self, callee: Any, args: list[Any], node: ast.Call) -> Step:
        """Call a value."""
        if isinstance(callee, ast.Op):
            return self.operator(node, callee, args)
        if isinstance(callee, adt.Constructor):
            return adt.ConstructorValue(callee.tag, args, callee)
        if not isinstance(callee, Closure):
            raise RelayTypeError(f"a call of a {type(callee).__name__}", "a function")
        params = callee.function.params
        if len(params) != len(args):
            name = callee.name or "a function"
            raise RelayTypeError(f"{name} with {len(args)} arguments", str(len(params)))
        return (yield self.enter(callee, args))

    def enter(self, closure: Closure, args: list[Any]) -> Step:
        """Evaluate the body of a function."""
        inner = Frame(closure.frame)
        inner.values.update(zip(closure.function.params, args, strict=True))
        return (yield self.visit(closure.function.body, inner))

    # ---- data types

    def _match(self, node: adt.Match, frame: Frame) -> Step:
        value = yield self.visit(node.data, frame)
        for clause in node.clauses:
            bound: dict[Expr, Any] = {}
            if self.fits(clause.lhs, value, bound):
                frame.values.update(bound)
                return (yield self.visit(clause.rhs, frame))
        raise UnmatchedValue(f"{value!r}, for which a match has no clause")

    def fits(self, pattern: adt.Pattern, value: Any, bound: dict[Expr, Any]) -> bool:
        """Check whether a value fits a pattern; fill in the variables that it binds."""
        stack = [(pattern, value)]
        while stack:
            part, found = stack.pop()
            if isinstance(part, adt.PatternVar):
                bound[part.var] = found
            elif isinstance(part, adt.PatternConstructor):
                if not isinstance(found, adt.ConstructorValue):
                    got = f"a match of a {type(found).__name__}"
                    raise RelayTypeError(got, f"a {part.constructor.belong_to}")
                if found.tag != part.constructor.tag:
                    return False
                stack.extend(zip(part.patterns, found.fields, strict=False))
            elif isinstance(part, adt.PatternTuple):
                fields = [self.field(found, i) for i in range(len(part.patterns))]
                stack.extend(zip(part.patterns, fields, strict=True))
        return True

    # ---- references

    def _create(self, node: adt.RefCreate, frame: Frame) -> Step:
        return adt.RefValue((yield self.visit(node.value, frame)))

    def _read(self, node: adt.RefRead, frame: Frame) -> Step:
        return (yield self.visit(node.ref, frame)).value

    def _write(self, node: adt.RefWrite, frame: Frame) -> Step:
        ref = yield self.visit(node.ref, frame)
        value = yield self.visit(node.value, frame)
        return self.write(ref, value)

    def write(self, ref: adt.RefValue, value: Any) -> tuple[()]:
        """Set a reference."""
        ref.value = value
        return ()
