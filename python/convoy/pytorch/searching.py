"""Operators that look for positions, in terms of comparisons, gathers and matrix products."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

_aten = torch.ops.aten


def _searchsorted(
    ordered: Any, values: Any, *, out_int32: bool = False, right: bool = False,
    side: str | None = None, sorter: Any = None,
) -> Any:  # fmt: skip
    """How many elements of a sequence (..., n) lie below each value (..., m), or, from the right,
    not above it."""
    if sorter is not None:
        ordered = ordered.gather(-1, sorter)
    if not isinstance(values, torch.Tensor):
        values = torch.full((), values, dtype=ordered.dtype, device=ordered.device)
    ordered = ordered if ordered.dim() == 1 else ordered.unsqueeze(-2)
    values = values.unsqueeze(-1)
    beyond = ordered > values if right or side == "right" else ordered >= values
    return (~beyond).sum(-1, dtype=torch.int32 if out_int32 else torch.int64)


def _bucketize(values: Any, bounds: Any, *, out_int32: bool = False, right: bool = False) -> Any:
    """As a search, which finds NaN behind all bounds: TVM's finds it before them."""
    return _searchsorted(bounds, values, out_int32=out_int32, right=right)


def _repeats(repeats: Any, *, output_size: int | None = None) -> Any:
    """Indices of which i comes ``repeats[i]`` times, if their number is given."""
    if output_size is None:
        return NotImplemented
    ends = repeats.cumsum(0)
    return _searchsorted(ends, torch.arange(output_size, device=repeats.device), right=True)


def _index_select(x: Any, dim: int, index: Any) -> Any:
    """Of one element by an index without axes, which PyTorch takes for one of one element."""
    return NotImplemented if index.dim() else _aten.index_select.default(x, dim, index.reshape(1))


def _masked_scatter(x: Any, mask: Any, source: Any) -> Any:
    """``x`` with the elements of a source, in order, where the mask is set."""
    shape = torch.broadcast_shapes(x.shape, mask.shape)
    mask = mask.expand(shape)
    order = mask.reshape(-1).to(torch.int64).cumsum(0) - 1
    found = source.reshape(-1)[order.clamp(0, source.numel() - 1)]
    return torch.where(mask, found.reshape(shape), x)


def _embedding_bag(
    weight: Any, indices: Any, offsets: Any, scale_grad_by_freq: bool = False, mode: int = 0,
    sparse: bool = False, per_sample_weights: Any = None, include_last_offset: bool = False,
    padding_idx: int = -1,
) -> Any:  # fmt: skip
    """Sums (mode 0), means (1) or maxima (2) of rows over bags of indices, which begin at offsets;
    only gradients need the results behind the first."""
    rows, places = weight[indices], torch.arange(indices.numel(), device=indices.device)
    first = offsets[:-1] if include_last_offset else offsets
    last = torch.cat((offsets[1:], offsets.new_full((len(first) + 1 - len(offsets),), len(places))))
    held = (places >= first[:, None]) & (places < last[:, None])
    if padding_idx >= 0:
        held = held & (indices != padding_idx)
    if mode == 2:
        largest = torch.where(held[..., None], rows, -math.inf).amax(1)
        result = torch.where(held.any(1, keepdim=True), largest, 0.0)
    else:
        counts = held.to(rows.dtype)
        shares = counts if per_sample_weights is None else counts * per_sample_weights
        result = shares @ rows
        if mode == 1:
            result = result / counts.sum(1, keepdim=True).clamp(min=1)
    return (result, *(offsets.new_zeros(()) for _ in range(3)))


def _nonzero(x: Any, *, size: int, fill_value: int = -1) -> Any:
    """The first places (size, axes) of elements that are not zero, and a value behind the last."""
    count = x.numel()
    places = torch.arange(count, device=x.device)
    places = torch.sort(torch.where(x.reshape(-1) != 0, places, count))[0]
    places = torch.nn.functional.pad(places, (0, max(0, size - count)), value=count)[:size]
    columns, rest = [], places
    for length in reversed(x.shape):
        columns.append(rest % length)
        rest = rest // length
    found = torch.stack(columns[::-1], 1) if columns else places.new_empty(size, 0)
    return torch.where(places[:, None] < count, found, fill_value)


def _mode(x: Any, dim: int = -1, keepdim: bool = False) -> tuple[Any, Any]:
    """The smallest of the values that occur most often, and its last place."""
    dim %= x.dim()
    counts = (x.unsqueeze(dim + 1) == x.unsqueeze(dim)).sum(dim + 1)
    often = counts == counts.amax(dim, keepdim=True)
    value = torch.where(often, x, x.amax(dim, keepdim=True)).amin(dim, keepdim=True)
    sizes = [1] * x.dim()
    sizes[dim] = x.shape[dim]
    places = torch.arange(x.shape[dim], device=x.device).reshape(sizes)
    last = torch.where(x == value, places, -1).amax(dim, keepdim=True)
    return (value, last) if keepdim else (value.squeeze(dim), last.squeeze(dim))


def _put(x: Any, index: Any, source: Any, accumulate: bool = False) -> Any:
    """Elements at places of a tensor whose axes are one."""
    values = source.reshape(-1)
    return torch.index_put(x.reshape(-1), (index.reshape(-1),), values, accumulate).reshape(x.shape)


def _histogram(x: Any, bins: int = 100, min: Any = 0, max: Any = 0) -> Any:
    """How many elements lie in each of some equal intervals; the last one has its end."""
    x = x.reshape(-1, 1)
    if min == max:  # the ends are those of the data
        min, max = x.amin(), x.amax()
        apart = (min == max).to(x.dtype)
        min, max = min - apart, max + apart
    place = ((x - min) * bins / (max - min)).floor().clamp(max=bins - 1)
    held = (place == torch.arange(bins, device=x.device)) & (x >= min) & (x <= max)
    return held.sum(0).to(x.dtype)


def _grouped_mm(
    a: Any, b: Any, offs: Any = None, bias: Any = None, out_dtype: torch.dtype | None = None
) -> Any:
    """Rows (rows, k), each times the matrix of its group (groups, k, n), of which ``offs`` (groups)
    are the ends. Every row is multiplied by all matrices; rows of no group are zero."""
    if offs is None or bias is not None or (a.dim(), b.dim()) != (2, 3):
        return NotImplemented
    rows = torch.arange(len(a), device=a.device)
    ends, begins = offs, torch.cat((offs.new_zeros(1), offs[:-1]))
    held = (rows >= begins[:, None]) & (rows < ends[:, None])
    products = torch.matmul(a, b)
    zero = torch.zeros((), dtype=products.dtype, device=a.device)
    return torch.where(held[..., None], products, zero).sum(0).to(out_dtype or a.dtype)


DECOMPOSITIONS: dict[Any, Callable[..., Any]] = {
    _aten.searchsorted.Tensor: _searchsorted,
    _aten.searchsorted.Scalar: _searchsorted,
    **dict.fromkeys((_aten.bucketize.Tensor, _aten.bucketize.Scalar), _bucketize),
    _aten.histc.default: _histogram,
    _aten._grouped_mm.default: _grouped_mm,
    _aten.repeat_interleave.Tensor: _repeats,
    _aten.index_select.default: _index_select,
    _aten.masked_scatter.default: _masked_scatter,
    _aten.take.default: lambda x, index: _aten.index.Tensor(x.reshape(-1), [index]),
    _aten.nonzero_static.default: _nonzero,
    _aten.mode.default: _mode,
    _aten.put.default: _put,
    _aten._embedding_bag.default: _embedding_bag,
    _aten._embedding_bag_forward_only.default: _embedding_bag,
}
#: Of other libraries, which need not be installed, by their names.
NAMED: dict[str, Callable[..., Any]] = {"transformers.grouped_mm_fallback.default": _grouped_mm}
