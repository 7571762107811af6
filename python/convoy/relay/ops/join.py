"""Joining tensors and splitting them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from convoy.relay.ast import Call, Expr, TupleWrapper
from convoy.relay.lazy import relax
from convoy.relay.ops.arguments import as_tuple, make_call
from convoy.relay.ops.registry import builder, converter, type_rule
from convoy.relay.ops.relax_call import OpCall, RelaxExpr
from convoy.relay.ops.type_inputs import Inputs
from convoy.relay.shapes import computed, same_shape
from convoy.relay.types import Any as DynamicDim
from convoy.relay.types import Dim, TensorType, TupleType, Type


def _joined(call: Inputs) -> list[TensorType]:
    """Return the fields of argument 0, which have one dtype."""
    call.count(1)
    fields = call.tensors(0)
    if not fields:
        raise call.error("an empty tuple", "at least one tensor")
    if any(f.dtype != fields[0].dtype for f in fields):
        raise call.error(f"tensors of dtypes {', '.join(f.dtype for f in fields)}", "one dtype")
    return fields


@builder("concatenate")
def concatenate(data: Any, axis: int) -> Call:
    """Join tensors along an axis."""
    return make_call("concatenate", as_tuple(data), axis=axis)


@type_rule("concatenate")
def infer_concatenate(call: Inputs) -> Type:
    fields = _joined(call)
    first = fields[0]
    axis = call.axis(call.attrs.get_int("axis"), len(first.shape))
    total: Dim = 0
    for field in fields:
        rest = field.shape[:axis] + field.shape[axis + 1 :]
        if not same_shape(rest, first.shape[:axis] + first.shape[axis + 1 :]):
            raise call.error(
                f"{field} beside {first}", f"shapes that differ along axis {axis} only"
            )
        size = field.shape[axis]
        total = computed(lambda a, b: a + b, total, size)
    shape = [total if i == axis else _common(fields, i) for i in range(len(first.shape))]
    return TensorType(shape, first.dtype)


def _common(fields: Sequence[TensorType], axis: int) -> Dim:
    """Return the size that all tensors have along an axis, as TVM 0.18 infers it.

    An unknown size among several known ones takes their value.
    """
    known = [f.shape[axis] for f in fields if not isinstance(f.shape[axis], DynamicDim)]
    if len(known) == len(fields) or (len(known) == len(fields) - 1 and len(known) > 1):
        return known[0]
    return DynamicDim()


@converter("concatenate")
def convert_concatenate(op: OpCall) -> RelaxExpr:
    return relax.op.concat(op.unpack(0), axis=op.attrs.get_int("axis"))


@builder("stack")
def stack(data: Any, axis: int) -> Call:
    """Join tensors along a new axis."""
    return make_call("stack", as_tuple(data), axis=axis)


@type_rule("stack")
def infer_stack(call: Inputs) -> Type:
    fields = _joined(call)
    first = fields[0]
    if any(not same_shape(f.shape, first.shape) for f in fields):
        raise call.error(f"tensors {', '.join(map(str, fields[:4]))}", "one shape")
    axis = call.axis(call.attrs.get_int("axis"), len(first.shape) + 1)
    return TensorType((*first.shape[:axis], len(fields), *first.shape[axis:]), first.dtype)


@converter("stack")
def convert_stack(op: OpCall) -> RelaxExpr:
    return relax.op.stack(op.unpack(0), axis=op.attrs.get_int("axis"))


@builder("split")
def split(data: Expr, indices_or_sections: int | Sequence[int], axis: int = 0) -> TupleWrapper:
    """Split along an axis.

    Args:
        indices_or_sections: A number of equal parts, or the indices where parts end.
        axis: The axis.

    Returns:
        The parts, as a TupleWrapper.
    """
    parts = indices_or_sections
    parts = parts if isinstance(parts, int) else tuple(parts)
    count = parts if isinstance(parts, int) else len(parts) + 1
    return TupleWrapper(make_call("split", data, indices_or_sections=parts, axis=axis), count)


# More parts than any program has; a corrupt number must not fill the memory.
_MAX_PARTS = 65536


@type_rule("split")
def infer_split(call: Inputs) -> Type:
    call.count(1)
    data = call.tensor(0)
    axis = call.axis(call.attrs.get_int("axis"), len(data.shape))
    try:
        sizes = split_sizes(data.shape[axis], call.attrs["indices_or_sections"])
    except ValueError as bad:
        raise call.error(f"{bad}, of {data} along axis {axis}") from None
    shapes = [(*data.shape[:axis], s, *data.shape[axis + 1 :]) for s in sizes]
    return TupleType([TensorType(s, data.dtype) for s in shapes])


def split_sizes(size: Dim, parts: int | Sequence[int]) -> list[Dim]:
    """Return the sizes of the parts along the axis.

    Raises:
        ValueError: Parts that do not fit.
    """
    if isinstance(parts, int):
        if not 0 < parts <= _MAX_PARTS:
            raise ValueError(f"{parts} parts")
        if isinstance(size, int) and size % parts:
            raise ValueError(f"{size} elements in {parts} equal parts")
        return [computed(lambda n: n // parts, size)] * parts
    edges = [0, *parts]
    if any(a > b for a, b in pairwise(edges)):
        raise ValueError(f"indices {list(parts)}, which do not ascend")
    if isinstance(size, int) and edges[-1] > size:
        raise ValueError(f"index {edges[-1]} of {size} elements")
    last = computed(lambda n: n - edges[-1], size)
    return [*(b - a for a, b in pairwise(edges)), last]


@converter("split")
def convert_split(op: OpCall) -> RelaxExpr:
    parts = op.attrs["indices_or_sections"]
    if parts == 1 or parts == ():
        return relax.Tuple([op.args[0]])
    parts = [int(p) for p in parts] if isinstance(parts, tuple) else int(parts)
    return relax.op.split(op.args[0], parts, axis=op.attrs.get_int("axis"))


@builder("meshgrid")
def meshgrid(data: Any, indexing: str = "ij") -> TupleWrapper:
    """Make coordinate tensors of vectors.

    Args:
        indexing: "ij", or "xy" to exchange the first two axes.
    """
    fields = as_tuple(data)
    count = len(fields.fields)  # type: ignore[attr-defined]
    return TupleWrapper(make_call("meshgrid", fields, indexing=indexing), count)


@type_rule("meshgrid")
def infer_meshgrid(call: Inputs) -> Type:
    fields = _joined(call)
    sizes = [f.shape[0] if f.shape else 1 for f in fields]
    if any(len(f.shape) > 1 for f in fields):
        raise call.error("tensors of several dimensions", "vectors")
    if call.attrs["indexing"] == "xy" and len(sizes) > 1:
        sizes[:2] = sizes[1::-1]
    return TupleType([TensorType(sizes, fields[0].dtype)] * len(fields))


@converter("meshgrid")
def convert_meshgrid(op: OpCall) -> RelaxExpr:
    """Emit a meshgrid; scalars count as vectors of one element."""
    vectors = [
        op.reshape(v, (1,)) if not type_.shape else v
        for v, type_ in zip(op.unpack(0), op.fields(0), strict=True)
    ]
    return relax.op.meshgrid(vectors, op.attrs["indexing"])
