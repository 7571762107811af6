"""Cumulative operators in terms of a parallel scan."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

_aten = torch.ops.aten
Parts = tuple[Any, ...]


def _scan(combine: Callable[[Parts, Parts], Parts], parts: Parts, dim: int) -> Parts:
    """Element i of the result combines elements 0 to i, in log2(n) rounds of whole tensors
    (Hillis and Steele, 1986)."""
    size, reach = parts[0].shape[dim], 1
    while reach < size:
        before = tuple(part.narrow(dim, 0, size - reach) for part in parts)
        after = tuple(part.narrow(dim, reach, size - reach) for part in parts)
        firsts = [part.narrow(dim, 0, reach) for part in parts]
        joined = combine(before, after)
        parts = tuple(torch.cat(pair, dim) for pair in zip(firsts, joined, strict=True))
        reach *= 2
    return parts


def _extreme(better: Callable[[Any, Any], Any]) -> Callable[..., Parts]:
    """The extreme so far and where it is: of equal ones the last, and any NaN before numbers."""

    def combine(before: Parts, after: Parts) -> Parts:
        (a, i), (b, j) = before, after
        later = b.isnan() | (~a.isnan() & better(b, a))
        return torch.where(later, b, a), torch.where(later, j, i)

    def decompose(x: Any, dim: int) -> Parts:
        sizes = [1] * x.dim()
        sizes[dim] = x.shape[dim]
        places = torch.arange(sizes[dim], device=x.device).reshape(sizes)
        return _scan(combine, (x.clone(), places.expand(x.shape).clone()), dim)

    return decompose


def _log_sum(before: Parts, after: Parts) -> Parts:
    a, b = before[0], after[0]
    most = torch.maximum(a, b)
    most = torch.where(most.isinf(), 0.0, most)  # infinities have no difference
    return ((torch.exp(a - most) + torch.exp(b - most)).log() + most,)


def _of_result(scan: Callable[..., Any]) -> Callable[..., Any]:
    """Sums or products so far in the dtype of the result, which for integers and bools is int64."""

    def decompose(x: Any, dim: int, *, dtype: Any = None) -> Any:
        dtype = dtype or (x.dtype if x.is_floating_point() or x.is_complex() else torch.int64)
        return NotImplemented if x.dtype == dtype else scan(x.to(dtype), dim, dtype=dtype)

    return decompose


DECOMPOSITIONS: dict[Any, Callable[..., Any]] = {
    _aten.cummax.default: _extreme(torch.ge),
    _aten.cummin.default: _extreme(torch.le),
    _aten.logcumsumexp.default: lambda x, dim: _scan(_log_sum, (x.clone(),), dim)[0],
    _aten.cumsum.default: _of_result(_aten.cumsum.default),
    _aten.cumprod.default: _of_result(_aten.cumprod.default),
}
