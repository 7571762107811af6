"""`relay.transform.gradient` and `FirstOrderGradient`."""

from __future__ import annotations

from typing import Any

from convoy.errors import InvalidOption, UnsupportedOp
from convoy.relay import ast
from convoy.relay.ast import Expr, Function, GlobalVar
from convoy.relay.builder import var
from convoy.relay.evaluate.symbolic import straight_line
from convoy.relay.gradient.common import call, is_float
from convoy.relay.gradient.reverse import Adjoint, backward, materialize
from convoy.relay.infer import infer_expr
from convoy.relay.module import IRModule
from convoy.relay.types import FuncType, TensorType, TupleType, Type

_MODES = ("higher_order", "first_order")


def gradient(expr: Expr, mod: IRModule | None = None, mode: str = "higher_order") -> Function:
    """Make a function that also returns the gradients of its parameters.

    The gradient is that of the sum of all elements of the result; of a tuple, of its first field,
    as in TVM 0.18. The new function is straight-line code: calls are inlined, references resolved,
    matches and recursion over known data unrolled. It can itself be differentiated again.

    Args:
        expr: A function whose types are inferred, or a function of `mod`.
        mod: The module with the functions that it calls.
        mode: "higher_order" or "first_order", which make the same function here.

    Returns:
        `fn (params) -> (result, (gradient of each parameter))`; zeros for integers.

    Raises:
        InvalidOption: Another mode, or neither a function nor a GlobalVar.
        UnsupportedOp: An operator without a gradient, or recursion that computed values end.
    """
    if mode not in _MODES:
        raise InvalidOption(f"mode='{mode}'", " or ".join(repr(m) for m in _MODES))
    module = IRModule() if mod is None else mod
    function = module[expr] if isinstance(expr, GlobalVar) else expr
    if not isinstance(function, Function):
        raise InvalidOption(f"the gradient of a {type(function).__name__}", "a function")
    types = _param_types(function, module)
    params = [var(p.name_hint, t) for p, t in zip(function.params, types, strict=True)]
    body = straight_line(function, module, params)
    infer_expr(Function(params, body))
    found = backward(body, _ones(body, body.checked_type), set(params))
    gradients = [materialize(found.get(p), p, t) for p, t in zip(params, types, strict=True)]
    result = ast.Tuple([body, ast.Tuple(gradients)])
    return Function(params, result, type_params=function.type_params)


def _param_types(function: Function, mod: IRModule) -> list[Type]:
    if any(p.type_ is None for p in function.params):
        infer_expr(function, mod if len(mod) else None)
    found = [p.checked_type_ or p.type_ for p in function.params]
    for param, type_ in zip(function.params, found, strict=True):
        if not isinstance(type_, (TensorType, TupleType)):
            kind = "a function" if isinstance(type_, FuncType) else f"{type_}"
            raise UnsupportedOp(f"%{param.name_hint}, which is {kind}", "tensors and tuples")
    return found  # type: ignore[return-value]


def _ones(expr: Expr, type_: Type) -> Adjoint:
    if isinstance(type_, TupleType):
        if not type_.fields:
            return None
        first = expr.fields[0] if isinstance(expr, ast.Tuple) else ast.TupleGetItem(expr, 0)
        return [_ones(first, type_.fields[0]), *[None] * (len(type_.fields) - 1)]
    return call("ones_like", expr) if is_float(type_) else None


def first_order_gradients(mod: IRModule) -> IRModule:
    """Replace every function of a module by its gradient; see `gradient`."""
    found: dict[Any, Function] = {
        name: gradient(function, mod) for name, function in mod.functions.items()
    }
    return IRModule(found, mod.type_definitions, mod.attrs)
