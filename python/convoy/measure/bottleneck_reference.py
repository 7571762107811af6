"""Bottlenecks at given places of their results, in float64; what is between their convolutions is
rounded to the dtype."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ..ir.bottleneck import Bottleneck, parts
from ..ir.workload import Workload
from .convolution_reference import (
    Array,
    Operand,
    Pixels,
    fprop,
    pixel_number,
    pointwise,
    rounded,
)


def second(w: Workload, operands: Mapping[str, Operand], at: Pixels, k: Array) -> Array:
    """``y`` at pixels (n, 0, p, q), each for all channels ``k``."""
    wide, e = _of(w).expand, _of(w).expand_epilogue
    (middle,) = fprop(parts(w)[0], operands, at, np.arange(w.k))
    bias = operands["expand_bias"](k) if e.bias else 0.0
    flat = (pixel_number(at, (1, w.p, w.q)) * wide)[:, None] + k
    residual = operands["residual"](flat) if e.residual else 0.0
    filters = operands["expand"](k[:, None] * w.k + np.arange(w.k))
    return pointwise(rounded(middle, w.dtype), filters, e, bias, residual)


def third(w: Workload, operands: Mapping[str, Operand], at: Pixels, k: Array) -> Array:
    """``z`` at pixels (n, 0, p, q), each for all channels ``k``."""
    channels, e = np.arange(_of(w).expand), _of(w).reduce_epilogue
    y = rounded(second(w, operands, at, channels), w.dtype)
    bias = operands["reduce_bias"](k) if e.bias else 0.0
    return pointwise(y, operands["reduce"](k[:, None] * len(channels) + channels), e, bias)


def full(w: Workload, operands: Mapping[str, Operand]) -> list[Array]:
    """All of ``y`` and, where there is one, of ``z``."""
    n, p, q = np.indices((w.n, w.p, w.q)).reshape(3, -1)
    found = []
    for name, shape, _ in w.operand_shapes()[-w.num_outputs :]:
        values = RESULTS[name](w, operands, (n, n * 0, p, q), np.arange(shape[-1]))
        found.append(values.reshape(shape))
    return found


#: What computes the results of each name.
RESULTS = {"y": second, "z": third}


def _of(w: Workload) -> Bottleneck:
    assert w.bottleneck is not None, w.key
    return w.bottleneck
