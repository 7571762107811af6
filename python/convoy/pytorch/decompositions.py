"""Operators in terms of others that TVM's importer converts rightly."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

_aten = torch.ops.aten


def _add(a: Any, b: Any, *, alpha: Any = 1) -> Any:
    return NotImplemented if alpha == 1 else a + b * alpha


def _sub(a: Any, b: Any, *, alpha: Any = 1) -> Any:
    return NotImplemented if alpha == 1 else a - b * alpha


def _mul(a: Any, b: Any) -> Any:
    both = isinstance(b, torch.Tensor) and a.dtype == b.dtype == torch.bool
    return torch.logical_and(a, b) if both else NotImplemented


def _clamp(x: Any, low: Any = None, high: Any = None) -> Any:
    """A positive bound that float16 rounds to zero is its smallest number: a length that is divided
    by must not be zero (``normalize`` of zeros is then zero, as in float32, where PyTorch has NaN).
    """
    smallest = 2.0**-24
    if x.dtype != torch.float16 or low is None or not 0 < low < smallest:
        return NotImplemented
    return _aten.clamp.default(x, smallest, high)


def _elu(x: Any, alpha: Any = 1, scale: Any = 1, input_scale: Any = 1) -> Any:
    """SELU and CELU are scaled ELUs."""
    if scale == 1 and input_scale == 1:
        return NotImplemented
    return torch.where(x > 0, x, alpha * (torch.exp(x * input_scale) - 1)) * scale


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


def _negative(x: Any) -> Any:
    """The sign, that of zero too."""
    return (x < 0) | ((x == 0) & (1 / x < 0))


def _copysign(a: Any, b: Any) -> Any:
    return torch.where(_negative(b), -a.abs(), a.abs())


def _cdist(a: Any, b: Any, p: float, mode: Any = None) -> Any:
    apart = (a.unsqueeze(-2) - b.unsqueeze(-3)).abs()
    if p == math.inf:
        return apart.amax(-1)
    if p == 2:
        return (apart * apart).sum(-1).sqrt()
    return apart.sum(-1) if p == 1 else NotImplemented


def _trilinear(
    a: Any, b: Any, c: Any, expand_a: Any, expand_b: Any, expand_c: Any, sums: Any, unroll: int = 1
) -> Any:
    for axis in expand_a:
        a = a.unsqueeze(axis)
    for axis in expand_b:
        b = b.unsqueeze(axis)
    for axis in expand_c:
        c = c.unsqueeze(axis)
    return (a * b * c).sum(sums)


DECOMPOSITIONS: dict[Any, Callable[..., Any]] = {
    _aten.add.Tensor: _add,
    _aten.sub.Tensor: _sub,
    _aten.mul.Tensor: _mul,
    _aten.clamp.default: _clamp,
    _aten.elu.default: _elu,
    _aten.var_mean.correction: _var_mean,
    _aten.min.dim: _smallest,
    _aten.max.dim: _largest,
    _aten.kthvalue.default: _kth,
    _aten.copysign.Tensor: _copysign,
    _aten.signbit.default: _negative,
    _aten.fmax.default: lambda a, b: torch.where(a.isnan(), b, torch.where(b.isnan(), a, a.max(b))),
    _aten.fmin.default: lambda a, b: torch.where(a.isnan(), b, torch.where(b.isnan(), a, a.min(b))),
    _aten.hypot.default: lambda a, b: torch.sqrt(a * a + b * b),
    _aten.erfc.default: lambda x: 1 - torch.erf(x),
    _aten.exp2.default: lambda x: torch.exp(x * math.log(2)),
    _aten.__lshift__.Scalar: lambda x, count: x * 2**count,
    _aten._cdist_forward.default: _cdist,
    _aten._trilinear.default: _trilinear,
}
