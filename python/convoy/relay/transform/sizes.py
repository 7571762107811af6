"""Passes about sizes: ChangeBatch, SplitArgs, DynamicToStatic."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from convoy.relay.ast import Call, Constant, Expr, Function, Tuple, Var, op_call
from convoy.relay.infer import infer_expr, infer_module
from convoy.relay.module import IRModule
from convoy.relay.transform.base import ModulePass, Pass, PassInfo, register_pass
from convoy.relay.transform.fold_constant import FoldConstantExpr
from convoy.relay.transform.rewriting import (
    expr_pass,
    op_name,
    rewrite_calls,
    tensor_type,
    with_body,
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


# ---- dyn.* operators


def _numbers(value: Expr) -> tuple[Any, ...] | None:
    return tuple(value.value.reshape(-1).tolist()) if isinstance(value, Constant) else None


def _shaped(name: str, attribute: str, **more: Any) -> Callable[[Call], Expr | None]:
    """Make the rule of an operator whose last argument is its shape."""

    def rule(call: Call) -> Expr | None:
        found = _numbers(call.args[-1])
        if found is None:
            return None
        attrs = {k: v for k, v in dict(call.attrs or {}).items() if k != attribute}
        return op_call(name, call.args[:-1], **{**attrs, **more, attribute: found})

    return rule


def _topk(call: Call) -> Expr | None:
    found = _numbers(call.args[1])
    if found is None:
        return None
    return op_call("topk", call.args[:1], **{**dict(call.attrs or {}), "k": int(found[0])})


def _one_hot(call: Call) -> Expr | None:
    depth = _numbers(call.args[3])
    if depth is None:
        return None
    attrs = {**dict(call.attrs or {}), "depth": int(depth[0])}
    return op_call("one_hot", call.args[:3], **attrs)


def _slice(call: Call) -> Expr | None:
    found = [_numbers(a) for a in call.args[1:4]]
    if any(f is None for f in found):
        return None
    begin, end, strides = found
    attrs = {**dict(call.attrs or {}), "begin": begin, "end": end, "strides": strides}
    return op_call("strided_slice", call.args[:1], **attrs)


def _resize(call: Call) -> Expr | None:
    size, roi = _numbers(call.args[1]), _numbers(call.args[2]) if len(call.args) > 2 else ()
    if size is None or roi is None:
        return None
    attrs = {**dict(call.attrs or {}), "size": size}
    if roi:
        attrs["roi"] = roi
    return op_call("image.resize2d", call.args[:1], **attrs)


def _upsampling(call: Call) -> Expr | None:
    found = [_numbers(a) for a in call.args[1:]]
    if any(f is None for f in found):
        return None
    names = ("scale_h", "scale_w") if len(found) == 2 else ("scale_d", "scale_h", "scale_w")
    scales = {n: float(f[0]) for n, f in zip(names, found, strict=True) if f}
    name = op_name(call).removeprefix("dyn.")
    return op_call(name, call.args[:1], **{**dict(call.attrs or {}), **scales})


def _pad(call: Call) -> Expr | None:
    widths = call.args[1]
    if not isinstance(widths, Constant):
        return None
    attrs = {**dict(call.attrs or {}), "pad_width": widths.value.tolist()}
    return op_call("nn.pad", [call.args[0], call.args[2]], **attrs)


def _sparse_to_dense(call: Call) -> Expr | None:
    found = _numbers(call.args[3])
    if found is None:
        return None
    return op_call("sparse_to_dense", call.args[:3], output_shape=found)


def _expand_dims(call: Call) -> Expr | None:
    found = _numbers(call.args[1])
    if found is None:
        return None
    attrs = {**dict(call.attrs or {}), "axis": int(found[0])}
    return op_call("expand_dims", call.args[:1], **attrs)


_STATIC: dict[str, Callable[[Call], Expr | None]] = {
    "dyn.broadcast_to": _shaped("broadcast_to", "shape"),
    "dyn.expand_dims": _expand_dims,
    "dyn.full": _shaped("full", "shape"),
    "dyn.image.resize2d": _resize,
    "dyn.nn.pad": _pad,
    "dyn.nn.upsampling": _upsampling,
    "dyn.nn.upsampling3d": _upsampling,
    "dyn.one_hot": _one_hot,
    "dyn.ones": _shaped("ones", "shape"),
    "dyn.reshape": _shaped("reshape", "newshape"),
    "dyn.sparse_to_dense": _sparse_to_dense,
    "dyn.squeeze": _shaped("squeeze", "axis"),
    "dyn.strided_slice": _slice,
    "dyn.tile": _shaped("tile", "reps"),
    "dyn.topk": _topk,
    "dyn.zeros": _shaped("zeros", "shape"),
}
# Each round makes sizes known that the next one computes with.
_MAX_ROUNDS = 32


@register_pass
def DynamicToStatic() -> Pass:
    """Make sizes that are arguments attributes, where they are known."""

    def rewrite_function(function: Function) -> Expr:
        for _ in range(_MAX_ROUNDS):
            changed: list[str] = []

            def rule(pre: Call, call: Call, changed: list[str] = changed) -> Expr | None:
                make = _STATIC.get(op_name(call))
                found = None if make is None else make(call)
                if found is not None:
                    changed.append(op_name(call))
                return found

            folded = FoldConstantExpr(function)
            body = rewrite_calls(folded.body, rule)  # type: ignore[attr-defined]
            if not changed:
                return folded
            function = with_body(folded, body)  # type: ignore[arg-type]
            infer_expr(function)
        return function

    return expr_pass("DynamicToStatic", 2, rewrite_function)
