"""Grouped convolutions, and gradients of depthwise ones, by definition in float64 with NumPy."""

from __future__ import annotations

import numpy as np

from convoy.ir.activation_values import activate
from convoy.ir.workload import Workload


def fprop(w: Workload, x, filt, residual=None, bias=None):
    """y of shape (n, p, q, k)."""
    top, left, bottom, right = w.padding
    padded = np.pad(x.astype(np.float64), ((0, 0), (top, bottom), (left, right), (0, 0)))
    filt = filt.astype(np.float64).reshape(w.groups, -1, w.r, w.s, w.c // w.groups)
    y = np.zeros((w.n, w.p, w.q, w.k))
    for r in range(w.r):
        for s in range(w.s):
            window = _window(padded, w, r, s).reshape(w.n, w.p, w.q, w.groups, -1)
            y += np.einsum("npqgc,gkc->npqgk", window, filt[:, :, r, s]).reshape(y.shape)
    if residual is not None:
        y += residual
    if bias is not None:
        y += bias
    epilogue = w.epilogue
    return activate(epilogue.activation, y, low=epilogue.clip_min, high=epilogue.clip_max)


def dgrad(w: Workload, dy, filt):
    """dx of shape (n, h, w, c)."""
    top, left, bottom, right = w.padding
    padded = np.zeros((w.n, w.h + top + bottom, w.w + left + right, w.k))
    for r in range(w.r):
        for s in range(w.s):
            window = _window(padded, w, r, s)
            window += dy.astype(np.float64) * filt[:, r, s, 0].astype(np.float64)
    inside = padded[:, top : top + w.h, left : left + w.w]
    return inside.reshape(w.n, w.h, w.w, w.c, w.k // w.c).sum(axis=4)


def wgrad(w: Workload, dy, x):
    """dw of shape (k, r, s, 1)."""
    top, left, bottom, right = w.padding
    padded = np.pad(x.astype(np.float64), ((0, 0), (top, bottom), (left, right), (0, 0)))
    padded = np.repeat(padded, w.k // w.c, axis=3)
    dw = np.zeros((w.k, w.r, w.s, 1))
    for r in range(w.r):
        for s in range(w.s):
            product = _window(padded, w, r, s) * dy.astype(np.float64)
            dw[:, r, s, 0] = product.sum(axis=(0, 1, 2))
    return dw


def _window(padded, w: Workload, r: int, s: int):
    """A view of the inputs that filter position (r, s) meets, for every output."""
    (stride_h, stride_w), (dilation_h, dilation_w) = w.stride, w.dilation
    rows = padded[:, r * dilation_h :: stride_h][:, : w.p]
    return rows[:, :, s * dilation_w :: stride_w][:, :, : w.q]
