"""The evaluator behind PartialEvaluate.

A value is known, as in `evaluate.Machine` (a Constant, a tuple, data, a closure, a reference), or
it is an expression of what is left: a variable of the block of lets that is being written. Effects
are written in the order in which they happen.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from convoy.errors import ConvoyError
from convoy.relay import adt, ast
from convoy.relay.ast import Call, Constant, Expr, Function, Var
from convoy.relay.evaluate.machine import Machine
from convoy.relay.evaluate.values import Closure, Frame
from convoy.relay.module import IRModule
from convoy.relay.trampoline import Step, run
from convoy.relay.transform.constant_values import values_of
from convoy.relay.transform.fold_constant import can_fold
from convoy.relay.transform.partial_evaluate.fuel import Fuel
from convoy.relay.transform.rewriting import is_primitive
from convoy.relay.types import FuncType, Type, TypeVar, type_parts

_Block = list[tuple[Var, Expr]]


class PartialEvaluator(Machine):
    """Evaluate one function of a module to a function that does the rest.

    Attributes:
        store: The values of references that are known at this point.
    """

    def __init__(self, mod: IRModule) -> None:
        super().__init__(mod)
        self.store: dict[adt.RefValue, Any] = {}
        self._fuel = Fuel()
        self._blocks: list[_Block] = []
        self._type_params: set[int] = set()
        self._ref_vars: dict[adt.RefValue, Expr] = {}
        self._functions: dict[Closure, tuple[Var, _Block]] = {}
        # Expressions of known tuples and data, which are written once; the values are kept alive.
        self._written: dict[int, tuple[Any, Expr]] = {}

    def rest(self, function: Function) -> Function:
        """Return what is left of a function of the module."""
        self._type_params = set(map(id, function.type_params))
        return run(self._rest(function, Frame(), function.params))

    def _rest(self, function: Function, outer: Frame, params: Sequence[Var]) -> Step:
        """Write a function whose arguments are not known, which may be called at any time."""
        frame = Frame(outer)
        frame.values.update(zip(function.params, params, strict=True))
        store, self.store = self.store, {}
        with self._fuel.entered(function, None):
            body = yield self._block(function.body, frame)
        self.store = store
        ret = self._closed(function.ret_type, function)
        return Function(params, body, ret, function.type_params, function.attrs)

    def _closed(self, found: Type | None, function: Function | None = None) -> Type | None:
        """Return a type without the parameters of functions that were inlined, else None."""
        # By identity: every function may have a type parameter A.
        known = self._type_params | set(map(id, function.type_params if function else ()))
        stack = [] if found is None else [found]
        while stack:
            part = stack.pop()
            if isinstance(part, FuncType):
                known |= set(map(id, part.type_params))
            if isinstance(part, TypeVar) and id(part) not in known:
                return None
            stack.extend(type_parts(part))
        return found

    # ---- what is left

    def _emit(self, value: Expr, name: str = "x") -> Var:
        var = Var(name)
        self._blocks[-1].append((var, value))
        return var

    def _block(self, body: Expr, frame: Frame) -> Step:
        """Evaluate code that may not run; return it as lets around its result."""
        block: _Block = []
        self._blocks.append(block)
        result = yield self.residual((yield self.visit(body, frame)))
        self._blocks.pop()
        if block and block[-1][0] is result:
            result = block.pop()[1]
        for var, value in reversed(block):
            result = ast.Let(var, value, result)
        return result

    def residual(self, value: Any) -> Step:
        """Return the expression of a value."""
        if isinstance(value, Expr):
            return value
        if isinstance(value, adt.RefValue):
            return self._ref_vars[value]
        if isinstance(value, Closure):
            return (yield self._closure(value))
        known = self._written.get(id(value))
        if known is not None:
            return known[1]
        parts = []
        for field in value:
            parts.append((yield self.residual(field)))
        written: Expr = ast.Tuple(parts)
        if isinstance(value, adt.ConstructorValue):
            assert value.constructor is not None
            written = Call(value.constructor, parts)
        self._written[id(value)] = (value, written)
        return written

    def _closure(self, closure: Closure) -> Step:
        """Write a function where it is needed as a value; return its name."""
        if closure.name.startswith("@"):
            return self.mod.get_global_var(closure.name[1:])
        if closure in self._functions:
            var, block = self._functions[closure]
            if any(block is open_ for open_ in self._blocks):
                return var
        var = Var(closure.name or "f")
        self._functions[closure] = (var, self._blocks[-1])
        function = closure.function
        params = [
            Var(p.name_hint, self._closed(p.type_annotation, function)) for p in function.params
        ]
        rest = yield self._rest(function, closure.frame, params)
        self._blocks[-1].append((var, rest))
        return var

    # ---- tensors and tuples

    def constant(self, node: Constant) -> Any:
        return node

    def field(self, value: Any, index: int) -> Any:
        if isinstance(value, tuple):
            return value[index]
        return self._emit(ast.TupleGetItem(value, index))

    def _operator(self, call: Call, op: ast.Op, args: list[Any]) -> Step:
        exprs = []
        for arg in args:
            exprs.append((yield self.residual(arg)))
        new = Call(op, exprs, call.attrs if call.op is op else None, span=call.span)
        if can_fold(new) and all(map(_is_constant, exprs)):
            try:
                return _known(values_of([new])[0])
            except ConvoyError:
                pass  # nothing computes it before the network runs
        return self._emit(new)

    # ---- control flow

    def choose(self, node: ast.If, condition: Any, frame: Frame) -> Step:
        if isinstance(condition, Constant):
            branch = node.true_branch if condition.value.item() else node.false_branch
            return (yield self.visit(branch, frame))
        bodies = [(node.true_branch, Frame(frame)), (node.false_branch, Frame(frame))]
        true, false = yield self._branches(bodies)
        return self._emit(ast.If(condition, true, false))

    def _branches(self, bodies: Sequence[tuple[Expr, Frame]]) -> Step:
        """Write code of which one piece runs; keep what all leave in references."""
        before, found, after = self.store, [], []
        for body, frame in bodies:
            self.store = dict(before)
            found.append((yield self._block(body, frame)))
            after.append(self.store)
        first, *others = after
        self.store = {r: v for r, v in first.items() if all(o.get(r) is v for o in others)}
        return found

    def _match(self, node: adt.Match, frame: Frame) -> Step:
        value = yield self.visit(node.data, frame)
        for clause in node.clauses:
            bound: dict[Expr, Any] = {}
            fits = _fits(clause.lhs, value, bound)
            if fits:
                frame.values.update(bound)
                return (yield self.visit(clause.rhs, frame))
            if fits is None:
                return (yield self._unknown_match(node, value, frame))
        return (yield self._unknown_match(node, value, frame))

    def _unknown_match(self, node: adt.Match, value: Any, frame: Frame) -> Step:
        data = yield self.residual(value)
        patterns, bodies = [], []
        for clause in node.clauses:
            inner = Frame(frame)
            patterns.append(self._fresh(clause.lhs, inner))
            bodies.append((clause.rhs, inner))
        found = yield self._branches(bodies)
        clauses = [adt.Clause(p, body) for p, body in zip(patterns, found, strict=True)]
        return self._emit(adt.Match(data, clauses, node.complete))

    def _fresh(self, pattern: adt.Pattern, frame: Frame) -> adt.Pattern:
        """Return a pattern with variables of its own, which stand for those of the given one."""
        if isinstance(pattern, adt.PatternVar):
            old = pattern.var
            frame.values[old] = var = Var(old.name_hint, self._closed(old.type_annotation))
            return adt.PatternVar(var)
        if isinstance(pattern, adt.PatternConstructor):
            parts = [self._fresh(p, frame) for p in pattern.patterns]
            return adt.PatternConstructor(pattern.constructor, parts)
        if isinstance(pattern, adt.PatternTuple):
            return adt.PatternTuple([self._fresh(p, frame) for p in pattern.patterns])
        return pattern

    # ---- calls

    def apply(self, callee: Any, args: list[Any], node: Call) -> Step:
        if isinstance(callee, ast.Op):
            return (yield self._operator(node, callee, args))
        if isinstance(callee, Closure) and not is_primitive(callee.function):
            sizes = self._fuel.measure(callee, args)
            if sizes is not None:
                with self._fuel.entered(callee.function, sizes):
                    return (yield super().apply(callee, args, node))
        elif isinstance(callee, adt.Constructor):
            return (yield super().apply(callee, args, node))
        return (yield self._unknown_call(callee, args, node))

    def _unknown_call(self, callee: Any, args: list[Any], node: Call) -> Step:
        """Write a call, which may set any reference."""
        function = yield self.residual(callee)
        exprs = []
        for arg in args:
            exprs.append((yield self.residual(arg)))
        self.store = {}
        return self._emit(Call(function, exprs, node.attrs, span=node.span))

    # ---- references

    def _create(self, node: adt.RefCreate, frame: Frame) -> Step:
        value = yield self.visit(node.value, frame)
        ref = adt.RefValue(None)
        self._ref_vars[ref] = self._emit(adt.RefCreate((yield self.residual(value))), "ref")
        self.store[ref] = value
        return ref

    def _read(self, node: adt.RefRead, frame: Frame) -> Step:
        ref = yield self.visit(node.ref, frame)
        if ref in self.store:
            return self.store[ref]
        return self._emit(adt.RefRead((yield self.residual(ref))))

    def _write(self, node: adt.RefWrite, frame: Frame) -> Step:
        ref = yield self.visit(node.ref, frame)
        value = yield self.visit(node.value, frame)
        self._emit(adt.RefWrite((yield self.residual(ref)), (yield self.residual(value))))
        if not isinstance(ref, adt.RefValue):
            self.store = {}  # another name of any of them
            return ()
        self.store[ref] = value
        return ()


def _fits(pattern: adt.Pattern, value: Any, bound: dict[Expr, Any]) -> bool | None:
    """Check whether a value fits a pattern, None if that is not known; fill in its variables."""
    found: bool | None = True
    stack = [(pattern, value)]
    while stack:
        part, inner = stack.pop()
        if isinstance(part, adt.PatternVar):
            bound[part.var] = inner
        elif isinstance(part, adt.PatternConstructor):
            if not isinstance(inner, adt.ConstructorValue):
                found = None
            elif inner.tag != part.constructor.tag:
                return False
            else:
                stack.extend(zip(part.patterns, inner.fields, strict=False))
        elif isinstance(part, adt.PatternTuple):
            if isinstance(inner, tuple):
                stack.extend(zip(part.patterns, inner, strict=True))
            else:
                found = None
    return found


def _is_constant(expr: Expr) -> bool:
    if isinstance(expr, ast.Tuple):
        return all(map(_is_constant, expr.fields))
    return isinstance(expr, Constant)


def _known(value: Any) -> Any:
    return Constant(value) if isinstance(value, np.ndarray) else tuple(map(_known, value))
