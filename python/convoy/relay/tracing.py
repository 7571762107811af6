"""Evaluation of Relay code to expressions whose sizes are all known.

Where inputs have sizes, or values, the code around them becomes straight: functions are inlined, an
`if` whose condition can be computed takes its branch, and shapes that are computed become
attributes. What remains is an expression of static types, which is compiled as any other network.

`Trace` does this without values (shapes that depend on no input: `relay.build`) and with them
(`relay.vm`, module `specialized`); the two differ in how values are computed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import numpy as np

from convoy.errors import DynamicShape, RelayTypeError, UnsupportedOp
from convoy.relay import ast
from convoy.relay.ast import Call, Constant, Expr, Function, GlobalVar, Var
from convoy.relay.attrs import Attrs
from convoy.relay.convert.order import in_order
from convoy.relay.convert.scope import Closure, Scope
from convoy.relay.folding import folded
from convoy.relay.module import IRModule
from convoy.relay.ops import OPERATORS
from convoy.relay.ops.type_inputs import Inputs
from convoy.relay.trampoline import Step, run
from convoy.relay.types import TensorType, TupleType, Type
from convoy.relay.visit import post_order

# Calls that one evaluation may nest or repeat: a recursion that does not end is stopped.
_MAX_CALLS = 100_000

Value = Any  # an Expr of a static tensor type, a tuple of Values, or a Closure


class Values(Protocol):
    """Computes values while a trace runs."""

    def compute(self, exprs: Sequence[Expr]) -> list[np.ndarray]:
        """Return the values of traced expressions.

        Raises:
            UnsupportedOp: They depend on inputs that have no values.
        """

    def leaf(self, array: np.ndarray) -> Expr:
        """Make an expression of a value."""


class Trace:
    """One evaluation of a module's function.

    Args:
        mod: The module, whose types are inferred.
        values: Computes what shapes and conditions depend on.
    """

    def __init__(self, mod: IRModule, values: Values) -> None:
        self.mod, self.values = mod, values
        self._calls = 0

    def function(self, function: Function, args: Sequence[Value]) -> Value:
        """Evaluate a function; the arguments are traced values.

        Raises:
            DynamicShape: An operator whose size nothing determines.
            UnsupportedOp: Code that cannot be evaluated.
            RelayTypeError: Sizes that do not fit.
        """
        scope = Scope(None, None)
        for param, arg in zip(function.params, args, strict=True):
            scope.values[param] = arg
        return run(self._evaluate(function.body, scope))

    def _evaluate(self, root: Expr, scope: Scope) -> Step:
        """Evaluate an expression, in steps of a trampoline."""
        return in_order(root, scope, self._node)

    def _node(self, node: Expr, scope: Scope) -> Any:
        if isinstance(node, Call):
            if isinstance(node.op, ast.Op):
                return self._op_call(node, node.op.name, [scope.need(a) for a in node.args])
            return self._inline(node, scope)
        if isinstance(node, Constant):
            return typed(node, node.tensor_type)
        if isinstance(node, ast.Tuple):
            return tuple(scope.need(f) for f in node.fields)
        if isinstance(node, ast.TupleGetItem):
            return scope.need(node.tuple_value)[node.index]
        if isinstance(node, ast.Let):
            return scope.need(node.body)
        if isinstance(node, ast.If):
            (cond,) = self.values.compute([scope.need(node.cond)])
            return self._evaluate(node.true_branch if cond.all() else node.false_branch, scope)
        if isinstance(node, (Function, GlobalVar)):
            return Closure(node, scope if isinstance(node, Function) else None)
        if isinstance(node, Var):
            raise RelayTypeError(f"%{node.name_hint}, which is not defined here")
        raise UnsupportedOp(f"{_words(node)} in code whose sizes depend on values")

    def _inline(self, node: Call, scope: Scope) -> Step:
        callee = scope.need(node.op)
        if not isinstance(callee, Closure):
            raise UnsupportedOp("a call of a value that is no function", "a function")
        function = callee.node
        if isinstance(function, GlobalVar):
            function = self.mod[function.name_hint]
        assert isinstance(function, Function)
        self._calls += 1
        if self._calls > _MAX_CALLS:
            raise UnsupportedOp(f"a recursion of over {_MAX_CALLS} calls", "one that ends")
        inner = Scope(None, callee.scope)
        for param, arg in zip(function.params, node.args, strict=True):
            inner.values[param] = scope.need(arg)
        return self._evaluate(function.body, inner)

    def _op_call(self, node: Call, name: str, args: Sequence[Value]) -> Value:
        operator = OPERATORS.get(name)
        if operator is None or operator.type_rule is None or not operator.is_supported:
            raise UnsupportedOp(f"{name} is a Relay operator that convoy does not support")
        args = [_expr(a) for a in args]
        shape = _shape_value(node, name, args)
        if shape is not None:
            return shape
        for position, array in zip(
            operator.shape_arguments,
            self.values.compute([args[p] for p in operator.shape_arguments]),
            strict=True,
        ):
            args[position] = typed(Constant(array), Constant(array).tensor_type)
        if operator.on_host is not None:
            results = operator.on_host(node, *self.values.compute(args))
            if isinstance(results, tuple):
                return tuple(map(self.values.leaf, results))
            return self.values.leaf(results)
        call = Call(node.op, args, node.attrs, node.type_args, span=node.span)
        if name.startswith("dyn."):
            assert operator.expansion is not None
            expanded = operator.expansion(call, args)
            assert isinstance(expanded, Call) and isinstance(expanded.op, ast.Op)
            return self._op_call(expanded, expanded.op.name, expanded.args)
        found = operator.type_rule(Inputs(call, [a.checked_type for a in args]))
        _check_static(found, name)
        value = folded(call, found)
        if value is not None:
            return typed(Constant(value), found)
        return _fields(typed(call, found))


def typed(node: Expr, found: Type) -> Any:
    """Set the type of a new node; return the node."""
    object.__setattr__(node, "checked_type_", found)
    return node


def _expr(value: Value) -> Expr:
    """Return a value as an expression."""
    if isinstance(value, tuple):
        fields = [_expr(v) for v in value]
        return typed(ast.Tuple(fields), TupleType([f.checked_type for f in fields]))
    if isinstance(value, Closure):
        raise UnsupportedOp("a function as an argument of an operator", "tensors and tuples")
    return value


def _fields(expr: Expr) -> Value:
    """Return an expression as a value: that of a tuple is split."""
    found = expr.checked_type
    if not isinstance(found, TupleType):
        return expr
    return tuple(
        _fields(typed(ast.TupleGetItem(expr, i), field)) for i, field in enumerate(found.fields)
    )


def leaves(value: Value) -> Iterator[Expr]:
    """Yield the tensors of a value, in order."""
    if isinstance(value, tuple):
        for field in value:
            yield from leaves(field)
    elif isinstance(value, Closure):
        raise UnsupportedOp("a function as a result", "tensors and tuples")
    else:
        yield value


def _shape_value(node: Call, name: str, args: Sequence[Expr]) -> Expr | None:
    """Return the constant that an operator makes of an argument's type alone."""
    if name not in ("shape_of", "vm.shape_of", "ndarray_size"):
        return None
    found = args[0].checked_type
    assert isinstance(found, TensorType)
    sizes = np.array(found.concrete_shape, "int64")
    attrs = node.attrs if node.attrs is not None else Attrs(None, {})
    value = sizes.prod() if name == "ndarray_size" else sizes
    constant = Constant(np.asarray(value).astype(attrs.get("dtype") or "int32"))
    return typed(constant, constant.tensor_type)


def _check_static(found: Type, name: str) -> None:
    if isinstance(found, TupleType):
        for field in found.fields:
            _check_static(field, name)
    elif isinstance(found, TensorType) and not found.is_static:
        raise DynamicShape(f"{name}, whose result is {found}", "sizes that its inputs determine")


def _words(node: Expr) -> str:
    return f"an operator {node.name}" if isinstance(node, ast.Op) else f"a {type(node).__name__}"


class Known:
    """The values of constants: what a trace without inputs can compute."""

    def __init__(self, evaluate: Callable[[Sequence[Expr]], list[np.ndarray]]) -> None:
        self._evaluate = evaluate

    def compute(self, exprs: Sequence[Expr]) -> list[np.ndarray]:
        """Return the values of expressions of constants."""
        missing = [e for e in exprs if not isinstance(e, Constant)]
        if any(isinstance(n, Var) for e in missing for n in post_order(e)):
            raise UnsupportedOp(
                "a shape that is computed from inputs", "constants", "relay.vm.compile takes it"
            )
        found = iter(self._evaluate(missing) if missing else [])
        return [e.value if isinstance(e, Constant) else next(found) for e in exprs]

    def leaf(self, array: np.ndarray) -> Expr:
        """Make a constant."""
        return typed(Constant(array), Constant(array).tensor_type)


def parameter(name: str, type_: Type, found: dict[Var, Type]) -> Value:
    """Make the traced value of a parameter: one variable for each tensor, added to `found`."""
    if isinstance(type_, TupleType):
        return tuple(parameter(f"{name}_{i}", f, found) for i, f in enumerate(type_.fields))
    if not isinstance(type_, TensorType):
        raise UnsupportedOp(f"an input of type {type_}", "tensors and tuples")
    var = typed(Var(name, type_), type_)
    found[var] = type_
    return var
