"""Weights that a scale was multiplied into, as the int8 that they were and the scale."""

from __future__ import annotations

import numpy as np

Array = np.ndarray

#: Steps from zero to the largest magnitude of a channel, the usual ones first: quantizers use all
#: steps in the channel with the largest weights, of others' where each channel has its own scale.
_STEPS = (127, 128, *range(126, 0, -1))
#: Relative rounding of a product of an integer and a scale in float32, of the scale as well.
_ROUNDING = 2.0**-21
#: Elements of each channel that are tried before all of them are.
_FIRST = 64


def as_integers(weights: Array) -> tuple[Array, Array] | None:
    """Return weights of shape (K, ...) as int8 and a float64 scale for each of the K channels.

    The products are the weights, but for the rounding of float32; where a channel is no such
    product of int8, the result is None. Integers come back as they are, with scales of one.
    """
    rows = weights.reshape(len(weights), -1)
    if weights.dtype.kind in "iu":
        limits = np.iinfo(np.int8)
        fits = rows.min() >= limits.min and rows.max() <= limits.max
        return (weights.astype(np.int8), np.ones(len(rows))) if fits else None
    rows = rows.astype(np.float64)
    peaks = np.abs(rows).max(axis=1)
    if not np.isfinite(peaks).all():
        return None
    found, scales = np.zeros(rows.shape, np.int8), np.ones(len(rows))
    left = np.flatnonzero(peaks)
    largest = np.argsort(-np.abs(rows), axis=1, kind="stable")[:, :_FIRST]
    first = np.take_along_axis(rows, largest, axis=1)
    for steps in _STEPS:
        if not left.size:
            break
        some = left[_fit(first[left], peaks[left] / steps)]
        fitting = some[_fit(rows[some], peaks[some] / steps)]
        scales[fitting] = peaks[fitting] / steps
        found[fitting] = np.rint(rows[fitting] / scales[fitting, None])
        left = np.setdiff1d(left, fitting)
    return None if left.size else (found.reshape(weights.shape), scales)


def _fit(rows: Array, scales: Array) -> Array:
    """Whether each row is a product of int8 and its scale."""
    integers = np.rint(rows / scales[:, None])
    error = np.abs(integers * scales[:, None] - rows) <= _ROUNDING * np.abs(rows)
    return np.asarray((error & (integers >= -128) & (integers <= 127)).all(axis=1))
