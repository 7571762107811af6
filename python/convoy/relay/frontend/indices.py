"""Indices that may count from the end."""

from __future__ import annotations

from typing import Any

import numpy as np

from convoy.relay.ast import Expr
from convoy.relay.frontend.common import cast, const, dims, dtype_of, scalar_like, value_of
from convoy.relay.op import tensor as R


def wrapped(indices: Expr, size: Any) -> Expr:
    """Count negative indices from the end of an axis of a given size.

    Indices without a sign, and constants of none below zero, stay as they are.
    """
    value = value_of(indices)
    if dtype_of(indices).startswith("uint"):
        return indices
    if value is not None and not (value.size and value.min() < 0):
        return indices
    if not isinstance(size, int):
        return indices  # `taken` counts them from the end
    if value is not None:
        return const(np.where(value < 0, value + size, value).astype(value.dtype))
    if dtype_of(indices) not in ("int32", "int64"):
        indices = cast(indices, "int64")
    return R.where(
        R.less(indices, scalar_like(0, indices)),
        R.add(indices, scalar_like(size, indices)),
        indices,
    )


def taken(data: Expr, indices: Expr, axis: int) -> Expr:
    """Take indices, which may be negative, along an axis."""
    size = dims(data)[axis]
    mode = "clip" if isinstance(size, int) else "wrap"
    return R.take(data, wrapped(indices, size), axis=axis, mode=mode)
