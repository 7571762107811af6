"""Conversion of a Relay module to a Relax one.

Functions are inlined where they are called, so that partitioned modules (functions with Compiler
and Composite attributes) are whole again. The branches of an `if` become functions of their own:
TVM's memory planner gives tensors of one branch storage that only the other one allocates.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from convoy.errors import ConvoyError, RelayTypeError, UnsupportedOp
from convoy.ir.names import IGNORES_NAN
from convoy.relay import ast
from convoy.relay.ast import Expr, Function, GlobalVar, Var
from convoy.relay.convert.canonicalize import canonicalize, has_expansions
from convoy.relay.convert.order import in_order
from convoy.relay.convert.scope import BranchScope, Closure, Scope
from convoy.relay.convert.signature import bound_params, check_dtype, make_parameter, unique
from convoy.relay.infer import infer_module
from convoy.relay.lazy import relax
from convoy.relay.module import IRModule, as_module
from convoy.relay.ops import OPERATORS
from convoy.relay.ops.relax_call import OpCall, RelaxExpr, constant
from convoy.relay.source import nearest
from convoy.relay.trampoline import Step, run
from convoy.relay.visit import bind, post_order
from convoy.threads import one_at_a_time

if TYPE_CHECKING:
    import tvm

# Relax compiles branches by recursion.
_MAX_IF_DEPTH = 32
_MAX_INLINED = 10_000


def supported_ops() -> list[str]:
    """Return the operators that can be converted."""
    return sorted(name for name, operator in OPERATORS.items() if operator.is_supported)


@one_at_a_time
def to_relax(
    mod: IRModule | Function, params: Mapping[str, Any] | None = None, func_name: str = "main"
) -> tvm.IRModule:
    """Convert to a Relax module of one function, `main`.

    Its parameters are those of the Relay function, in order and by name, less the ones in
    `params`, which become constants.

    Args:
        mod: A module or a function; its types are inferred.
        params: Numpy arrays or TVM tensors by name; unknown names are ignored, as in Relay.
        func_name: The function to convert.

    Raises:
        UnsupportedOp: An operator without a converter; the message has the place.
        RelayTypeError: Shapes, dtypes or parameters that do not fit.
        DynamicShape: An operator that needs static shapes.
    """
    mod = as_module(mod)
    infer_module(mod)
    if has_expansions(mod):  # they need scales and shapes that may be among the parameters
        bound = bound_params(mod[func_name], params or {})
        mod = mod.shallow_copy()
        mod[func_name] = bind(mod[func_name], {var: ast.Constant(v) for var, v in bound.items()})
        mod = infer_module(mod)
        while has_expansions(mod):
            mod = canonicalize(mod)
    function = mod[func_name]
    return _Conversion(mod).module(function, bound_params(function, params or {}))


class _Conversion:
    """One conversion of a module's function, with its callees."""

    def __init__(self, mod: IRModule) -> None:
        self.mod = mod
        self.if_depth = 0
        self.inlined = 0

    def module(self, function: Function, bound: Mapping[Var, np.ndarray]) -> tvm.IRModule:
        """Convert a function to a module with it as `main`."""
        builder = relax.BlockBuilder()
        scope = Scope(builder, None)
        names = unique([v.name_hint for v in function.params if v not in bound])
        params: list[RelaxExpr] = []
        for var in function.params:
            if var in bound:
                scope.values[var] = constant(bound[var])
            else:
                scope.values[var] = make_parameter(names.pop(0), var.checked_type, params)
        with builder.function("main", params):
            try:
                if self._has_if(function.body):  # a dataflow block cannot contain an `if`
                    result = builder.emit(self._value(function.body, scope))
                else:
                    with builder.dataflow():
                        result = builder.emit_output(self._value(function.body, scope))
                builder.emit_func_output(result)
            except BaseException:
                builder._end_block()  # a builder destroyed with an open block warns
                raise
        return builder.get().with_attr(IGNORES_NAN, True)

    def _value(self, body: Expr, scope: Scope) -> RelaxExpr:
        value = run(self.convert(body, scope))
        if isinstance(value, Closure):
            raise UnsupportedOp("a function as a result", "tensors and tuples")
        return value

    def _has_if(self, expr: Expr) -> bool:
        """Check for an `if` in an expression and in the module's functions that it names."""
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

    def convert(self, root: Expr, scope: Scope) -> Step:
        """Convert an expression, in steps of a trampoline."""
        return in_order(root, scope, self._node)

    def _node(self, node: Expr, scope: Scope) -> Any:
        if isinstance(node, ast.Call):
            if isinstance(node.op, ast.Op):
                return self._op_call(node, node.op.name, scope)
            return self._inline(node, scope)
        if isinstance(node, ast.Constant):
            check_dtype(node.tensor_type)
            return constant(node.value)
        if isinstance(node, ast.Tuple):
            fields = [scope.need(f) for f in node.fields]
            if any(isinstance(f, Closure) for f in fields):
                raise UnsupportedOp("a function in a tuple", "tensors and tuples")
            return relax.Tuple(fields)
        if isinstance(node, ast.TupleGetItem):
            value = scope.need(node.tuple_value)
            if isinstance(value, relax.Tuple):
                return value.fields[node.index]
            return scope.bind(relax.TupleGetItem(value, node.index))
        if isinstance(node, ast.Let):
            return scope.need(node.body)
        if isinstance(node, ast.If):
            return self._if(node, scope)
        if isinstance(node, (Function, GlobalVar)):
            return Closure(node, scope if isinstance(node, Function) else None)
        if isinstance(node, ast.Op):
            raise UnsupportedOp(f"the operator {node.name} as a value", "a call of it")
        assert isinstance(node, Var)
        raise RelayTypeError(f"%{node.name_hint}, which is not defined here")

    def _op_call(self, node: ast.Call, name: str, scope: Scope) -> RelaxExpr:
        operator = OPERATORS.get(name)
        if operator is None or operator.converter is None:
            if operator is not None and operator.on_host is not None:
                raise UnsupportedOp(
                    f"{name}, whose result is as large as the data has it",
                    "results of known sizes",
                    'relay.create_executor("vm", ...) runs it.',
                )
            raise UnsupportedOp(
                f"{name} cannot be converted to Relax", remedy=nearest(name, supported_ops())
            )
        check_dtype(node.checked_type)
        args = [scope.need(a) for a in node.args]
        try:
            call = OpCall(node, args, scope.builder)
            return scope.bind(call.of_layer(operator.converter(call)))
        except ConvoyError:
            raise
        except Exception as error:  # TVM raises many classes
            words = (str(error).strip() or type(error).__name__).splitlines()[0]
            raise UnsupportedOp(f"{name}, which TVM refuses here: {words}") from error

    def _inline(self, node: ast.Call, scope: Scope) -> Step:
        """Convert the callee's body, with the arguments for its parameters."""
        callee = scope.need(node.op)
        if not isinstance(callee, Closure):
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
        inner = Scope(scope.builder, callee.scope)
        inner.inlining = scope.inlining | {function}
        for param, arg in zip(function.params, node.args, strict=False):
            inner.values[param] = scope.need(arg)
        return self.convert(function.body, inner)

    def _if(self, node: ast.If, scope: Scope) -> RelaxExpr:
        self.if_depth += 1
        if self.if_depth > _MAX_IF_DEPTH:
            raise UnsupportedOp(f"ifs nested over {_MAX_IF_DEPTH} deep")
        branches = [self._branch(b, scope) for b in (node.true_branch, node.false_branch)]
        self.if_depth -= 1
        return scope.bind(relax.If(scope.need(node.cond), *branches))

    def _branch(self, body: Expr, scope: Scope) -> RelaxExpr:
        """Convert a branch to a private function; return a call of it."""
        builder, inner = scope.builder, BranchScope(scope)
        builder._begin_binding_block()
        try:
            value = builder.normalize(self._value(body, inner))
        finally:
            block = builder._end_block()
        blocks = [block] if len(block.bindings) else []
        function = relax.Function(inner.params, relax.SeqExpr(blocks, value), value.ty)
        return relax.Call(builder.add_func(function, "branch"), inner.captured)
