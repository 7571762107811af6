"""Splitting tensors into parts."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from convoy.relay.ast import Expr
from convoy.relay.frontend.common import infer_shape, select, slice_axis, value_of
from convoy.relay.frontend.pytorch.registry import Call, convert
from convoy.relay.op import tensor as R


@convert("split", "split_with_sizes", "unsafe_split", "split_copy", "split_with_sizes_copy")
def split(call: Call) -> list[Expr]:
    """Split into sizes, or into parts of one size."""
    given = call.get("split_size") or call.get("split_sizes")
    if isinstance(given, Sequence):
        return _parts(call, [call.whole(s) for s in given])
    return _parts(call, _equal(_total(call), call.whole(given)))


@convert("chunk", "unsafe_chunk")
def chunk(call: Call) -> list[Expr]:
    """Split into a number of parts, all but the last of one size."""
    total = _total(call)
    return _parts(call, _equal(total, -(-total // call.whole(call.get("chunks")))))


@convert("tensor_split")
def tensor_split(call: Call) -> list[Expr]:
    """Split into a number of parts, or before indices, which count as those of slices."""
    total = _total(call)
    given = call.get("sections", call.get("indices", call.get("tensor_indices_or_sections")))
    if isinstance(given, Expr):
        value = value_of(given)
        if value is None:
            raise call.error("indices that are computed", "constant ones")
        given = value.tolist()
    if isinstance(given, int):
        return _parts(call, [total // given + (i < total % given) for i in range(given)])
    ends = [slice(call.whole(at)).indices(total)[1] for at in given]
    starts = [0, *ends]
    return [
        slice_axis(call["self"], _axis(call), start, max(start, end))
        for start, end in zip(starts, [*ends, total], strict=True)
    ]


@convert("unbind")
def unbind(call: Call) -> list[Expr]:
    return [select(call["self"], _axis(call), i) for i in range(_total(call))]


def _axis(call: Call) -> int:
    return call.axis() if call.get("dim") is not None else 0


def _total(call: Call) -> int:
    """Return the size of the axis that is split."""
    total: int = infer_shape(call["self"])[_axis(call)]
    return total


def _equal(total: int, each: int) -> list[int]:
    """Return the sizes of parts of one size, the last of which may be smaller."""
    return [min(each, total - at) for at in range(0, total, each)]


def _parts(call: Call, sizes: Sequence[int]) -> list[Expr]:
    """Split into parts of these sizes."""
    data, axis = call["self"], _axis(call)
    if len(sizes) == 1:
        return [data]
    ends = [int(e) for e in np.cumsum(sizes)]
    if 0 in sizes:
        return [slice_axis(data, axis, e - s, e) for s, e in zip(sizes, ends, strict=True)]
    if len(set(sizes)) == 1:
        return list(R.split(data, len(sizes), axis=axis))
    return list(R.split(data, ends[:-1], axis=axis))
