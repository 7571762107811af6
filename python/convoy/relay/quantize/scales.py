"""The scales of quantized tensors, from their values."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

_BINS = 2048
_PERCENTILE = 99.999


def weight_scale(values: np.ndarray, mode: str, bits: int) -> float:
    """Return the scale of weights: of their largest one, or the next power of two."""
    largest = float(np.abs(values).max(initial=0.0))
    if largest == 0:
        return 1.0
    if mode == "power2":
        return float(2.0 ** math.ceil(math.log2(largest)) / 2 ** (bits - 1))
    return largest / (2 ** (bits - 1) - 1)


def activation_scale(samples: Sequence[np.ndarray], mode: str, bits: int) -> float:
    """Return the scale of activations from samples of them."""
    values = np.concatenate([np.abs(np.asarray(s, "float64")).ravel() for s in samples])
    largest = float(values.max(initial=0.0))
    if largest == 0:
        return 1.0
    steps = 2 ** (bits - 1) - 1
    if mode == "percentile":
        return max(float(np.percentile(values, _PERCENTILE)), largest * 1e-6) / steps
    return kl_threshold(values, largest, steps) / steps


def kl_threshold(values: np.ndarray, largest: float, steps: int) -> float:
    """Return the value to clip at that loses least information (Migacz, GTC 2017).

    Args:
        values: Absolute values.
        largest: The largest of them.
        steps: How many integers stand for them.
    """
    counts, edges = np.histogram(values, bins=_BINS, range=(0.0, largest))
    best, found = math.inf, largest
    for end in range(steps + 1, _BINS + 1, 16):
        kept = counts[:end].astype("float64")
        kept[-1] += counts[end:].sum()
        quantized = _spread(counts[:end].astype("float64"), steps)
        loss = _divergence(kept, quantized)
        if loss < best:
            best, found = loss, float(edges[end])
    return found


def _spread(counts: np.ndarray, steps: int) -> np.ndarray:
    """Return a histogram as `steps` bins leave it, its counts on the bins that had some."""
    group = np.arange(len(counts)) * steps // len(counts)
    sums = np.bincount(group, counts, steps)
    filled = np.bincount(group, counts > 0, steps)
    mean = np.divide(sums, filled, out=np.zeros(steps), where=filled > 0)
    return np.where(counts > 0, mean[group], 0.0)


def _divergence(p: np.ndarray, q: np.ndarray) -> float:
    """Return the Kullback-Leibler divergence of two histograms; bins without counts get some."""
    p, q = (h / h.sum() if h.sum() else h for h in (p, q))
    tiny = 1e-12
    mask = p > 0
    return float(np.sum(p[mask] * np.log(p[mask] / np.maximum(q[mask], tiny))))
