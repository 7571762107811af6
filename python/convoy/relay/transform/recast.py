"""recast: compute some operators in other dtypes."""

from __future__ import annotations

from collections.abc import Sequence

from convoy.relay import ast
from convoy.relay.ast import Call, Expr, Function, op_call
from convoy.relay.infer import infer_expr
from convoy.relay.transform.rewriting import op_name, with_body
from convoy.relay.types import TensorType, TupleType, Type
from convoy.relay.visit import post_order, rebuild


def recast(
    expr: Function,
    dtype: str,
    out_dtype: str,
    ops: Sequence[str] | None = None,
    skip_layers: Sequence[int] | None = None,
) -> Function:
    """Cast the arguments of operators to a dtype, and their results back.

    Args:
        expr: The function.
        dtype: The dtype of the arguments.
        out_dtype: The dtype of the results before they are cast back: the `out_dtype` of operators
            that have one.
        ops: The operators; None means `nn.conv2d`.
        skip_layers: Calls of them to leave as they are, counted from the inputs; negative ones
            count from the result.

    Returns:
        A function of the same type.
    """
    names = ("nn.conv2d",) if ops is None else tuple(ops)
    infer_expr(expr)
    chosen = [n for n in post_order(expr.body) if op_name(n) in names]
    for index in skip_layers or ():
        if -len(chosen) <= index < len(chosen):
            chosen[index] = expr  # not a call of the body
    wanted = {id(call) for call in chosen}
    memo: dict[int, Expr] = {}
    for node in post_order(expr.body):
        new = memo[id(node)] = rebuild(node, memo)
        if id(node) in wanted:
            assert isinstance(node, Call) and isinstance(new, Call)
            memo[id(node)] = _recast(node, new, dtype, out_dtype)
    result = with_body(expr, memo[id(expr.body)])
    infer_expr(result)
    return result


def _recast(old: Call, new: Call, dtype: str, out_dtype: str) -> Expr:
    assert isinstance(new.op, ast.Op)
    args = [_cast(a, b.checked_type, dtype) for a, b in zip(new.args, old.args, strict=True)]
    attrs = dict(new.attrs or {})
    if "out_dtype" in attrs:
        attrs["out_dtype"] = out_dtype
    return _cast(op_call(new.op.name, args, **attrs), old.checked_type, None)


def _cast(value: Expr, found: Type, dtype: str | None) -> Expr:
    """Cast a value; a tuple field by field.

    Args:
        value: The value.
        found: The type that it had; with `dtype=None` the result has its dtypes.
        dtype: The dtype.
    """
    if isinstance(found, TupleType):
        fields = value.fields if isinstance(value, ast.Tuple) else None
        return ast.Tuple(
            [
                _cast(fields[i] if fields else ast.TupleGetItem(value, i), field, dtype)
                for i, field in enumerate(found.fields)
            ]
        )
    assert isinstance(found, TensorType)
    return op_call("cast", [value], dtype=dtype or found.dtype)
