"""Finding elements: argwhere and unique."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from convoy.relay.ast import Call, Expr, Tuple, TupleWrapper
from convoy.relay.ops.arguments import make_call
from convoy.relay.ops.expansion_call import attrs_of, const, plain, type_of
from convoy.relay.ops.registry import builder, expansion, on_host, type_rule
from convoy.relay.ops.type_inputs import Inputs
from convoy.relay.types import Any as DynamicDim
from convoy.relay.types import TensorType, TupleType, Type


@builder("argwhere")
def argwhere(condition: Expr) -> Call:
    """Return the coordinates of elements that are not zero: (number of them, dimensions)."""
    return make_call("argwhere", condition)


@type_rule("argwhere")
def infer_argwhere(call: Inputs) -> Type:
    call.count(1)
    return TensorType((DynamicDim(), len(call.tensor(0).shape)), "int32")


@on_host("argwhere")
def compute_argwhere(call: Call, condition: np.ndarray) -> np.ndarray:
    return np.argwhere(condition).astype("int32")


@builder("unique")
def unique(data: Expr, is_sorted: bool = True, return_counts: bool = False) -> TupleWrapper:
    """Find the distinct elements of a vector.

    Args:
        data: (n,).
        is_sorted: Return them in ascending order, otherwise in that of their first occurrence.
        return_counts: Return the number of occurrences as well.

    Returns:
        The elements (n,), the positions of their first occurrence (n,), for each element of the
        data its number among them (n,), how many there are (1,), and the counts (n,). What follows
        the last distinct element is zero.
    """
    attrs = {"sorted": bool(is_sorted), "return_counts": bool(return_counts)}
    return TupleWrapper(make_call("unique", data, **attrs), 5 if return_counts else 4)


@type_rule("unique")
def infer_unique(call: Inputs) -> Type:
    call.count(1)
    data = call.tensor(0, 1)
    each, one = TensorType(data.shape, "int32"), TensorType((1,), "int32")
    counts = [each] if call.attrs["return_counts"] else []
    return TupleType([data, each, each, one, *counts])


@expansion("unique")
def expand_unique(call: Call, args: Sequence[Expr]) -> Expr:
    """Sort, number the runs of equal elements, and scatter by that number."""
    type_ = type_of(call, 0)
    (size,) = type_.concrete_shape
    zeros = const(np.zeros(size), "int32")
    order = plain("argsort", args[0], axis=0, is_ascend=True, dtype="int32")
    ordered = plain("take", args[0], order, axis=0, mode="clip")
    before = plain("take", ordered, const(np.maximum(np.arange(size) - 1, 0), "int32"), axis=0)
    starts = plain("cast", plain("not_equal", ordered, before), dtype="int32")
    number = plain("cumsum", starts, axis=0)  # of each sorted element among the distinct ones
    found = plain("add", plain("take", number, const([size - 1], "int32"), axis=0), _ONE)
    # The sort is stable on no target, so the smallest position counts as the first.
    first = _scatter(const(np.full(size, size), "int32"), number, order, "min")
    values = _scatter(const(np.zeros(size), type_.dtype), number, ordered, "update")
    counts = _scatter(zeros, number, const(np.ones(size), "int32"), "add")
    inverse = _scatter(zeros, order, number, "update")
    if not attrs_of(call)["sorted"]:
        by_first = plain("argsort", first, axis=0, is_ascend=True, dtype="int32")
        place = _scatter(zeros, by_first, const(np.arange(size), "int32"), "update")
        inverse = plain("take", place, inverse, axis=0, mode="clip")
        first, values, counts = (
            plain("take", v, by_first, axis=0, mode="clip") for v in (first, values, counts)
        )
    valid = plain("less", const(np.arange(size), "int32"), found)
    first = plain("where", valid, first, zeros)
    results = [values, first, inverse, found]
    return Tuple([*results, counts] if attrs_of(call)["return_counts"] else results)


_ONE = const([1], "int32")


def _scatter(data: Expr, indices: Expr, updates: Expr, reduction: str) -> Expr:
    return plain("scatter_elements", data, indices, updates, axis=0, reduction=reduction)
