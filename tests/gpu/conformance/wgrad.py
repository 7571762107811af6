"""The gradient of a convolution's weight, from its definition."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def conv_wgrad(
    grad: np.ndarray,
    data: np.ndarray,
    kernel: Sequence[int],
    strides: Sequence[int],
    padding: Sequence[int],
    groups: int = 1,
) -> np.ndarray:
    """Weight gradient (o, i / groups, kh, kw) of channels-first arrays: the sum over all outputs
    of what they saw, times their gradient."""
    n, o, p, q = grad.shape
    c = data.shape[1]
    data = np.pad(data, [(0, 0), (0, 0), (padding[0],) * 2, (padding[1],) * 2])
    out = np.zeros((o, c // groups, *kernel))
    grad = grad.reshape(n, groups, o // groups, p, q)
    for r, s in np.ndindex(*kernel):
        rows = slice(r, r + (p - 1) * strides[0] + 1, strides[0])
        columns = slice(s, s + (q - 1) * strides[1] + 1, strides[1])
        seen = data[:, :, rows, columns].reshape(n, groups, c // groups, p, q)
        tap = np.einsum("ngopq,ngipq->goi", grad, seen, optimize=True)
        out[:, :, r, s] = tap.reshape(o, c // groups)
    return out
