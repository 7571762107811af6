"""Parts that passes over expressions share: walks, rebuilt functions, constants."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from convoy.relay import ast
from convoy.relay.ast import Call, Constant, Expr, Function, Op
from convoy.relay.builder import numpy_dtype
from convoy.relay.infer import infer_module
from convoy.relay.module import IRModule
from convoy.relay.transform.base import FunctionPass, PassInfo, over_functions
from convoy.relay.types import TensorType
from convoy.relay.visit import children, post_order, rebuild

#: Returns the replacement of a call, None to keep the rebuilt one.
Rule = Callable[[Call, Call], Expr | None]


def op_name(expr: Expr) -> str:
    """Return the operator of a call, "" for anything else."""
    return expr.op.name if isinstance(expr, Call) and isinstance(expr.op, Op) else ""


def tensor_type(expr: Expr) -> TensorType:
    """Return the inferred type of a tensor."""
    found = expr.checked_type
    assert isinstance(found, TensorType)
    return found


def is_primitive(node: Expr) -> bool:
    """Check for a function that passes leave alone: fused, or of a code generator."""
    attrs = node.attrs or {} if isinstance(node, Function) else {}
    return bool(attrs.get("Primitive")) or "Compiler" in attrs


def rewrite_calls(expr: Expr, rule: Rule) -> Expr:
    """Replace calls of operators, inner ones first; sharing is kept.

    Args:
        expr: The expression. Functions that are primitive are not entered.
        rule: Gets the call as it was, with its type, and as it is with replaced arguments.
    """
    memo: dict[int, Expr] = {}
    for node in post_order(expr, lambda n: not is_primitive(n)):
        if is_primitive(node):
            memo[id(node)] = node
            continue
        new = memo[id(node)] = rebuild(node, memo)
        if isinstance(node, Call) and isinstance(node.op, Op):
            assert isinstance(new, Call)
            found = rule(node, new)
            if found is not None:
                memo[id(node)] = found
    return memo[id(expr)]


def call_pass(name: str, opt_level: int, rule: Callable[[], Rule]) -> FunctionPass:
    """Make a pass of a rule that replaces calls, whose types are known.

    Args:
        name, opt_level: See PassInfo.
        rule: Makes the rule for one function.
    """
    return expr_pass(name, opt_level, lambda function: rewrite_calls(function, rule()))


def expr_pass(
    name: str,
    opt_level: int,
    rewrite: Callable[..., Expr],
    typed: bool = True,
    with_module: bool = False,
) -> FunctionPass:
    """Make a pass that rewrites each function, with its types inferred before and after.

    Args:
        name, opt_level: See PassInfo.
        rewrite: Gets the function and, `with_module`, its module.
        typed: Infer the types before.
        with_module: See `rewrite`.
    """

    def transform(function: Function, mod: IRModule, context: Any) -> Expr:
        return rewrite(function, mod) if with_module else rewrite(function)

    over = over_functions(transform)  # type: ignore[arg-type]

    def run(mod: IRModule) -> IRModule:
        return over(infer_module(mod) if typed else mod)

    return FunctionPass(PassInfo(opt_level, name, ("InferType",) if typed else ()), run)


def scalar(value: Any, dtype: str) -> Constant:
    """Make the constant of a number."""
    return Constant(np.asarray(value).astype(numpy_dtype(dtype)))


def constant_like(value: Any, like: Expr) -> Constant:
    """Make the constant of a number, of the dtype of a typed expression."""
    return scalar(value, tensor_type(like).dtype)


def is_scalar_constant(expr: Expr) -> bool:
    """Check for a constant of one element."""
    return isinstance(expr, Constant) and expr.value.size == 1


def with_body(function: Function, body: Expr) -> Function:
    """Return the function with another body of any type."""
    return Function(
        function.params, body, None, function.type_params, function.attrs, span=function.span
    )


def uses(expr: Expr) -> dict[int, list[Expr]]:
    """Return the expressions that use an expression, by its id, in order; one for each use."""
    found: dict[int, list[Expr]] = {}
    for node in post_order(expr):
        for child in children(node):
            found.setdefault(id(child), []).append(node)
    return found


def field(value: Expr, index: int) -> Expr:
    """Return a field of a tuple."""
    return value.fields[index] if isinstance(value, ast.Tuple) else ast.TupleGetItem(value, index)


def substitute(expr: Expr, replacements: dict[int, Expr]) -> Expr:
    """Replace expressions by id; what is put in their places may contain replaced ones."""
    memo: dict[int, Expr] = {}
    stack: list[tuple[Expr, bool]] = [(expr, False)]
    while stack:
        node, expanded = stack.pop()
        other = replacements.get(id(node))
        if expanded:
            memo[id(node)] = rebuild(node, memo) if other is None else memo[id(other)]
        elif id(node) not in memo:
            stack.append((node, True))
            parts = children(node) if other is None else (other,)
            stack.extend((part, False) for part in reversed(parts) if id(part) not in memo)
    return memo[id(expr)]
