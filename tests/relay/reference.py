"""Plain numpy versions of operators, written from their definitions."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def erf(x: np.ndarray) -> np.ndarray:
    return np.vectorize(math.erf)(x).astype(x.dtype)


def softmax(x: np.ndarray, axis: int) -> np.ndarray:
    e = np.exp(x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


def along(vector: np.ndarray, x: np.ndarray, axis: int) -> np.ndarray:
    return vector.reshape([-1 if i == axis else 1 for i in range(x.ndim)])


def affine(x: np.ndarray, gamma: np.ndarray, beta: np.ndarray, axis: int) -> np.ndarray:
    return x * along(gamma, x, axis) + along(beta, x, axis)


def normalized(x: np.ndarray, axes: tuple[int, ...], epsilon: float = 1e-5) -> np.ndarray:
    mean, var = x.mean(axes, keepdims=True), x.var(axes, keepdims=True)
    return (x - mean) / np.sqrt(var + epsilon)


def lrn(x: np.ndarray, size: int, bias: float, alpha: float, beta: float) -> np.ndarray:
    out = np.empty_like(x)
    for c in range(x.shape[1]):
        window = x[:, max(0, c - size // 2) : c + size // 2 + 1]
        out[:, c] = x[:, c] / (bias + alpha / size * (window**2).sum(1)) ** beta
    return out


def scatter_add(x: np.ndarray, indices: np.ndarray, updates: np.ndarray) -> np.ndarray:
    out = x.copy()
    for row in range(indices.shape[0]):
        for column in range(indices.shape[1]):
            out[row, indices[row, column]] += updates[row, column]
    return out


def scatter_nd(x: np.ndarray, indices: np.ndarray, updates: np.ndarray) -> np.ndarray:
    out = x.copy()
    out[tuple(indices)] = updates
    return out


def reverse_sequence(x: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    out = x.copy()
    for column, length in enumerate(lengths):
        out[:length, column] = x[:length, column][::-1]
    return out


def depth_to_space_dcr(x: np.ndarray, block: int = 2) -> np.ndarray:
    n, c, h, w = x.shape
    x = x.reshape(n, block, block, c // block**2, h, w).transpose(0, 3, 4, 1, 5, 2)
    return x.reshape(n, c // block**2, h * block, w * block)


def bilinear_align_corners(x: np.ndarray, height: int, width: int) -> np.ndarray:
    def at(size: int, out: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        place = np.arange(out) * (size - 1) / (out - 1)
        low = np.floor(place).astype(int)
        return low, np.minimum(low + 1, size - 1), place - low

    h0, h1, fh = at(x.shape[2], height)
    w0, w1, fw = at(x.shape[3], width)
    rows = x[:, :, h0] * (1 - fh)[:, None] + x[:, :, h1] * fh[:, None]
    return (rows[..., w0] * (1 - fw) + rows[..., w1] * fw).astype(x.dtype)


def conv(
    x: np.ndarray,
    w: np.ndarray,
    strides: Sequence[int],
    padding: Sequence[tuple[int, int]],
    dilation: Sequence[int],
    groups: int = 1,
) -> np.ndarray:
    """Convolution of channels-first data with (o, i / groups, *kernel), over any number of axes."""
    rank = x.ndim - 2
    x = np.pad(x, [(0, 0), (0, 0), *padding])
    kernel = w.shape[2:]
    size = [
        (x.shape[2 + i] - (kernel[i] - 1) * dilation[i] - 1) // strides[i] + 1 for i in range(rank)
    ]
    out = np.zeros((x.shape[0], w.shape[0], *size))
    per_in, per_out = x.shape[1] // groups, w.shape[0] // groups
    for tap in np.ndindex(*kernel):
        window = tuple(
            slice(t * d, t * d + (s - 1) * st + 1, st)
            for t, d, s, st in zip(tap, dilation, size, strides, strict=True)
        )
        part = x[(slice(None), slice(None), *window)]
        for g in range(groups):
            data = part[:, g * per_in : (g + 1) * per_in]
            weight = w[(slice(g * per_out, (g + 1) * per_out), slice(None), *tap)]
            out[:, g * per_out : (g + 1) * per_out] += np.einsum("ni...,oi->no...", data, weight)
    return out


def conv_transpose(
    x: np.ndarray,
    w: np.ndarray,
    strides: Sequence[int],
    padding: Sequence[tuple[int, int]],
    output_padding: Sequence[int],
    dilation: Sequence[int],
    groups: int = 1,
) -> np.ndarray:
    """Transposed convolution with a weight (i, o / groups, *kernel): every element of x adds its
    multiple of the kernel to the output."""
    rank, kernel = x.ndim - 2, w.shape[2:]
    full = [
        (x.shape[2 + i] - 1) * strides[i] + (kernel[i] - 1) * dilation[i] + 1 + output_padding[i]
        for i in range(rank)
    ]
    per_in, per_out = x.shape[1] // groups, w.shape[1]
    out = np.zeros((x.shape[0], per_out * groups, *full))
    for tap in np.ndindex(*kernel):
        window = tuple(
            slice(t * d, t * d + (x.shape[2 + i] - 1) * strides[i] + 1, strides[i])
            for i, (t, d) in enumerate(zip(tap, dilation, strict=True))
        )
        for g in range(groups):
            data = x[:, g * per_in : (g + 1) * per_in]
            weight = w[(slice(g * per_in, (g + 1) * per_in), slice(None), *tap)]
            where = (slice(None), slice(g * per_out, (g + 1) * per_out), *window)
            out[where] += np.einsum("ni...,io->no...", data, weight)
    crop = tuple(slice(b, f - a) for (b, a), f in zip(padding, full, strict=True))
    return out[(slice(None), slice(None), *crop)]


def pool(
    x: np.ndarray,
    kind: str,
    size: Sequence[int],
    strides: Sequence[int],
    padding: Sequence[tuple[int, int]],
    dilation: Sequence[int],
    ceil_mode: bool = False,
    count_include_pad: bool = False,
) -> np.ndarray:
    """Pooling of channels-first data; padding never wins a maximum."""
    rank = x.ndim - 2
    out_size, extra = [], []
    for i in range(rank):
        room = x.shape[2 + i] + sum(padding[i]) - (size[i] - 1) * dilation[i] - 1
        steps = -(-room // strides[i]) if ceil_mode else room // strides[i]
        out_size.append(steps + 1)
        extra.append(max(0, steps * strides[i] - room))
    wide = [(0, 0), (0, 0), *((b, a + e) for (b, a), e in zip(padding, extra, strict=True))]
    fill = -np.inf if kind == "max" else 0.0
    padded = np.pad(x.astype("float64"), wide, constant_values=fill)
    inside = np.pad(np.ones(x.shape), wide)
    if count_include_pad:
        near = [(0, 0), (0, 0), *padding]
        inside = np.pad(np.pad(np.ones(x.shape), near, constant_values=1),
                        [(0, 0), (0, 0), *((0, e) for e in extra)])  # fmt: skip
    total = np.full((*x.shape[:2], *out_size), fill)
    count = np.zeros_like(total)
    for tap in np.ndindex(*size):
        window = (
            slice(None),
            slice(None),
            *tuple(
                slice(t * d, t * d + (o - 1) * s + 1, s)
                for t, d, o, s in zip(tap, dilation, out_size, strides, strict=True)
            ),
        )
        count += inside[window]
        total = np.maximum(total, padded[window]) if kind == "max" else total + padded[window]
    return total if kind == "max" else total / np.maximum(count, 1)
