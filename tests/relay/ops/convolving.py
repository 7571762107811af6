"""Running convolutions and pools, for comparison with numpy."""

from __future__ import annotations

from typing import Any

import numpy as np

from convoy import relay

from ..running import run_stock

RNG = np.random.default_rng(1)


def uniform(*shape: int) -> np.ndarray:
    """Draw random numbers."""
    return RNG.uniform(-1, 1, shape).astype("float32")


def permuted(x: np.ndarray, source: str, target: str) -> np.ndarray:
    """Bring an array from one layout to another."""
    return np.ascontiguousarray(x.transpose([source.index(a) for a in target]))


def run(build: Any, *arrays: np.ndarray) -> np.ndarray:
    """Compile a function of arrays; return its result."""
    params = [relay.var(f"p{i}", shape=a.shape, dtype=str(a.dtype)) for i, a in enumerate(arrays)]
    return run_stock(relay.Function(params, build(*params)), *arrays)[0]


def pairs(padding: Any, rank: int) -> list[tuple[int, int]]:
    """Split padding into (before, after) for each axis."""
    values = [padding] * 2 * rank if isinstance(padding, int) else list(padding)
    values = values * 2 if len(values) == rank else values
    return list(zip(values[:rank], values[rank:], strict=True))
