"""SimplifyInference: operators of training as arithmetic, as inference computes them."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from convoy.relay.ast import Call, Expr, TupleGetItem, op_call
from convoy.relay.transform.base import Pass, register_pass
from convoy.relay.transform.rewriting import (
    constant_like,
    expr_pass,
    is_primitive,
    op_name,
    tensor_type,
)
from convoy.relay.types import TensorType
from convoy.relay.visit import post_order, rebuild


@register_pass
def SimplifyInference() -> Pass:
    """Write batch, layer, group, instance and L2 normalization as arithmetic; drop dropout."""
    return expr_pass("SimplifyInference", 0, _simplify)


def _simplify(expr: Expr) -> Expr:
    memo: dict[int, Expr] = {}
    for node in post_order(expr, lambda n: not is_primitive(n)):
        new = memo[id(node)] = node if is_primitive(node) else rebuild(node, memo)
        name = op_name(node)
        if name in _RULES:
            memo[id(node)] = _RULES[name](node, new)  # type: ignore[arg-type]
        elif isinstance(node, TupleGetItem) and node.index == 0:
            inner = op_name(node.tuple_value)
            if inner in _FIRST:
                memo[id(node)] = _FIRST[inner](node.tuple_value, memo[id(node.tuple_value)])  # type: ignore[arg-type]
    return memo[id(expr)]


def along(vector: Expr, rank: int, axis: int) -> Expr:
    """Append axes to a vector, so that it broadcasts along `axis` of a tensor of `rank` axes."""
    missing = rank - axis - 1
    return op_call("expand_dims", [vector], axis=1, num_newaxis=missing) if missing > 0 else vector


def _batch_norm(pre: Call, call: Call) -> Expr:
    data, gamma, beta, mean, variance = call.args
    attrs, rank = pre.attrs, len(tensor_type(pre.args[0]).shape)
    assert attrs is not None
    axis = attrs["axis"] % rank
    epsilon = constant_like(attrs["epsilon"], pre.args[0])
    scale: Expr = constant_like(1.0, pre.args[0]) / op_call("sqrt", [variance + epsilon])
    if attrs["scale"]:
        scale = scale * gamma
    shift: Expr = op_call("negative", [mean]) * scale
    if attrs["center"]:
        shift = shift + beta
    return data * along(scale, rank, axis) + along(shift, rank, axis)


def _normalized(pre: Call, data: Expr, axes: list[int]) -> Expr:
    """Subtract the mean over axes and divide by the standard deviation."""
    assert pre.attrs is not None
    mean = op_call("mean", [data], axis=axes, keepdims=True)
    variance = op_call("variance", [data, mean], axis=axes, keepdims=True)
    spread = variance + constant_like(pre.attrs["epsilon"], pre.args[0])
    return (data - mean) / op_call("sqrt", [spread])


def _affine(pre: Call, data: Expr, gamma: Expr, beta: Expr, axis: int) -> Expr:
    rank = len(tensor_type(pre.args[0]).shape)
    assert pre.attrs is not None
    if pre.attrs["scale"]:
        data = data * along(gamma, rank, axis)
    if pre.attrs["center"]:
        data = data + along(beta, rank, axis)
    return data


def _layer_norm(pre: Call, call: Call) -> Expr:
    data, gamma, beta = call.args
    assert pre.attrs is not None
    axis = pre.attrs["axis"] % len(tensor_type(pre.args[0]).shape)
    return _affine(pre, _normalized(pre, data, [axis]), gamma, beta, axis)


def _instance_norm(pre: Call, call: Call) -> Expr:
    data, gamma, beta = call.args
    rank = len(tensor_type(pre.args[0]).shape)
    assert pre.attrs is not None
    axis = pre.attrs["axis"] % rank
    axes = [i for i in range(1, rank) if i != axis]
    return _affine(pre, _normalized(pre, data, axes), gamma, beta, axis)


def _group_norm(pre: Call, call: Call) -> Expr:
    data, gamma, beta = call.args
    shape = tensor_type(pre.args[0]).shape
    assert pre.attrs is not None
    axis, groups = pre.attrs["axis"] % len(shape), pre.attrs["num_groups"]
    size = shape[axis]
    if not isinstance(size, int):
        return call
    split = [*shape[:axis], groups, size // groups, *shape[axis + 1 :]]
    newshape = [d if isinstance(d, int) else -1 for d in split]
    if newshape.count(-1) > 1:
        return call
    grouped = op_call("reshape", [data], newshape=newshape)
    axes = [i for i in range(1, len(split)) if i != axis]
    normalized = _normalized(pre, grouped, axes)
    flat = op_call(
        "reshape", [normalized], newshape=[d if isinstance(d, int) else -1 for d in shape]
    )
    return _affine(pre, flat, gamma, beta, axis)


def _l2_normalize(pre: Call, call: Call) -> Expr:
    data = call.args[0]
    assert pre.attrs is not None
    squares = op_call("sum", [data * data], axis=pre.attrs["axis"], keepdims=True)
    epsilon = constant_like(pre.attrs["eps"], pre.args[0])
    return data / op_call("sqrt", [op_call("maximum", [squares, epsilon])])


def _flatten(pre: Call, call: Call) -> Expr:
    """Write a flatten of known sizes as a reshape."""
    found = pre.checked_type
    assert isinstance(found, TensorType)
    if not found.is_static:
        return call
    rows, columns = found.concrete_shape
    del columns
    if prod(found.concrete_shape) == 0:
        return call
    return op_call("reshape", [call.args[0]], newshape=[rows, -1])


_RULES: dict[str, Callable[[Call, Call], Expr]] = {
    "nn.layer_norm": _layer_norm,
    "nn.group_norm": _group_norm,
    "nn.instance_norm": _instance_norm,
    "nn.l2_normalize": _l2_normalize,
    "nn.batch_flatten": _flatten,
}
_FIRST: dict[str, Callable[[Call, Call], Expr]] = {
    "nn.batch_norm": _batch_norm,
    "nn.dropout": lambda pre, call: call.args[0],
}
