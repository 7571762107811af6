"""Arithmetic of dimensions and shapes, of which some sizes are known only at run time."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence
from typing import Any

from convoy.relay.lazy import sym
from convoy.relay.types import Any as DynamicDim
from convoy.relay.types import Dim, SymbolicDim, TensorType, TupleType, Type


def is_int(*dims: Any) -> bool:
    """Check whether all dimensions are known sizes."""
    return all(isinstance(d, int) for d in dims)


def computed(function: Callable[..., Any], *dims: Any) -> Any:
    """Compute a dimension from others.

    Args:
        function: Integer arithmetic: `lambda n: n + 2`.
        *dims: Its arguments.

    Returns:
        A size; an expression where a dimension is one of TVM (`te.var`); else an unknown size.
    """
    if all(isinstance(d, int) for d in dims):
        return function(*dims)
    if any(isinstance(d, (DynamicDim, SymbolicDim)) for d in dims):
        return DynamicDim()
    return sym.Analyzer().simplify(function(*dims))


def total_size(shape: Sequence[Dim]) -> Dim:
    """Return the number of elements of a shape."""
    return computed(lambda *sizes: functools.reduce(operator.mul, sizes, 1), *shape)


def same_dim(a: Dim, b: Dim) -> bool:
    """Check whether two dimensions can have one size; a dynamic one can have any."""
    return a == b or not isinstance(a, int) or not isinstance(b, int)


def same_shape(a: Sequence[Dim], b: Sequence[Dim]) -> bool:
    """Check whether two shapes can be equal."""
    return len(a) == len(b) and all(map(same_dim, a, b))


def compatible(a: Type, b: Type) -> bool:
    """Check whether a value of type `a` can be passed where type `b` is declared."""
    if isinstance(a, TensorType) and isinstance(b, TensorType):
        return a.dtype == b.dtype and same_shape(a.shape, b.shape)
    if isinstance(a, TupleType) and isinstance(b, TupleType):
        return len(a.fields) == len(b.fields) and all(map(compatible, a.fields, b.fields))
    return a == b


def broadcast_dim(a: Dim, b: Dim) -> Dim | None:
    """Broadcast two dimensions; return None if their sizes are incompatible."""
    if a == b:
        return a
    if a == 1:
        return b
    if b == 1:
        return a
    if isinstance(a, int) and isinstance(b, int):
        return None
    known = a if isinstance(a, int) else b
    return known if isinstance(known, int) else DynamicDim()


def broadcast(a: Sequence[Dim], b: Sequence[Dim]) -> tuple[Dim, ...] | None:
    """Broadcast two shapes; return None if they are incompatible."""
    n = max(len(a), len(b))
    pairs = zip((1,) * (n - len(a)) + tuple(a), (1,) * (n - len(b)) + tuple(b), strict=False)
    out = [broadcast_dim(x, y) for x, y in pairs]
    return None if any(d is None for d in out) else tuple(out)  # type: ignore[arg-type]
