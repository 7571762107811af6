"""Weights that a scale was multiplied into, as the int8 that they were and the scale."""

from __future__ import annotations

import numpy as np

Array = np.ndarray

#: Steps from zero to the largest magnitude of a channel, the usual ones first: quantizers use all
#: steps in the channel with the largest weights, of others' where each channel has its own scale.
#: With a zero point of the weights, of -128 to 128, there are up to 256.
_STEPS = (127, 128, *range(126, 0, -1), *range(129, 257))
#: Relative rounding of a product of an integer and a scale in float32, of the scale as well.
_ROUNDING = 2.0**-21
#: Elements of each channel that are tried before all of them are.
_FIRST = 64


def as_integers(weights: Array) -> tuple[Array, Array, Array] | None:
    """Return weights of shape (K, ...) as int8, with a float64 scale and an integer shift for each
    of the K channels.

    The weights are ``scale * (int8 + shift)``, but for the rounding of float32; where those of a
    channel are no such products, the result is None. Integers have scales of one; the shift is zero
    where it can be.
    """
    rows = weights.reshape(len(weights), -1)
    integers, scales = np.zeros(rows.shape, np.int64), np.ones(len(rows))
    if weights.dtype.kind in "iu":
        integers[:] = rows
    elif not _divided(rows.astype(np.float64), integers, scales):
        return None
    low, high = integers.min(axis=1), integers.max(axis=1)
    if (high - low > 255).any():
        return None
    shifts = np.maximum(high - 127, 0) + np.minimum(low + 128, 0)
    found = (integers - shifts[:, None]).astype(np.int8)
    return found.reshape(weights.shape), scales, shifts


def _divided(rows: Array, integers: Array, scales: Array) -> bool:
    """Write rows as products of integers, zero at first, and a scale each; return whether all
    are."""
    peaks = np.abs(rows).max(axis=1)
    if not np.isfinite(peaks).all():
        return False
    left = np.flatnonzero(peaks)
    largest = np.argsort(-np.abs(rows), axis=1, kind="stable")[:, :_FIRST]
    first = np.take_along_axis(rows, largest, axis=1)
    for steps in _STEPS:
        if not left.size:
            break
        some = left[_fit(first[left], peaks[left] / steps)]
        fitting = some[_fit(rows[some], peaks[some] / steps)]
        scales[fitting] = peaks[fitting] / steps
        integers[fitting] = np.rint(rows[fitting] / scales[fitting, None])
        left = np.setdiff1d(left, fitting)
    return not left.size


def _fit(rows: Array, scales: Array) -> Array:
    """Whether each row is a product of integers of 8 bits, shifted, and its scale."""
    integers = np.rint(rows / scales[:, None])
    error = np.abs(integers * scales[:, None] - rows) <= _ROUNDING * np.abs(rows)
    span = integers.max(axis=1) - integers.min(axis=1)
    return np.asarray(error.all(axis=1) & (span <= 255))
