"""Reductions, sums along an axis, sorting."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from convoy.relay.ast import Expr
from convoy.relay.frontend.common import cast, dtype_of, is_float, reshape
from convoy.relay.frontend.onnx.registry import Node, convert
from convoy.relay.op import tensor as R


def _sum_of(function: Any) -> Any:
    return lambda data, axes, keep: R.sum(function(data), axis=axes, keepdims=keep)


def _log(data: Expr) -> Expr:
    return R.log(data if is_float(data) else cast(data, "float32"))


def _logsumexp(data: Expr, axes: tuple[int, ...], keep: bool) -> Expr:
    return R.logsumexp(data, axis=axes, keepdims=keep)


def _reductions() -> dict[str, Callable[..., Any]]:
    """Return reductions of (data, axes, keepdims)."""
    return {
        "ReduceSum": lambda d, a, k: R.sum(d, axis=a, keepdims=k),
        "ReduceMean": lambda d, a, k: R.mean(d, axis=a, keepdims=k),
        "ReduceMax": lambda d, a, k: _extreme(R.max, R.any, d, a, k),
        "ReduceMin": lambda d, a, k: _extreme(R.min, R.all, d, a, k),
        "ReduceProd": lambda d, a, k: R.prod(d, axis=a, keepdims=k),
        "ReduceL1": _sum_of(R.abs),
        "ReduceSumSquare": _sum_of(lambda d: R.multiply(d, d)),
        "ReduceL2": lambda d, a, k: R.sqrt(R.sum(R.multiply(d, d), axis=a, keepdims=k)),
        "ReduceLogSum": lambda d, a, k: _log(R.sum(d, axis=a, keepdims=k)),
        "ReduceLogSumExp": _logsumexp,
    }


_REDUCTIONS = _reductions()


def _extreme(numbers: Any, bools: Any, data: Expr, axes: tuple[int, ...], keep: bool) -> Expr:
    return (bools if dtype_of(data) == "bool" else numbers)(data, axis=axes, keepdims=keep)


@convert(*_REDUCTIONS)
def reduce(node: Node) -> Expr:
    """Reduce the axes given, or all of them unless `noop_with_empty_axes`."""
    axes = node.ints_of("axes", 1)
    if not axes:
        if node.attr("noop_with_empty_axes", 0):
            return node[0]
        axes = list(range(node.rank()))
    if not axes:  # of a scalar
        data = reshape(node[0], (1,))
        return _REDUCTIONS[node.name](data, (0,), False)
    found = tuple(node.axis(a) for a in axes)
    return _REDUCTIONS[node.name](node[0], found, bool(node.attr("keepdims", 1)))


@convert("ArgMax", "ArgMin")
def extreme_index(node: Node) -> Expr:
    function = R.argmax if node.name == "ArgMax" else R.argmin
    found = function(
        node[0],
        axis=node.axis(node.attr("axis", 0)),
        keepdims=bool(node.attr("keepdims", 1)),
        select_last_index=bool(node.attr("select_last_index", 0)),
    )
    return cast(found, "int64")


@convert("CumSum", "CumProd")
def cumulative(node: Node) -> Expr:
    """Sum or multiply along an axis; `reverse` runs from its end."""
    axis = node.axis(node.ints(1)[0])
    data = node[0]
    function = R.cumsum if node.name == "CumSum" else R.cumprod
    if node.attr("reverse", 0):
        data = R.reverse(data, axis=axis)
    result = function(data, axis=axis, exclusive=bool(node.attr("exclusive", 0)))
    return R.reverse(result, axis=axis) if node.attr("reverse", 0) else result


@convert("TopK")
def topk(node: Node) -> Any:
    """Take the largest or least k elements of an axis; k is an input since opset 10."""
    k = node.attrs["k"] if "k" in node.attrs else node.ints(1)[0]
    axis = node.axis(node.attr("axis", -1))
    least = not node.attr("largest", 1)
    last = node.rank() - 1
    order = [a for a in range(node.rank()) if a != axis] + [axis]
    data = node[0] if axis == last else R.transpose(node[0], order)
    values, indices = R.topk(data, k=k, axis=-1, is_ascend=least, dtype="int64")
    if axis != last:
        back = [order.index(a) for a in range(node.rank())]
        values, indices = R.transpose(values, back), R.transpose(indices, back)
    return [values, indices]
