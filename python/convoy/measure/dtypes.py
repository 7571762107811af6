"""float16, bfloat16 and float32 as raw bits and as exact float64 values, with numpy alone."""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]

# What holds the bits of each dtype on the host, and how DLPack names it.
STORAGE = {"float16": np.float16, "bfloat16": np.uint16, "float32": np.float32}


def encode(values: Array, dtype: str) -> Array:
    """Values rounded to ``dtype`` (to nearest, ties to even), in its storage type."""
    if dtype != "bfloat16":
        return values.astype(STORAGE[dtype])
    bits = values.astype(np.float32).view(np.uint32)
    rounded = bits + 0x7FFF + ((bits >> 16) & 1)
    return (rounded >> 16).astype(np.uint16)


def decode(stored: Array, dtype: str) -> Array:
    """Exact float64 values of what :func:`encode` or a kernel wrote."""
    if dtype == "bfloat16":
        return (stored.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    return stored.astype(np.float64)
