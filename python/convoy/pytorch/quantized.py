"""Operators of quantized programs (``convert_pt2e`` of torchao) and of training for them, in terms
of arithmetic.

A value is ``(integer - zero) * scale``. As in PyTorch, numbers are multiplied by the reciprocal of
the scale and rounded half to even; with one scale for each row (token), the zero point is added
before that.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

_EPSILON = torch.finfo(torch.float32).eps


def _narrow(value: Any, dtype: torch.dtype) -> Any:
    """A scale that is a tensor of float64 does not widen what it is multiplied with."""
    return value.to(dtype) if isinstance(value, torch.Tensor) else value


def _quantize(
    x: Any, scale: Any, zero: Any, low: int, high: int, dtype: torch.dtype
) -> torch.Tensor:
    grid = torch.round(x.to(torch.float32) * _narrow(1.0 / scale, torch.float32)) + zero
    return grid.clamp(low, high).to(dtype)


def _dequantize(
    q: Any, scale: Any, zero: Any, low: int, high: int, dtype: torch.dtype,
    *, out_dtype: torch.dtype | None = None,
) -> torch.Tensor:  # fmt: skip
    wide = out_dtype or torch.float32
    return (q.to(wide) - zero) * _narrow(scale, wide)


def _along(x: Any, axis: int, values: Any) -> Any:
    """Values of an axis in a shape that broadcasts to x; no tensor stands for zeros."""
    if values is None:
        return 0
    shape = [1] * x.dim()
    shape[axis] = -1
    return values.reshape(shape)


def _quantize_channels(
    x: Any, scale: Any, zero: Any, axis: int, low: int, high: int, dtype: torch.dtype
) -> torch.Tensor:
    return _quantize(x, _along(x, axis, scale), _along(x, axis, zero), low, high, dtype)


def _dequantize_channels(
    q: Any, scale: Any, zero: Any, axis: int, low: int, high: int, dtype: torch.dtype,
    *, out_dtype: torch.dtype | None = None,
) -> torch.Tensor:  # fmt: skip
    scale, zero = _along(q, axis, scale), _along(q, axis, zero)
    return _dequantize(q, scale, zero, low, high, dtype, out_dtype=out_dtype)


def _fake(x: Any, scale: Any, zero: Any, low: int, high: int) -> Any:
    """Rounded to an integer grid and back, and where the grid's ends are not passed."""
    grid = torch.round(x * (1 / scale)) + zero
    return (grid.clamp(low, high) - zero) * scale, (grid >= low) & (grid <= high)


def _fake_channels(x: Any, scale: Any, zero: Any, axis: int, low: int, high: int) -> Any:
    return _fake(x, _along(x, axis, scale), _along(x, axis, zero), low, high)


def _quantize_rows(
    x: Any, scale: Any, zero: Any, low: int, high: int, dtype: torch.dtype
) -> torch.Tensor:
    return (x * (1.0 / scale) + zero).round().clamp(low, high).to(dtype)


def _dequantize_rows(
    q: Any, scale: Any, zero: Any, low: int, high: int, dtype: torch.dtype,
    output_dtype: torch.dtype = torch.float32,
) -> torch.Tensor:  # fmt: skip
    return ((q.to(scale.dtype) - zero) * scale).to(output_dtype)


def _quantize_groups(
    x: Any, scale: Any, zero: Any, low: int, high: int, dtype: torch.dtype, size: int = 128
) -> torch.Tensor:
    """Matrices with a scale for each group of elements in a row."""
    scale, zero = scale.reshape(-1, 1), zero.reshape(-1, 1)
    groups = x.reshape(len(scale), -1)
    return _quantize_rows(groups, scale, zero, low, high, dtype).reshape(x.shape)


def _dequantize_groups(
    q: Any, scale: Any, zero: Any, low: int, high: int, dtype: torch.dtype, size: int = 128,
    output_dtype: torch.dtype = torch.float32,
) -> torch.Tensor:  # fmt: skip
    scale = scale.reshape(-1, 1)
    zero = 0 if zero is None else zero.reshape(-1, 1)
    groups = q.reshape(len(scale), -1)
    return _dequantize_rows(groups, scale, zero, low, high, dtype, output_dtype).reshape(q.shape)


def _choose(x: Any, low: int, high: int, epsilon: float, dtype: torch.dtype) -> Any:
    """A scale and a zero point for the range of a tensor, which includes zero."""
    least, most = x.min().clamp(max=0), x.max().clamp(min=0)
    scale = ((most - least) / (high - low)).clamp(min=epsilon)
    zero = (low - torch.round(least / scale)).clamp(low, high)
    return scale.reshape(1).to(torch.float64), zero.reshape(1).to(torch.int64)


def _choose_symmetric(x: Any, low: int, high: int, epsilon: float, dtype: torch.dtype) -> Any:
    scale = (x.abs().max() / ((high - low) / 2)).clamp(min=epsilon)
    zero = torch.full((1,), 128 if dtype == torch.uint8 else 0, device=x.device)
    return scale.reshape(1).to(torch.float64), zero


def _choose_rows(x: Any, dtype: torch.dtype) -> Any:
    scale = x.abs().amax(-1, keepdim=True)
    if scale.dtype == torch.float16:
        scale = scale.to(torch.float32)
    scale = scale.clamp(min=1e-5) / 127
    return scale, torch.zeros_like(scale)


def _choose_rows_asymmetric(x: Any, dtype: torch.dtype) -> Any:
    least, most = x.amin(-1, keepdim=True).clamp(max=0), x.amax(-1, keepdim=True).clamp(min=0)
    scale = ((most - least) / 255).clamp(min=_EPSILON)
    below, above = least / scale, most / scale
    zero = torch.where(below + above - 1 > 0, -128 - below, 127 - above)
    return scale.to(torch.float64), zero.clamp(-128, 127).round().to(torch.int64)


_aten = torch.ops.aten
DECOMPOSITIONS: dict[Any, Callable[..., Any]] = {
    _aten.fake_quantize_per_tensor_affine_cachemask.default: _fake,
    _aten.fake_quantize_per_channel_affine_cachemask.default: _fake_channels,
}
_RULES: dict[str, Callable[..., Any]] = {
    "quantize_per_tensor.default": _quantize,
    "quantize_per_tensor.tensor": _quantize,
    "quantize_per_tensor.tensor2": _quantize,
    "dequantize_per_tensor.default": _dequantize,
    "dequantize_per_tensor.tensor": _dequantize,
    "dequantize_per_tensor.tensor2": _dequantize,
    "quantize_per_channel.default": _quantize_channels,
    "dequantize_per_channel.default": _dequantize_channels,
    "quantize_per_token.default": _quantize_rows,
    "dequantize_per_token.default": _dequantize_rows,
    "quantize_per_channel_group.default": _quantize_groups,
    "dequantize_per_channel_group.default": _dequantize_groups,
    "choose_qparams.tensor": _choose,
    "choose_qparams_symmetric.tensor": _choose_symmetric,
    "choose_qparams_per_token.default": _choose_rows,
    "choose_qparams_per_token_asymmetric.default": _choose_rows_asymmetric,
    "convert_element_type.no_fuse": lambda x, dtype: x.to(dtype),
}
#: By the operators' names: PyTorch registers them when its quantization is imported.
NAMED = {f"quantized_decomposed.{name}": rule for name, rule in _RULES.items()}
