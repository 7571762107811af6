"""Discrete Fourier transforms of real and imaginary parts, as products with constant matrices."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from ..errors import UnsupportedOp

Parts = tuple[Any, Any]
#: Elements of a matrix, at most.
_MOST_ELEMENTS = 1 << 23


def _times(parts: Sequence[Any], matrix: np.ndarray[Any, Any], dim: int) -> Any:
    """Parts, one behind the other along an axis, times a matrix; that axis comes last."""
    if matrix.size > _MOST_ELEMENTS:
        raise UnsupportedOp(
            f"a Fourier transform of {matrix.shape[0] // len(parts)} elements",
            f"one whose matrix has {_MOST_ELEMENTS} elements at most",
        )
    # Sines of multiples of pi: imaginary parts that are zero must not be on the cut of an angle.
    matrix = np.where(np.abs(matrix) < 1e-12 * np.abs(matrix).max(), 0.0, matrix)
    whole = torch.cat([part.movedim(dim, -1) for part in parts], -1)
    return whole @ torch.from_numpy(matrix.astype("float32")).to(whole)


def _angles(rows: int, columns: int, size: int) -> np.ndarray[Any, Any]:
    product = np.outer(np.arange(rows), np.arange(columns)) % size  # exact, also of large ones
    return product * (2 * math.pi / size)


def _scale(sizes: Sequence[int], normalization: int) -> float:
    """0 is none, 1 by the root of the number of elements, 2 by that number."""
    return float(math.prod(sizes)) ** (-0.5 * normalization)


def _halves(x: Any, dim: int) -> Parts:
    real, imaginary = x.chunk(2, -1)
    return real.movedim(-1, dim), imaginary.movedim(-1, dim)


def complex_to_complex(x: Parts, dims: Sequence[int], normalization: int, forward: bool) -> Parts:
    """Transform each of the axes, forward by exp(-2 pi i j k / n)."""
    for dim in dims:
        n = x[0].shape[dim]
        angles, sign = _angles(n, n, n), 1 if forward else -1
        cos, sin = np.cos(angles), np.sin(angles) * sign
        matrix = np.block([[cos, -sin], [sin, cos]]) * _scale([n], normalization)
        x = _halves(_times(x, matrix, dim), dim)
    return x


def real_to_complex(x: Any, dims: Sequence[int], normalization: int, onesided: bool) -> Parts:
    """Of the last axis the first half is enough, if it is one-sided."""
    *others, last = dims
    n = x.shape[last]
    angles = _angles(n, n // 2 + 1 if onesided else n, n)
    matrix = np.hstack([np.cos(angles), -np.sin(angles)]) * _scale([n], normalization)
    return complex_to_complex(_halves(_times([x], matrix, last), last), others, normalization, True)


def complex_to_real(x: Parts, dims: Sequence[int], normalization: int, size: int) -> Any:
    """The inverse of a one-sided transform, whose last axis then has a given size."""
    *others, last = dims
    x = complex_to_complex(x, others, normalization, False)
    count = x[0].shape[last]
    angles = _angles(count, size, size)
    twice = np.where((np.arange(count) * 2) % size == 0, 1.0, 2.0)[:, None]
    matrix = np.vstack([twice * np.cos(angles), -twice * np.sin(angles)])
    return _times(x, matrix * _scale([size], normalization), last).movedim(-1, last)
