"""Weights of ONNX's Resize along one axis."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

#: How far from the middle of two elements a place still counts as it, as onnxruntime has it.
_MIDDLE = 1e-6


@dataclass(frozen=True)
class Axis:
    """An axis of ``size`` elements that becomes one of ``out``; ``attrs`` are those of Resize."""

    size: int
    out: int
    scale: float
    crop: tuple[float, float]
    attrs: Mapping[str, Any]


def weights(axis: Axis) -> tuple[np.ndarray, np.ndarray]:
    """(matrix, (out, size), what lies outside of the input)."""
    matrix = np.zeros((axis.out, axis.size))
    beyond = np.zeros(axis.out, bool)
    attrs = axis.attrs
    crops = attrs.get("coordinate_transformation_mode") == "tf_crop_and_resize"
    mode, antialias = attrs.get("mode", "nearest"), bool(attrs.get("antialias", 0))
    exclude = bool(attrs.get("exclude_outside", 0))
    rounding = attrs.get("nearest_mode", "round_prefer_floor")
    if rounding == "by_scale":  # of opset 10
        rounding = "ceil" if axis.scale < 1 else "floor"
    for row in range(axis.out):
        at = _place(axis, row)
        beyond[row] = crops and not 0 <= at <= axis.size - 1
        if mode == "nearest":
            matrix[row, _clamp(_nearest(at, rounding), axis.size)] = 1
            continue
        first, shares = _shares(at, axis, mode, antialias)
        total = 0.0
        for i, share in enumerate(shares):
            if exclude and not 0 <= first + i < axis.size:
                continue
            matrix[row, _clamp(first + i, axis.size)] += share
            total += share
        if exclude and total:
            matrix[row] /= total
    return matrix, beyond


def _clamp(index: int, size: int) -> int:
    return max(0, min(size - 1, index))


def _place(axis: Axis, row: int) -> float:
    """The coordinate in the input of an element of the result.

    In float32, as onnxruntime has it: where results fall between two elements, digits decide which
    one is the nearest. Corners are aligned by the sizes, also where these come of a fraction of an
    element: so have it onnxruntime and PyTorch.
    """
    f32 = np.float32
    x, scale, half = f32(row), f32(axis.scale), f32(0.5)
    last, steps = f32(axis.size - 1), f32(axis.out - 1)
    mode = axis.attrs.get("coordinate_transformation_mode", "half_pixel")
    if mode == "align_corners":
        return 0.0 if axis.out == 1 else float(x * last / steps)
    if mode == "asymmetric":
        return float(x / scale)
    if mode == "tf_half_pixel_for_nn":
        return float((x + half) / scale)
    if mode == "tf_crop_and_resize":
        start, end = map(f32, axis.crop)
        if axis.out == 1:
            return float(half * (start + end) * last)
        return float(start * last + x * (end - start) * last / steps)
    if mode == "pytorch_half_pixel" and axis.out == 1:
        return 0.0
    if mode == "half_pixel_symmetric":
        offset = f32(axis.size / 2) * (1 - f32(axis.out) / (scale * f32(axis.size)))
        return float(f32(float(offset) + (row + 0.5) / float(scale) - 0.5))
    return float((x + half) / scale - half)


def _nearest(at: float, mode: str) -> int:
    low = math.floor(at)
    if mode == "floor":
        return low
    if mode == "ceil":
        return math.ceil(at)
    if abs(at - low - 0.5) <= _MIDDLE:
        return low + (mode == "round_prefer_ceil")
    return math.floor(at + 0.5)


def _shares(at: float, axis: Axis, mode: str, antialias: bool) -> tuple[int, list[float]]:
    """The first element that counts and the shares from it on; fewer pixels see more of them."""
    reach = 1 if mode == "linear" else 2
    shrink = min(axis.scale, 1.0) if antialias else 1.0
    whole = math.floor(at)
    first = math.floor(-reach / shrink) + 1
    offsets = range(first, 2 - first)
    a = float(axis.attrs.get("cubic_coeff_a", -0.75))
    kernel = [_kernel(abs(shrink * (i - (at - whole))), mode, a) for i in offsets]
    total = sum(kernel) if antialias else 1.0
    return whole + first, [k / total for k in kernel]


def _kernel(x: float, mode: str, a: float) -> float:
    if mode == "linear":
        return max(0.0, 1 - x)
    if x <= 1:
        return ((a + 2) * x - (a + 3)) * x * x + 1
    return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a if x < 2 else 0.0
