"""Sums of int8 as int8 again: random operands, and the result in float32 as kernels compute it."""

from __future__ import annotations

import math

import numpy as np

from ..ir.workload import Workload

Array = np.ndarray


def rows(workload: Workload, rng: np.random.Generator) -> Array:
    """Random rows (bias, scale, shift, factor) of a workload, as int32, that spread its result over
    the range of int8."""
    spread = 127 * 127 / 3 * math.sqrt(workload.c // workload.groups * workload.taps)
    shape = (workload.k, 1)
    floats = [rng.uniform(0.5, 2, shape) / spread, rng.uniform(-1, 1, shape)]
    values = np.concatenate([*floats, rng.uniform(20, 60, shape)], axis=1).astype(np.float32)
    bias = rng.integers(-4000, 4000, shape, np.int32)
    return np.concatenate([bias, values.view(np.int32)], axis=1).reshape(-1)


def requantized(workload: Workload, sums: Array, rows: Array) -> Array:
    """Exact sums of some channels (..., k) as int8 in float64, by the rows (k, 4) of these."""
    bias, *bits = (column for column in rows.astype(np.int64).astype(np.int32).T)
    scale, shift, factor = (np.ascontiguousarray(column).view(np.float32) for column in bits)
    total = (sums.astype(np.int64) + bias).astype(np.int32).astype(np.float32)
    value = np.rint((total * scale + shift) * factor)
    low, high = np.float32(workload.epilogue.clip_min), np.float32(workload.epilogue.clip_max)
    return (np.clip(value, low, high) + (127 - high)).astype(np.float64)
