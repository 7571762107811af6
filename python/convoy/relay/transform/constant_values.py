"""Values of expressions without inputs: in numpy where it is simple, else compiled for the CPU."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from convoy.relay import ast
from convoy.relay.ast import Call, Constant, Expr, Function
from convoy.relay.convert import to_relax
from convoy.relay.folding import Value, value_of
from convoy.relay.infer import infer_expr
from convoy.relay.lazy import tvm
from convoy.relay.module import IRModule
from convoy.relay.transform.rewriting import op_name
from convoy.relay.types import TensorType
from convoy.relay.visit import post_order, rebuild


def values_of(exprs: Sequence[Expr]) -> list[Value]:
    """Return the values of expressions without free variables.

    Raises:
        UnsupportedOp: An operator that cannot be compiled.
    """
    infer_expr(ast.Tuple(list(exprs)))
    found: dict[int, Value] = {}
    for node in post_order(ast.Tuple(list(exprs))):
        value = _value(node, found)
        if value is not None:
            found[id(node)] = value
    missing = [e for e in exprs if id(e) not in found]
    if missing:
        for expr, value in zip(missing, _compiled(_with_known(missing, found)), strict=True):
            found[id(expr)] = value
    return [found[id(e)] for e in exprs]


def _value(node: Expr, found: dict[int, Value]) -> Value | None:
    if isinstance(node, Constant):
        return node.value
    if isinstance(node, ast.Tuple):
        fields = [found.get(id(f)) for f in node.fields]
        return None if any(f is None for f in fields) else tuple(fields)
    if isinstance(node, ast.TupleGetItem):
        value = found.get(id(node.tuple_value))
        return None if value is None else value[node.index]
    if not isinstance(node, Call) or not op_name(node):
        return None
    args = [found.get(id(a)) for a in node.args]
    if any(a is None for a in args) or not isinstance(node.checked_type_, TensorType):
        return None
    return value_of(op_name(node), node.attrs or {}, args, node.checked_type_)


def _with_known(exprs: Sequence[Expr], found: dict[int, Value]) -> list[Expr]:
    """Put values that numpy computed, such as shapes, in the place of their expressions."""
    root = ast.Tuple(list(exprs))
    memo: dict[int, Expr] = {}
    for node in post_order(root, lambda n: id(n) not in found):
        memo[id(node)] = constant_of(found[id(node)]) if id(node) in found else rebuild(node, memo)
    return list(memo[id(root)].fields)  # type: ignore[attr-defined]


def constant_of(value: Value) -> Expr:
    """Return a value as a constant, a tuple as a tuple of constants."""
    if isinstance(value, tuple):
        return ast.Tuple([constant_of(v) for v in value])
    return Constant(value)


def _compiled(exprs: Sequence[Expr]) -> list[Value]:
    """Compile expressions for the CPU, all at once, and run them."""
    function = Function([], ast.Tuple(list(exprs)))
    module = tvm.compile(to_relax(IRModule({"main": function})), tvm.target.Target("llvm"))
    results = tvm.relax.VirtualMachine(module, tvm.cpu(0))["main"]()
    return [_arrays(result) for result in results]


def _arrays(result: Any) -> Value:
    return result.numpy() if hasattr(result, "numpy") else tuple(map(_arrays, result))
