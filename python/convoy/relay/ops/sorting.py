"""Sorting, searching, top-k."""

from __future__ import annotations

from typing import Any

import numpy as np

from convoy.relay.ast import Call, Expr, TupleWrapper
from convoy.relay.lazy import relax, topi
from convoy.relay.ops.arguments import known, make_call
from convoy.relay.ops.registry import builder, converter, type_rule
from convoy.relay.ops.relax_call import OpCall, RelaxExpr
from convoy.relay.ops.type_inputs import Inputs
from convoy.relay.types import TensorType, TupleType, Type


@builder("sort")
def sort(data: Expr, axis: int = -1, is_ascend: bool = True) -> Call:
    """Sort along an axis."""
    return make_call("sort", data, axis=axis, is_ascend=bool(is_ascend), dtype="int32")


@type_rule("sort", "argsort")
def infer_sort(call: Inputs) -> Type:
    call.count(1)
    data = call.tensor(0)
    call.axis(call.attrs.get_int("axis"), len(data.shape))
    return TensorType(data.shape, call.attrs["dtype"] if call.name == "argsort" else data.dtype)


@converter("sort")
def convert_sort(op: OpCall) -> RelaxExpr:
    descending = not op.attrs["is_ascend"]
    return relax.op.sort(op.args[0], axis=op.attrs.get_int("axis"), descending=descending)


@builder("argsort")
def argsort(data: Expr, axis: int = -1, is_ascend: bool = True, dtype: str = "int32") -> Call:
    """Return the indices that sort along an axis."""
    return make_call("argsort", data, axis=axis, is_ascend=bool(is_ascend), dtype=dtype)


@converter("argsort")
def convert_argsort(op: OpCall) -> RelaxExpr:
    descending = not op.attrs["is_ascend"]
    return relax.op.argsort(op.args[0], op.attrs.get_int("axis"), descending, op.attrs["dtype"])


@builder("topk")
def topk(
    data: Expr,
    k: int | Expr = 1,
    axis: int = -1,
    ret_type: str = "both",
    is_ascend: bool = False,
    dtype: str = "int32",
) -> Any:
    """Find the largest (or smallest) elements along an axis.

    Args:
        k: How many; 0 or less for all.
        ret_type: "both", "values" or "indices".
        is_ascend: Find the smallest.
        dtype: The dtype of the indices.
    """
    k = known(k)
    attrs = {"axis": axis, "ret_type": ret_type, "is_ascend": is_ascend, "dtype": dtype}
    if isinstance(k, Expr):
        result = make_call("dyn.topk", data, k, k=None, **attrs)
    else:
        count = None if k is None else np.reshape(k, -1)[0].item()
        result = make_call("topk", data, k=count, **attrs)
    return TupleWrapper(result, 2) if ret_type == "both" else result


@type_rule("topk")
def infer_topk(call: Inputs) -> Type:
    call.count(1)
    data, attrs = call.tensor(0), call.attrs
    axis = call.axis(attrs.get_int("axis"), len(data.shape))
    shape = list(data.shape)
    if attrs["k"] is None:
        raise call.error("topk with k=None", "a number")
    if attrs["k"] >= 1:
        shape[axis] = attrs["k"]
    values, indices = TensorType(shape, data.dtype), TensorType(shape, attrs["dtype"])
    if attrs["ret_type"] == "both":
        return TupleType([values, indices])
    if attrs["ret_type"] not in ("values", "indices"):
        raise call.error(f"ret_type='{attrs['ret_type']}'", "'both', 'values' or 'indices'")
    return values if attrs["ret_type"] == "values" else indices


@converter("topk")
def convert_topk(op: OpCall) -> RelaxExpr:
    attrs = op.attrs
    return relax.op.topk(
        op.args[0],
        int(attrs["k"]),
        attrs.get_int("axis"),
        attrs["ret_type"],
        largest=not attrs["is_ascend"],
        dtype=attrs["dtype"],
    )


@builder("searchsorted")
def searchsorted(
    sorted_sequence: Expr, values: Expr, right: bool = False, dtype: str = "int32"
) -> Call:
    """Find where values would be inserted to keep the order.

    Args:
        sorted_sequence: A vector, or sequences along the last axis.
        right: Insert after equal elements.
    """
    return make_call("searchsorted", sorted_sequence, values, right=bool(right), dtype=dtype)


@type_rule("searchsorted")
def infer_searchsorted(call: Inputs) -> Type:
    call.count(2)
    sequence, values = call.tensor(0), call.tensor(1)
    if len(sequence.shape) != 1 and sequence.shape[:-1] != values.shape[:-1]:
        raise call.error(f"{values} in {sequence}", "equal leading axes, or a vector")
    return TensorType(values.shape, call.attrs["dtype"])


@converter("searchsorted")
def convert_searchsorted(op: OpCall) -> RelaxExpr:
    return op.te(topi.searchsorted, *op.args, bool(op.attrs["right"]), op.result.dtype)
