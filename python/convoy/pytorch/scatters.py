"""Writing into parts of a tensor, in terms of selections and of scatters that have converters."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

_aten = torch.ops.aten


def _index_put(x: Any, indices: Sequence[Any], values: Any, accumulate: bool = False) -> Any:
    """With one mask as the index of some neighbouring axes, and one value for all that it selects
    there: a selection."""
    named = [(axis, index) for axis, index in enumerate(indices) if index is not None]
    if len(named) != 1 or named[0][1].dtype != torch.bool:
        return NotImplemented
    axis, mask = named[0]
    behind = x.dim() - axis - mask.dim()
    selected = values.dim() - behind - 1  # the axis of the values that the mask selects
    if selected >= 0:
        before, (count, *rest) = values.shape[:selected], values.shape[selected:]
        if not isinstance(count, int) or count != 1:
            return NotImplemented
        values = values.reshape([*before, *[1] * mask.dim(), *rest])
    values = values.to(x.dtype)
    mask = mask.reshape([*mask.shape, *[1] * behind])
    return torch.where(mask, x + values if accumulate else values, x)


def _diagonal_scatter(x: Any, source: Any, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Any:
    moved = x.movedim((dim1, dim2), (-2, -1))
    rows = torch.arange(moved.shape[-2], device=x.device)
    columns = torch.arange(moved.shape[-1], device=x.device)
    places = (rows + min(offset, 0)).clamp(0, source.shape[-1] - 1)
    on = columns - rows[:, None] == offset
    written = torch.where(on, source[..., places].unsqueeze(-1), moved)
    return written.movedim((-2, -1), (dim1, dim2))


def _as_strided_scatter(
    x: Any, source: Any, size: Sequence[int], stride: Sequence[int], offset: int | None = None
) -> Any:
    """A source at places of the memory of a tensor that lies there in the order of its axes."""
    if not x.is_contiguous():
        return NotImplemented
    places = torch.full(tuple(size), offset or 0, device=x.device)
    for axis, (length, step) in enumerate(zip(size, stride, strict=True)):
        along = torch.arange(length, device=x.device) * step
        places = places + along.reshape([-1, *[1] * (len(size) - axis - 1)])
    written = torch.index_put(x.reshape(-1), (places.reshape(-1),), source.reshape(-1))
    return written.reshape(x.shape)


def _identity(reduce: str, dtype: torch.dtype) -> Any:
    """What changes nothing in a reduction."""
    if reduce in ("sum", "mean", "prod"):
        return int(reduce == "prod")
    info = torch.finfo(dtype) if dtype.is_floating_point else torch.iinfo(dtype)
    least, most = (-math.inf, math.inf) if dtype.is_floating_point else (info.min, info.max)
    return least if reduce == "amax" else most


def _scatter_reduce(
    x: Any, dim: int, index: Any, source: Any, reduce: str, *, include_self: bool = True
) -> Any:
    """A mean as a sum and a count; what is not to count as what changes nothing."""
    if include_self and reduce != "mean":
        return NotImplemented
    kept = x if include_self else x.scatter(dim, index, _identity(reduce, x.dtype))
    if reduce != "mean":
        return _aten.scatter_reduce.two(kept, dim, index, source, reduce)
    ones = torch.ones_like(x)
    counts = ones if include_self else ones.scatter(dim, index, 0)
    counts = counts.scatter_add(dim, index, torch.ones_like(source)).clamp(min=1)
    rounding = None if x.is_floating_point() else "floor"
    return torch.div(kept.scatter_add(dim, index, source), counts, rounding_mode=rounding)


def _scatter(x: Any, dim: int, index: Any, source: Any, *, reduce: str) -> Any:
    """The older spelling of reductions, of a number too."""
    if not isinstance(source, torch.Tensor):
        source = torch.full(index.shape, source, dtype=x.dtype, device=x.device)
    how = {"add": "sum", "multiply": "prod"}[reduce]
    return torch.scatter_reduce(x, dim, index, source, how)


def _index_reduce(
    x: Any, dim: int, index: Any, source: Any, reduce: str, *, include_self: bool = True
) -> Any:
    sizes = [1] * x.dim()
    sizes[dim] = len(index)
    whole = index.reshape(sizes).expand(source.shape)
    return torch.scatter_reduce(x, dim, whole, source, reduce, include_self=include_self)


DECOMPOSITIONS: dict[Any, Callable[..., Any]] = {
    _aten.index_put.default: _index_put,
    _aten._unsafe_index_put.default: _index_put,
    _aten.diagonal_scatter.default: _diagonal_scatter,
    _aten.as_strided_scatter.default: _as_strided_scatter,
    _aten.scatter_reduce.two: _scatter_reduce,
    **dict.fromkeys((_aten.scatter.reduce, _aten.scatter.value_reduce), _scatter),
    _aten.index_reduce.default: _index_reduce,
}
