"""Operators in terms of others that TVM's importer converts rightly."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from . import (
    deformable,
    encoder_layer,
    linear_systems,
    losses,
    quantized,
    scalars,
    scans,
    scatters,
    searching,
    special,
)

_aten = torch.ops.aten
_NORMS = (
    _aten.native_layer_norm.default,
    _aten.native_group_norm.default,
    _aten._native_batch_norm_legit_no_training.default,
    _aten._native_batch_norm_legit_functional.default,
)


def _add(a: Any, b: Any, *, alpha: Any = 1) -> Any:
    return NotImplemented if alpha == 1 else a + b * alpha


def _sub(a: Any, b: Any, *, alpha: Any = 1) -> Any:
    return NotImplemented if alpha == 1 else a - b * alpha


def _mul(a: Any, b: Any) -> Any:
    """Zero times infinity or NaN is NaN; TVM makes zero of every product with zero."""
    if isinstance(b, int | float) and b == 0 and a.is_floating_point():
        return torch.where(a.isfinite(), 0.0, math.nan).to(a.dtype)
    both = all(isinstance(x, torch.Tensor) and x.dtype == torch.bool for x in (a, b))
    return torch.logical_and(a, b) if both else NotImplemented


def _neg(x: Any) -> Any:
    """TVM has no -1 of unsigned integers."""
    return NotImplemented if x.dtype.is_signed else 0 - x


def _sign(x: Any) -> Any:
    return NotImplemented if x.dtype.is_signed else (x > 0).to(x.dtype)


def _cat(tensors: Sequence[Any], dim: int = 0) -> Any:
    """Without empty tensors, which PyTorch takes of any rank."""
    kept = [x for x in tensors if x.numel()]
    if len(kept) in (0, len(tensors)):
        return NotImplemented
    dtype = functools.reduce(torch.promote_types, [x.dtype for x in tensors])
    return torch.cat([x.to(dtype) for x in kept], dim)


def _view(x: Any, shape: Any) -> Any:
    """Decompositions may lay out results in other ways than the operators, for which views were
    traced."""
    return NotImplemented if x.is_contiguous() else x.contiguous().view(shape)


def _clamp(x: Any, low: Any = None, high: Any = None) -> Any:
    """A positive bound that float16 rounds to zero is its smallest number: a length that is divided
    by must not be zero (``normalize`` of zeros is then zero, as in float32, where PyTorch has NaN).
    """
    smallest = 2.0**-24
    if x.dtype != torch.float16 or low is None or not 0 < low < smallest:
        return NotImplemented
    return _aten.clamp.default(x, smallest, high)


def _pad(x: Any, widths: Sequence[int], mode: str = "constant", value: Any = None) -> Any:
    """Circular padding as one gather along each axis; PyTorch would copy part by part. A negative
    width cuts elements off."""
    if mode != "circular":
        return NotImplemented
    for axis, (before, after) in enumerate(zip(widths[::2], widths[1::2], strict=True)):
        first = max(0, -before)  # of those that are kept, of which the others are copies
        size = x.shape[-1 - axis] - first - max(0, -after)
        if before or after:
            places = torch.arange(-max(0, before), size + max(0, after), device=x.device) % size
            x = torch.index_select(x, -1 - axis, places + first)
    return x


def _clamp_by_tensors(x: Any, low: Any = None, high: Any = None) -> Any:
    """Between bounds that may have axes which the tensor has not."""
    x = x if low is None else torch.maximum(x, low)
    return x if high is None else torch.minimum(x, high)


def _addbmm(x: Any, a: Any, b: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:
    """The sum of the products of a batch is one product."""
    rows, columns = a.transpose(0, 1).flatten(1), b.flatten(0, 1)
    return torch.addmm(x, rows, columns, beta=beta, alpha=alpha)


def _elu(x: Any, alpha: Any = 1, scale: Any = 1, input_scale: Any = 1) -> Any:
    """SELU and CELU are scaled ELUs."""
    if scale == 1 and input_scale == 1:
        return NotImplemented
    return torch.where(x > 0, x, alpha * (torch.exp(x * input_scale) - 1)) * scale


def _norm(operator: Callable[..., Any]) -> Callable[..., Any]:
    """A norm in the dtype of its weights and statistics, which may be wider than the data's."""

    def decompose(x: Any, *args: Any) -> Any:
        dtypes = {one.dtype for one in args if isinstance(one, torch.Tensor)} - {x.dtype}
        if not dtypes:
            return NotImplemented
        y, *rest = operator(x.to(dtypes.pop()), *args)
        return (y.to(x.dtype), *rest)

    return decompose


def _var_mean(x: Any, dim: Any = None, *, correction: Any = None, keepdim: bool = False) -> Any:
    axes = dim if dim else list(range(x.dim()))
    return (
        _aten.var.correction(x, axes, correction=correction, keepdim=keepdim),
        _aten.mean.dim(x, axes, keepdim),
    )


def _smallest(x: Any, dim: int, keepdim: bool = False) -> Any:
    return _aten.amin(x, [dim], keepdim), _aten.argmin(x, dim, keepdim)


def _largest(x: Any, dim: int, keepdim: bool = False) -> Any:
    """Nothing has to be sorted for a maximum."""
    return _aten.amax(x, [dim], keepdim), _aten.argmax(x, dim, keepdim)


def _kth(x: Any, k: int, dim: int = -1, keepdim: bool = False) -> Any:
    values, indices = torch.sort(x, dim)
    found = values.narrow(dim, k - 1, 1), indices.narrow(dim, k - 1, 1)
    return found if keepdim else tuple(value.squeeze(dim) for value in found)


def _median(x: Any, dim: int, keepdim: bool = False, skip: bool = False) -> Any:
    """The lower of two middle values, and its place: NaN where there is one, unless it is left out
    of the count."""
    order = torch.sort(x, dim)[1]
    if not x.is_floating_point():
        place = order.narrow(dim, (x.shape[dim] - 1) // 2, 1)
    elif skip:
        count = (~x.isnan()).sum(dim, keepdim=True)
        place = order.gather(dim, (count - 1).clamp(min=0) // 2)
    else:
        middle = order.narrow(dim, (x.shape[dim] - 1) // 2, 1)
        place = torch.where(x.isnan().any(dim, True), x.argmax(dim, True), middle)
    found = x.gather(dim, place), place
    return found if keepdim else tuple(value.squeeze(dim) for value in found)


def _median_of_all(x: Any, skip: bool = False) -> Any:
    return _median(x.reshape(-1), 0, skip=skip)[0]


def _negative(x: Any) -> Any:
    """The sign, that of zero too."""
    return (x < 0) | ((x == 0) & (1 / x < 0))


def _copysign(a: Any, b: Any) -> Any:
    """A float, of integers too."""
    dtype = torch.result_type(a, b)
    size = a.to(dtype if dtype.is_floating_point else torch.float32).abs()
    if isinstance(b, torch.Tensor):
        return torch.where(_negative(b), -size, size)
    return -size if math.copysign(1, b) < 0 else size


def _angle(x: Any) -> Any:
    if x.is_complex():
        return NotImplemented
    dtype = x.dtype if x.is_floating_point() else torch.get_default_dtype()
    return torch.where(x.isnan(), x, torch.where(x < 0, math.pi, 0.0)).to(dtype)


def _length(apart: Any, p: float) -> Any:
    """The p-norm over the last axis."""
    if p == 0:
        return (apart != 0).sum(-1).to(apart.dtype)
    apart = apart.abs()
    if p == math.inf:
        return apart.amax(-1)
    if p == 2:
        return (apart * apart).sum(-1).sqrt()
    return apart.sum(-1) if p == 1 else (apart**p).sum(-1) ** (1 / p)


def _cdist(a: Any, b: Any, p: float, mode: Any = None) -> Any:
    return _length(a.unsqueeze(-2) - b.unsqueeze(-3), p)


def _pdist(x: Any, p: float = 2) -> Any:
    first, second = torch.triu_indices(len(x), len(x), 1, device=x.device)
    return _length(x[first] - x[second], p)


def _topk(x: Any, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> Any:
    """Any order will do where none is asked for."""
    return NotImplemented if sorted else torch.topk(x, k, dim, largest)


def _is_narrow(x: Any) -> bool:
    """Whether a tensor is of integers that TVM does not sort."""
    return not x.is_floating_point() and x.dtype.itemsize < 4


def _ordered(operator: Callable[..., Any]) -> Callable[..., Any]:
    """Narrow integers as int32."""

    def decompose(x: Any, *args: Any, **kwargs: Any) -> Any:
        if not _is_narrow(x):
            return NotImplemented
        found = operator(x.int(), *args, **kwargs)
        if isinstance(found, torch.Tensor):
            return found.to(x.dtype)
        return found[0].to(x.dtype), found[1]

    return decompose


def _stable_sort(x: Any, *, stable: Any = None, dim: int = -1, descending: bool = False) -> Any:
    values, indices = torch.sort(x.int() if _is_narrow(x) else x, dim, descending)
    return values.to(x.dtype), indices


def _rrelu(
    x: Any, noise: Any, lower: float = 1 / 8, upper: float = 1 / 3, training: bool = False,
    generator: Any = None,
) -> Any:  # fmt: skip
    """Random slopes only in training; otherwise their mean."""
    if training:
        return NotImplemented
    return torch.nn.functional.leaky_relu(x, (lower + upper) / 2), noise


def _trilinear(
    a: Any, b: Any, c: Any, expand_a: Any, expand_b: Any, expand_c: Any, sums: Any, unroll: int = 1
) -> Any:
    for axis in expand_a:
        a = a.unsqueeze(axis)
    for axis in expand_b:
        b = b.unsqueeze(axis)
    for axis in expand_c:
        c = c.unsqueeze(axis)
    return (a * b * c).sum(sums, dtype=a.dtype)


_RULES: dict[Any, Callable[..., Any]] = {
    _aten.add.Tensor: _add,
    _aten.sub.Tensor: _sub,
    _aten.mul.Tensor: _mul,
    _aten.cat.default: _cat,
    _aten.view.default: _view,
    _aten.clamp.default: _clamp,
    _aten.clamp.Tensor: _clamp_by_tensors,
    _aten.addbmm.default: _addbmm,
    _aten.elu.default: _elu,
    _aten.pad.default: _pad,
    **{one: _norm(one) for one in _NORMS},
    _aten.var_mean.correction: _var_mean,
    _aten.min.dim: _smallest,
    _aten.max.dim: _largest,
    _aten.kthvalue.default: _kth,
    _aten.angle.default: _angle,
    _aten.copysign.Tensor: _copysign,
    _aten.copysign.Scalar: _copysign,
    _aten.signbit.default: _negative,
    _aten.fmax.default: lambda a, b: torch.where(a.isnan(), b, torch.where(b.isnan(), a, a.max(b))),
    _aten.fmin.default: lambda a, b: torch.where(a.isnan(), b, torch.where(b.isnan(), a, a.min(b))),
    **dict.fromkeys(
        (_aten.__lshift__.Scalar, _aten.bitwise_left_shift.Tensor_Scalar),
        lambda x, count: x * 2**count,
    ),
    **dict.fromkeys(
        (_aten.__rshift__.Scalar, _aten.bitwise_right_shift.Tensor_Scalar),
        lambda x, count: torch.div(x, 2**count, rounding_mode="floor"),
    ),
    # As traced scripts have it, with flags of cuDNN behind.
    _aten._convolution.default: lambda *args: _aten.convolution.default(*args[:9]),
    _aten._int_mm.default: lambda a, b: torch.mm(a.to(torch.int32), b.to(torch.int32)),
    _aten._cdist_forward.default: _cdist,
    _aten._pdist_forward.default: _pdist,
    _aten._trilinear.default: _trilinear,
    _aten.neg.default: _neg,
    _aten.sign.default: _sign,
    _aten.topk.default: _topk,
    _aten.sort.stable: _stable_sort,
    _aten.sort.default: _ordered(_aten.sort.default),
    _aten.median.dim: _median,
    _aten.median.default: _median_of_all,
    _aten.nanmedian.dim: functools.partial(_median, skip=True),
    _aten.nanmedian.default: functools.partial(_median_of_all, skip=True),
    _aten.rrelu_with_noise.default: lambda *args: _rrelu(*args)[0],
    _aten.rrelu_with_noise_functional.default: _rrelu,
    **encoder_layer.DECOMPOSITIONS,
    **linear_systems.DECOMPOSITIONS,
    **losses.DECOMPOSITIONS,
    **quantized.DECOMPOSITIONS,
    **scans.DECOMPOSITIONS,
    **scatters.DECOMPOSITIONS,
    **searching.DECOMPOSITIONS,
    **special.DECOMPOSITIONS,
}
DECOMPOSITIONS = scalars.with_scalars(_RULES)
#: Operators of libraries that need not be imported, by their names.
NAMED: dict[str, Callable[..., Any]] = {
    **deformable.NAMED,
    **quantized.NAMED,
    **searching.NAMED,
}
