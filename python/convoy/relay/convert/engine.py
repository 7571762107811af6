"""The walk from a Relay module to a Relax one.

Functions are inlined where they are called, so that partitioned modules (functions with Compiler
and Composite attributes) are whole again. The branches of an `if` become functions of their
own: TVM's memory planner gives tensors of one branch storage that only the other one allocates.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tvm
from tvm import relax
from tvm.ir import GenericConst

from convoy.errors import (
    ConvoyError,
    RelayTypeError,
    UnsupportedDtype,
    UnsupportedOp,
)
from convoy.relay import ast
from convoy.relay import types as ty
from convoy.relay.ast import Expr, Function, GlobalVar, Var
from convoy.relay.convert.canonicalize import canonicalize, has_expansions
from convoy.relay.diagnostics import place
from convoy.relay.infer import infer_module
from convoy.relay.module import IRModule, as_module
from convoy.relay.ops import OPERATORS
from convoy.relay.ops.relax_call import OpCall, RelaxExpr, constant
from convoy.relay.params import to_array
from convoy.relay.source import nearest
from convoy.relay.trampoline import Step, run
from convoy.relay.visit import bind, post_order

_DTYPE = re.compile(r"(?:u?int(?:8|16|32|64)|float(?:16|32|64)|bfloat16|bool)")
# Relax compiles branches by recursion.
_MAX_IF_DEPTH = 32
_MAX_INLINED = 10_000


def supported_ops() -> list[str]:
    """The operators that can be converted."""
    return sorted(name for name, operator in OPERATORS.items() if operator.is_supported)


def to_relax(
    mod: IRModule | Function, params: Mapping[str, Any] | None = None, func_name: str = "main"
) -> tvm.IRModule:
    """A Relax module of one function, `main`.

    Its parameters are those of the Relay function, in order and by name, less the ones in
    `params`, which become constants.

    Arguments:
        mod: a module or a function; types are inferred here.
        params: numpy arrays or TVM tensors by name; other names are passed over, as in Relay.
        func_name: the function to convert.

    Raises:
        UnsupportedOp: an operator without a converter; the message says where it stands.
        RelayTypeError: shapes, dtypes or parameters that do not fit.
        DynamicShape: an operator that needs static shapes.
    """
    mod = as_module(mod)
    infer_module(mod)
    if has_expansions(mod):  # scales and shapes among the parameters must be known for it
        bound = _bound(mod[func_name], params or {})
        mod = mod.shallow_copy()
        mod[func_name] = bind(mod[func_name], {var: ast.Constant(v) for var, v in bound.items()})  # type: ignore[assignment]
        mod = canonicalize(infer_module(mod))
    function = mod[func_name]
    return _Conversion(mod).module(function, _bound(function, params or {}))


def _bound(function: Function, params: Mapping[str, Any]) -> dict[Var, np.ndarray]:
    """The parameters of the function that get values."""
    found: dict[Var, np.ndarray] = {}
    for var in function.params:
        if var.name_hint not in params:
            continue
        if any(v.name_hint == var.name_hint for v in found):
            raise RelayTypeError(f"params['{var.name_hint}']", "one parameter of that name")
        array = to_array(params[var.name_hint], f"params['{var.name_hint}']")
        wanted = var.checked_type
        got = ty.TensorType(array.shape, ast.dtype_name(array.dtype))
        if isinstance(wanted, ty.TensorType) and not _fits(got, wanted):
            raise RelayTypeError(f"params['{var.name_hint}'] of type {got}", str(wanted))
        found[var] = array
    return found


def _fits(got: ty.TensorType, wanted: ty.TensorType) -> bool:
    if got.dtype != wanted.dtype or len(got.shape) != len(wanted.shape):
        return False
    return all(
        g == w or not isinstance(w, int) for g, w in zip(got.shape, wanted.shape, strict=False)
    )


class _Conversion:
    """One conversion. A scope is a builder and the Relax values of Relay nodes in it."""

    def __init__(self, mod: IRModule) -> None:
        self.mod = mod
        self.if_depth = 0
        self.inlined = 0

    def module(self, function: Function, bound: Mapping[Var, np.ndarray]) -> tvm.IRModule:
        builder = relax.BlockBuilder()
        scope = _Scope(builder, None)
        names = _unique([v.name_hint for v in function.params if v not in bound])
        params: list[RelaxExpr] = []
        for var in function.params:
            if var in bound:
                scope.values[var] = constant(bound[var])
            else:
                scope.values[var] = _parameter(names.pop(0), var.checked_type, params)
        self._emit_function(builder, "main", params, function.body, scope)
        return builder.get()

    def _emit_function(
        self,
        builder: relax.BlockBuilder,
        name: str,
        params: list[RelaxExpr],
        body: Expr,
        scope: _Scope,
    ) -> None:
        with builder.function(name, params):
            try:
                if self._has_if(body):  # a dataflow block cannot hold an `if`
                    result = builder.emit(self._value(body, scope))
                else:
                    with builder.dataflow():
                        result = builder.emit_output(self._value(body, scope))
                builder.emit_func_output(result)
            except BaseException:
                builder._end_block()  # a builder that dies with an open block warns
                raise

    def _value(self, body: Expr, scope: _Scope) -> RelaxExpr:
        value = run(self.convert(body, scope))
        if isinstance(value, _Callable):
            raise UnsupportedOp("a function as a result", "tensors and tuples")
        return value

    def _has_if(self, expr: Expr) -> bool:
        todo, seen = [expr], set()
        while todo:
            for node in post_order(todo.pop()):
                if isinstance(node, ast.If):
                    return True
                if isinstance(node, GlobalVar) and node.name_hint not in seen:
                    seen.add(node.name_hint)
                    todo.append(self.mod[node.name_hint])
        return False

    # ---- expressions

    def convert(self, root: Expr, scope: _Scope) -> Step:
        """The Relax value of an expression. Nested Relay code never nests Python calls."""
        stack: list[Expr] = [root]
        while stack:
            node = stack[-1]
            if scope.find(node) is not None:
                stack.pop()
                continue
            waiting = [n for n in self._first(node) if scope.find(n) is None]
            if waiting:
                stack.extend(reversed(waiting))
                continue
            if isinstance(node, ast.Let) and scope.find(node.body) is None:
                scope.values[node.var] = scope.need(node.value)
                stack.append(node.body)
                continue
            stack.pop()
            try:
                value = self._node(node, scope)
                scope.values[node] = (yield value) if hasattr(value, "send") else value
            except ConvoyError as error:
                raise place(error, node.span) from None
        return scope.need(root)

    def _first(self, node: Expr) -> Sequence[Expr]:
        """What must be converted before a node."""
        if isinstance(node, ast.Call):
            if isinstance(node.op, ast.Op):
                return node.args
            return (*node.args, node.op)
        if isinstance(node, ast.Tuple):
            return node.fields
        if isinstance(node, ast.TupleGetItem):
            return (node.tuple_value,)
        if isinstance(node, ast.Let):
            return (node.value,)
        if isinstance(node, ast.If):
            return (node.cond,)
        return ()

    def _node(self, node: Expr, scope: _Scope) -> Any:
        if isinstance(node, ast.Call):
            if isinstance(node.op, ast.Op):
                return self._op_call(node, node.op.name, scope)
            return self._inline(node, scope)
        if isinstance(node, ast.Constant):
            _check_dtype(node.tensor_type)
            return constant(node.value)
        if isinstance(node, ast.Tuple):
            fields = [scope.need(f) for f in node.fields]
            if any(isinstance(f, _Callable) for f in fields):
                raise UnsupportedOp("a function in a tuple", "tensors and tuples")
            return relax.Tuple(fields)
        if isinstance(node, ast.TupleGetItem):
            return self._field(scope.need(node.tuple_value), node.index, scope)
        if isinstance(node, ast.Let):
            return scope.need(node.body)
        if isinstance(node, ast.If):
            return self._if(node, scope)
        if isinstance(node, (Function, GlobalVar)):
            return _Callable(node, scope if isinstance(node, Function) else None)
        if isinstance(node, ast.Op):
            raise UnsupportedOp(f"the operator {node.name} as a value", "a call of it")
        assert isinstance(node, Var)
        raise RelayTypeError(f"%{node.name_hint}, which is not defined here")

    def _op_call(self, node: ast.Call, name: str, scope: _Scope) -> RelaxExpr:
        operator = OPERATORS.get(name)
        if operator is None or operator.converter is None:
            raise UnsupportedOp(
                f"{name} cannot be converted to Relax", remedy=nearest(name, supported_ops())
            )
        _check_dtype(node.checked_type)
        args = [scope.need(a) for a in node.args]
        try:
            return scope.bind(operator.converter(OpCall(node, args, scope.builder)))
        except ConvoyError:
            raise
        except Exception as error:  # what TVM refuses, it says in many classes
            words = (str(error).strip() or type(error).__name__).splitlines()[0]
            raise UnsupportedOp(f"{name}, which TVM refuses here: {words}") from error

    def _field(self, value: RelaxExpr, index: int, scope: _Scope) -> RelaxExpr:
        if isinstance(value, relax.Tuple):
            return value.fields[index]
        return scope.bind(relax.TupleGetItem(value, index))

    def _inline(self, node: ast.Call, scope: _Scope) -> Step:
        """The callee's body with the arguments for its parameters."""
        callee = scope.need(node.op)
        if not isinstance(callee, _Callable):
            raise UnsupportedOp(
                "a call of a function that is chosen at run time", "a known function"
            )
        function = callee.node
        if isinstance(function, GlobalVar):
            function = self.mod[function.name_hint]
        assert isinstance(function, Function)
        if function.type_params:
            raise UnsupportedOp("a call of a polymorphic function", "types without parameters")
        self.inlined += 1
        if function in scope.inlining or self.inlined > _MAX_INLINED:
            raise UnsupportedOp("a recursive function", "functions that can be inlined")
        inner = _Scope(scope.builder, callee.scope)
        inner.inlining = scope.inlining | {function}
        for param, arg in zip(function.params, node.args, strict=False):
            inner.values[param] = scope.need(arg)
        return self.convert(function.body, inner)

    def _if(self, node: ast.If, scope: _Scope) -> RelaxExpr:
        self.if_depth += 1
        if self.if_depth > _MAX_IF_DEPTH:
            raise UnsupportedOp(f"ifs nested over {_MAX_IF_DEPTH} deep")
        branches = [self._branch(b, scope) for b in (node.true_branch, node.false_branch)]
        self.if_depth -= 1
        return scope.bind(relax.If(scope.need(node.cond), *branches))

    def _branch(self, body: Expr, scope: _Scope) -> RelaxExpr:
        """A call of a private function with a branch as its body."""
        builder, inner = scope.builder, _BranchScope(scope)
        builder._begin_binding_block()
        try:
            value = builder.normalize(self._value(body, inner))
        finally:
            block = builder._end_block()
        blocks = [block] if len(block.bindings) else []
        function = relax.Function(inner.params, relax.SeqExpr(blocks, value), value.ty)
        return relax.Call(builder.add_func(function, "branch"), inner.taken)


class _Scope:
    """Relax values of Relay nodes; a nested scope sees those around it."""

    def __init__(self, builder: relax.BlockBuilder, outer: _Scope | None) -> None:
        self.builder, self.outer = builder, outer
        self.values: dict[Expr, Any] = {}
        self.inlining: frozenset[Function] = frozenset()

    def find(self, node: Expr) -> Any:
        if node in self.values:
            return self.values[node]
        return None if self.outer is None else self.outer.find(node)

    def need(self, node: Expr) -> Any:
        found = self.find(node)
        assert found is not None, "converted before"
        return found

    def bind(self, value: RelaxExpr) -> RelaxExpr:
        """A variable for a computed value; leaves stay as they are."""
        if isinstance(value, (relax.Var, GenericConst)):
            return value
        if isinstance(value, relax.Tuple):
            return relax.Tuple([self.bind(f) for f in value.fields])
        return self.builder.emit(value)


class _BranchScope(_Scope):
    """The scope of a branch: what it takes from around it becomes parameters.

    Attributes:
        taken: Relax values of the scope around it, and
        params: the parameters that stand for them.
    """

    def __init__(self, outer: _Scope) -> None:
        super().__init__(outer.builder, None)
        self.around = outer
        self.inlining = outer.inlining
        self.taken: list[RelaxExpr] = []
        self.params: list[RelaxExpr] = []

    def find(self, node: Expr) -> Any:
        if node not in self.values:
            value = self.around.find(node)
            if value is None:
                return None
            self.values[node] = self._take(value)
        return self.values[node]

    def _take(self, value: Any) -> Any:
        if isinstance(value, relax.Tuple):
            return relax.Tuple([self._take(f) for f in value.fields])
        if isinstance(value, _Callable) and value.scope is not None:
            return _Callable(value.node, _ClosureInBranch(self, value.scope))
        if not isinstance(value, relax.Var):
            return value  # a constant or a function of the module
        param = relax.Var(f"p{len(self.params)}", value.ty)
        self.taken.append(value)
        self.params.append(param)
        return param


class _ClosureInBranch(_Scope):
    """What a function closes over, as a branch sees it in which it is called."""

    def __init__(self, branch: _BranchScope, closed_over: _Scope) -> None:
        super().__init__(branch.builder, None)
        self.branch, self.closed_over = branch, closed_over

    def find(self, node: Expr) -> Any:
        if node not in self.values:
            value = self.closed_over.find(node)
            if value is None:
                return None
            self.values[node] = self.branch._take(value)
        return self.values[node]


class _Callable:
    """A function as a value, with the scope it stands in; only calls of it are converted."""

    def __init__(self, node: Function | GlobalVar, scope: _Scope | None) -> None:
        self.node, self.scope = node, scope


def _parameter(name: str, type_: ty.Type, params: list[RelaxExpr]) -> RelaxExpr:
    """A parameter of `main`, added to `params`; a tuple is one parameter for each field, in order,
    named `name_0`, `name_1`, as graph executors count inputs."""
    if isinstance(type_, ty.TupleType):
        fields = enumerate(type_.fields)
        return relax.Tuple([_parameter(f"{name}_{i}", field, params) for i, field in fields])
    value = relax.Var(name, relax_type(type_))
    params.append(value)
    return value


def relax_type(type_: ty.Type) -> Any:
    """A Relay type in Relax; each unknown dimension becomes a symbolic one."""
    if isinstance(type_, ty.TensorType):
        _check_dtype(type_)
        named: dict[str, Any] = {}
        dims = []
        for index, dim in enumerate(type_.shape):
            if isinstance(dim, ty.SymbolicDim):
                dims.append(named.setdefault(dim.name, tvm.tirx.Var(dim.name, "int64")))
            elif isinstance(dim, ty.Any):
                dims.append(tvm.tirx.Var(f"d{index}", "int64"))
            else:
                dims.append(dim)
        return relax.TensorType(dims, type_.dtype)
    if isinstance(type_, ty.TupleType):
        return relax.TupleType([relax_type(f) for f in type_.fields])
    raise UnsupportedOp(f"a value of type {type_}", "tensors and tuples")


def _check_dtype(type_: ty.Type) -> None:
    if isinstance(type_, ty.TupleType):
        for field in type_.fields:
            _check_dtype(field)
    elif isinstance(type_, ty.TensorType) and not _DTYPE.fullmatch(type_.dtype):
        raise UnsupportedDtype(
            f"dtype '{type_.dtype}'",
            "float16/32/64, bfloat16, int8 to int64, uint8 to uint64, bool",
        )


def _unique(names: Sequence[str]) -> list[str]:
    """Names with numbers behind those that occur again."""
    seen: set[str] = set()
    out = []
    for name in names:
        unique, n = name, 0
        while unique in seen:
            n += 1
            unique = f"{name}{n}"
        seen.add(unique)
        out.append(unique)
    return out
