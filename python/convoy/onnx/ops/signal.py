"""Fourier transforms, as products with matrices of sines and cosines."""

from __future__ import annotations

import numpy as np

from ..call import Call, Value, converter


def _matrices(size: int, length: int, inverse: bool) -> tuple[np.ndarray, np.ndarray]:
    """(cosines, sines), (size, length), of a transform of ``length`` points."""
    turns = np.outer(np.arange(size), np.arange(length)) % length
    angle = 2 * np.pi * turns / length * (1 if inverse else -1)
    scale = 1 / length if inverse else 1.0
    return np.cos(angle) * scale, np.sin(angle) * scale


@converter("DFT")
def dft(call: Call) -> Value:
    """Over one axis of (..., 1) or of (..., 2), real and imaginary parts.

    One-sided results are the first half of those of real numbers. The inverse of such a half is
    real: each frequency but the first, and the last of an even length, stands for two.
    """
    rank, dtype = call.rank(), call.const(0).dtype
    if call.version >= 20 and call.has(2):
        axis = int(call.constant(2, "axis"))
    else:
        axis = int(call.attrs.get("axis", 1 if call.version < 20 else -2))
    axis %= rank
    onesided, inverse = bool(call.attrs.get("onesided", 0)), bool(call.attrs.get("inverse", 0))
    size, real_only = call.shape()[axis], onesided and inverse
    length = 2 * (size - 1) if real_only else size
    length = int(call.constant(1, "length")) if call.has(1) else length
    used = min(size, length // 2 + 1 if real_only else length)
    x = call.do("Slice", call.value(0), np.array([0]), np.array([used]), np.array([axis]))
    cosines, sines = _matrices(used, length, inverse)
    if real_only:
        twice = [[1 if k == 0 or 2 * k == length else 2] for k in range(used)]
        cosines, sines = cosines * twice, sines * twice
    elif onesided:
        cosines, sines = (m[:, : length // 2 + 1].copy() for m in (cosines, sines))
    cosines, sines = cosines.astype(dtype), sines.astype(dtype)
    order = [i for i in range(rank - 1) if i != axis] + [axis]
    parts = [
        call.do("Transpose", call.do("Gather", x, np.array(i), axis=rank - 1), perm=order)
        for i in range(call.shape()[-1])
    ]
    results = [call.do("MatMul", parts[0], m) for m in (cosines, sines)]
    if len(parts) == 2:
        crossed = [call.do("MatMul", parts[1], m) for m in (sines, cosines)]
        pairs = zip(("Sub", "Add"), results, crossed, strict=True)
        results = [call.do(op, a, b) for op, a, b in pairs]
    back = [order.index(i) for i in range(rank - 1)]
    both = [
        call.do("Unsqueeze", call.do("Transpose", value, perm=back), np.array([rank - 1]))
        for value in results[: 1 if real_only else 2]
    ]
    return call.do("Concat", *both, axis=rank - 1)


@converter("STFT")
def stft(call: Call) -> Value:
    """(batch, samples, 1 or 2) -> (batch, frames, frequencies, 2)."""
    step = int(call.constant(1, "frame step"))
    window = call.value(2) if call.has(2) else None
    length = int(call.constant(3, "frame length")) if call.has(3) else call.shape(2)[0]
    size = call.shape()[1]
    frames = (size - length) // step + 1
    places = np.arange(frames)[:, None] * step + np.arange(length)[None]
    value = call.value(0)
    if call.rank() == 2:
        value = call.do("Unsqueeze", value, np.array([2]))
    cut = call.do("Gather", value, places, axis=1)  # (batch, frames, length, parts)
    if window is not None:
        cut = call.do("Mul", cut, call.reshape(window, (1, 1, -1, 1)))
    return call.do("DFT", cut, axis=2, onesided=int(call.attrs.get("onesided", 1)))
