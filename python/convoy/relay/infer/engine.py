"""The walk of type inference over a module.

Types flow from arguments to results. A variable without a type gets it from the first operator
that determines it (a convolution knows its weight's shape); calls that need it earlier wait.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from convoy.errors import ConvoyError, RelayTypeError, UnsupportedOp
from convoy.relay import ast
from convoy.relay.ast import Call, Expr, Function, GlobalVar, Var
from convoy.relay.diagnostics import error_at, place
from convoy.relay.infer.polymorphic import instantiate
from convoy.relay.infer.unifying import Unifying, declared_type, is_special
from convoy.relay.module import IRModule
from convoy.relay.ops import OPERATORS
from convoy.relay.ops.type_inputs import Inputs, Undetermined
from convoy.relay.shapes import compatible
from convoy.relay.types import (
    FuncType,
    IncompleteType,
    TensorType,
    TupleType,
    Type,
)
from convoy.relay.visit import bound_in, post_order


def infer_module(mod: IRModule) -> IRModule:
    """Infer the types of all functions, and write `checked_type_` of every expression.

    Returns:
        The same module.

    Raises:
        RelayTypeError: Shapes or dtypes that do not fit, or types that nothing determines.
        UnsupportedOp: An operator without a type rule.
    """
    found: dict[str, FuncType] = {}
    for name in _callees_first(mod):
        function = mod[name]
        _Inference(mod, found, name).function(function)
        found[name] = function.checked_type_
        _write(mod.get_global_var(name), found[name])
        if function.ret_type is None or _incomplete(function.ret_type):
            object.__setattr__(function, "ret_type", found[name].ret_type)
    return mod


def infer_expr(expr: Expr, mod: IRModule | None = None) -> Expr:
    """Infer the types of one expression; its free variables need annotations."""
    inference = _Inference(mod or IRModule(), {}, "")
    if mod is not None:
        if any(mod[name].checked_type_ is None for name in mod):
            infer_module(mod)
        inference.globals = {n: mod[n].checked_type for n in mod}
    if isinstance(expr, Function):
        inference.function(expr)
    else:
        inference.solve(expr)
    return expr


def _callees_first(mod: IRModule) -> list[str]:
    """Order functions so that callees come before callers, where calls are not circular."""
    order: dict[str, None] = {}
    entered: set[str] = set()
    stack = [(name, False) for name in reversed(list(mod))]
    while stack:
        name, done = stack.pop()
        if done:
            order[name] = None
        elif name not in entered and name in mod:
            entered.add(name)
            stack.append((name, True))
            calls = [n.name_hint for n in post_order(mod[name]) if isinstance(n, GlobalVar)]
            stack.extend((callee, False) for callee in reversed(calls))
    return list(order)


@dataclass(frozen=True)
class _Step:
    """One step of the walk.

    Attributes:
        kind: Infer the type of `node`, bind a let's variable to its value, or declare the variable
            of a function that may call itself.
        node: The expression.
    """

    kind: Literal["type", "bind", "declare"]
    node: Expr


def _steps(expr: Expr) -> Iterator[_Step]:
    """Yield the steps in evaluation order; a let's variable is bound before its body."""
    seen: set[int] = set()
    stack: list[tuple[Expr, int]] = [(expr, 0)]
    while stack:
        node, stage = stack.pop()
        if stage == 0:
            if id(node) in seen:
                continue
            seen.add(id(node))
        if isinstance(node, ast.Let) and stage < 2:
            stack.append((node, stage + 1))
            if stage == 0:
                if isinstance(node.value, Function):
                    yield _Step("declare", node)
                stack.append((node.value, 0))
            else:
                yield _Step("bind", node)
                stack.append((node.body, 0))
        elif stage == 0 and not isinstance(node, ast.Let):
            stack.append((node, 1))
            stack.extend((child, 0) for child in reversed(_operands(node)))
        else:
            yield _Step("type", node)


def _operands(node: Expr) -> Sequence[Expr]:
    if isinstance(node, Call):
        return (node.op, *node.args)
    if isinstance(node, ast.Tuple):
        return node.fields
    if isinstance(node, ast.TupleGetItem):
        return (node.tuple_value,)
    if isinstance(node, ast.If):
        return (node.cond, node.true_branch, node.false_branch)
    if isinstance(node, Function):
        return (node.body,)
    return ()


def _write(node: Expr, found: Type) -> None:
    object.__setattr__(node, "checked_type_", found)


class _Inference:
    """Inference of one module function or of a lone expression."""

    def __init__(self, mod: IRModule, globals_: dict[str, FuncType], name: str) -> None:
        self.mod, self.globals, self.name = mod, globals_, name
        self.types: dict[int, Type] = {}
        # Functions that lets bind, by their variable.
        self.local: dict[Var, Function] = {}

    def function(self, function: Function) -> None:
        """Infer the types of a function."""
        self.solve(function)

    def solve(self, expr: Expr) -> None:
        """Run the steps of an expression until all types are known."""
        if is_special(expr) or self._calls_itself(expr):
            self.types = Unifying(self.mod, self.globals).solve(expr, self.name)
            for node in post_order(expr):
                for found in (node, *bound_in(node)):
                    if id(found) in self.types:
                        _write(found, self.types[id(found)])
            return
        pending = list(_steps(expr))
        while pending:
            waiting, known = [], len(self.types)
            for step in pending:
                try:
                    self._do(step)
                except Undetermined:
                    waiting.append(step)
            stuck = len(waiting) == len(pending) and len(self.types) == known
            if stuck and not self._recall(waiting):
                raise self._stuck(waiting)
            pending = waiting
        for node in post_order(expr):
            if id(node) in self.types:
                _write(node, self.types[id(node)])

    def _recall(self, waiting: list[_Step]) -> bool:
        """Give variables that nothing determines the types of an earlier inference.

        A pass may have taken away the operator that determined them.
        """
        found = False
        for step in waiting:
            parts = step.node.params if isinstance(step.node, Function) else _operands(step.node)
            for node in parts:
                if isinstance(node, Var) and node.checked_type_ and self._get(node) is None:
                    self.types[id(node)] = node.checked_type_
                    found = True
        return found

    def _calls_itself(self, expr: Expr) -> bool:
        """Check for a function that calls itself and whose type is not written."""
        if not isinstance(expr, Function) or expr.func_type_annotation is not None:
            return False
        calls = (n for n in post_order(expr) if isinstance(n, GlobalVar))
        return any(call.name_hint == self.name for call in calls)

    def _stuck(self, waiting: list[_Step]) -> RelayTypeError:
        """Make the error for types that nothing determines, with the variables that lack one."""
        step = waiting[0]
        unknown = [
            f"%{n.name_hint}"
            for n in _operands(step.node)
            if isinstance(n, Var) and self._get(n) is None
        ]
        what = f"the type of {', '.join(unknown)}" if unknown else "a type"
        return error_at(
            RelayTypeError,
            f"{what} in @{self.name or 'the expression'} cannot be inferred",
            step.node.span,
            remedy="Write it: %x: Tensor[(1, 3), float32]",
        )

    def _get(self, node: Expr) -> Type | None:
        found = self.types.get(id(node))
        if found is None and isinstance(node, Var):
            declared = node.type_annotation
            if declared is not None and not _incomplete(declared):
                found = self.types[id(node)] = declared
        return found

    def _need(self, node: Expr) -> Type:
        found = self._get(node)
        if found is None:
            raise Undetermined
        return found

    def _do(self, step: _Step) -> None:
        node = step.node
        try:
            if isinstance(node, ast.Let) and step.kind == "bind":
                self._bind(node)
            elif isinstance(node, ast.Let) and step.kind == "declare":
                self._declare(node)
            elif not isinstance(node, (ast.Op, Var)):
                self.types[id(node)] = self._type_of(node)
        except ConvoyError as error:
            raise place(error, node.span) from None

    def _bind(self, let: ast.Let) -> None:
        value = self._need(let.value)
        declared = self._get(let.var)
        if declared is not None and not compatible(value, declared):
            raise RelayTypeError(f"%{let.var.name_hint} gets {value}", str(declared))
        self.types.setdefault(id(let.var), value)

    def _declare(self, let: ast.Let) -> None:
        assert isinstance(let.value, Function)
        self.local[let.var] = let.value
        declared = let.value.func_type_annotation
        if declared is not None:
            self.types.setdefault(id(let.var), declared)

    def _type_of(self, node: Expr) -> Type:
        if isinstance(node, Call):
            return self._call(node)
        if isinstance(node, ast.Constant):
            return node.tensor_type
        if isinstance(node, ast.Tuple):
            return TupleType([self._need(f) for f in node.fields])
        if isinstance(node, ast.TupleGetItem):
            return self._projection(node)
        if isinstance(node, ast.Let):
            return self._need(node.body)
        if isinstance(node, ast.If):
            return self._if(node)
        if isinstance(node, Function):
            return self._function(node)
        assert isinstance(node, GlobalVar)
        return self._global(node)

    def _projection(self, node: ast.TupleGetItem) -> Type:
        inner = self._need(node.tuple_value)
        if not isinstance(inner, TupleType):
            raise RelayTypeError(f"field {node.index} of {inner}", "a tuple")
        if not 0 <= node.index < len(inner.fields):
            raise RelayTypeError(f"field {node.index} of a tuple of {len(inner.fields)}")
        return inner.fields[node.index]

    def _if(self, node: ast.If) -> Type:
        if isinstance(node.cond, Var) and self._get(node.cond) is None:
            self.types[id(node.cond)] = TensorType((), "bool")
        cond = self._need(node.cond)
        if cond not in (TensorType((), "bool"), TensorType((), "uint1")):
            raise RelayTypeError(f"a condition of type {cond}", "a scalar bool")
        true, false = self._need(node.true_branch), self._need(node.false_branch)
        if not compatible(true, false):
            raise RelayTypeError(f"branches of types {true} and {false}", "one type")
        return true

    def _function(self, node: Function) -> FuncType:
        body = self._need(node.body)
        declared = node.ret_type
        if declared is not None and not _incomplete(declared):
            if not compatible(body, declared):
                raise RelayTypeError(f"a body of type {body}", f"the declared {declared}")
            body = _narrower(body, declared)
        params = []
        for param in node.params:
            params.append(self._need(param))
        return FuncType(params, body, node.type_params)  # type: ignore[arg-type]

    def _global(self, node: GlobalVar) -> FuncType:
        name = node.name_hint
        if name in self.globals:
            return self.globals[name]
        declared = declared_type(self.mod, node)
        if declared is None:
            raise RelayTypeError(
                f"@{name} calls itself and its type is not written",
                remedy="Write the types of its parameters and of its result",
            )
        return declared

    def _call(self, node: Call) -> Type:
        if not isinstance(node.op, ast.Op):
            self._pass_types(node)
            callee = self._callee(node.op)
            for arg, wanted in zip(node.args, callee.arg_types, strict=False):
                if isinstance(arg, Var) and self._get(arg) is None and not callee.type_params:
                    self.types[id(arg)] = wanted
            return instantiate(callee, [self._need(a) for a in node.args])
        operator = OPERATORS.get(node.op.name)
        if operator is None or operator.type_rule is None:
            raise UnsupportedOp(
                f"{node.op.name} is a Relay operator that convoy does not support",
                remedy="The guide lists the operators that are supported",
            )
        inputs = Inputs(node, [self._get(a) for a in node.args])
        result = operator.type_rule(inputs)
        for index, wanted in inputs.assigned.items():
            self.types[id(node.args[index])] = wanted
        types = [self._get(a) for a in node.args]
        if None not in types:
            object.__setattr__(node, "type_args", tuple(types))
        return result

    def _pass_types(self, call: Call) -> None:
        """Assign the types of arguments to parameters of a local function that have none."""
        function = self.local.get(call.op) if isinstance(call.op, Var) else call.op
        if not isinstance(function, Function):
            return
        for param, arg in zip(function.params, call.args, strict=False):
            found = self._get(arg)
            if found is not None and self._get(param) is None:
                self.types[id(param)] = found

    def _callee(self, node: Expr) -> FuncType:
        found = self._get(node)
        if found is None and isinstance(node, (Var, Function)):
            raise Undetermined
        if not isinstance(found, FuncType):
            raise RelayTypeError(f"a call of a value of type {found}", "a function")
        return found


def _narrower(found: Type, declared: Type) -> Type:
    """Return the declared type, with the sizes that only the found one knows."""
    if isinstance(found, TensorType) and isinstance(declared, TensorType):
        pairs = zip(found.shape, declared.shape, strict=True)
        sizes = [a if isinstance(a, int) else b for a, b in pairs]
        return TensorType(sizes, declared.dtype)
    if isinstance(found, TupleType) and isinstance(declared, TupleType):
        return TupleType(list(map(_narrower, found.fields, declared.fields)))
    return declared


def _incomplete(declared: Type) -> bool:
    if isinstance(declared, TupleType):
        return any(map(_incomplete, declared.fields))
    return isinstance(declared, IncompleteType)
