"""Passes about sizes: ChangeBatch, SplitArgs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from convoy.relay.ast import Call, Expr, Function, Tuple, Var, op_call
from convoy.relay.infer import infer_module
from convoy.relay.module import IRModule
from convoy.relay.transform.base import ModulePass, Pass, PassInfo, register_pass
from convoy.relay.transform.rewriting import (
    expr_pass,
    op_name,
    rewrite_calls,
    tensor_type,
)
from convoy.relay.types import TensorType
from convoy.relay.visit import bind


@register_pass
def ChangeBatch(data: Mapping[Any, int], batch_size: int = 16) -> Pass:
    """Change the batch size of inputs.

    Args:
        data: The axis of the batch, by variable or its name.
        batch_size: The new size.
    """
    axes = {v if isinstance(v, str) else v.name_hint: axis for v, axis in data.items()}

    def resized(var: Var) -> Var:
        if var.name_hint not in axes:
            return Var(var.name_hint, var.type_annotation)
        found = var.type_
        assert isinstance(found, TensorType)
        shape = list(found.shape)
        shape[axes[var.name_hint]] = batch_size
        return Var(var.name_hint, TensorType(shape, found.dtype))

    def run(mod: IRModule) -> IRModule:
        result = mod.shallow_copy()
        for var, function in mod.items():
            params = [resized(p) for p in function.params]
            body = bind(function, dict(zip(function.params, params, strict=True))).body  # type: ignore[attr-defined]
            result[var] = Function(params, body, None, function.type_params, function.attrs)
        return infer_module(result)

    return ModulePass(PassInfo(1, "ChangeBatch"), run)


@register_pass
def SplitArgs(max_function_args: int) -> Pass:
    """Join tensors in several steps where a kernel takes only so many arguments.

    Args:
        max_function_args: The limit; 0 for none. A tensor with unknown sizes takes one argument
            more for each of its axes, and one for each unknown size.
    """
    rule = lambda pre, call: _split(pre, call, max_function_args)  # noqa: E731
    return expr_pass("SplitArgs", 1, lambda function: rewrite_calls(function, rule))


def _arguments(found: TensorType) -> int:
    unknown = sum(not isinstance(d, int) for d in found.shape)
    return 1 + (unknown + len(found.shape) if unknown else 0)


def _split(pre: Call, call: Call, max_args: int) -> Expr | None:
    parts = call.args[0] if call.args else None
    if op_name(pre) != "concatenate" or not isinstance(parts, Tuple) or max_args <= 0:
        return None
    assert pre.attrs is not None and isinstance(pre.args[0], Tuple)
    types = [tensor_type(f) for f in pre.args[0].fields]
    limit = max_args - _arguments(tensor_type(pre))
    if sum(map(_arguments, types)) < limit:
        return None
    joined: list[Expr] = []
    taken = 0

    def join() -> Expr:
        stop = op_call("annotation.stop_fusion", [Tuple(joined)])
        return op_call("concatenate", [stop], axis=call.attrs["axis"])  # type: ignore[index]

    for part, found in zip(parts.fields, types, strict=True):
        size = _arguments(found)
        if taken + size > limit:
            joined, taken = [join()], size
        joined.append(part)
        taken += size
    return join()
