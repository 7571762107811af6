"""Squeeze-and-excitation blocks at given places of their result, in float64; the means, and the
results of both GEMMs, are rounded to the dtype."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ..ir.activation_values import activate
from ..ir.squeeze_excite import block_of
from ..ir.workload import Workload
from .convolution_reference import Array, Operand, Pixels, pixel_number, pointwise, rounded


def with_gates(w: Workload, operands: Mapping[str, Operand]) -> dict[str, Operand]:
    """The operands, and ``gates`` (n,c) as one more."""
    block, c = block_of(w), np.arange(w.c)
    squeezed = np.arange(block.channels)
    squeeze, gate = block.squeeze_epilogue, block.gate_epilogue
    means = rounded(np.array([_mean(w, operands["x"], n) for n in range(w.n)]), w.dtype)
    bias = operands["squeeze_bias"](squeezed) if squeeze.bias else 0.0
    filters = operands["squeeze"](squeezed[:, None] * w.c + c)
    inner = rounded(pointwise(means, filters, squeeze, bias), w.dtype)
    bias = operands["excite_bias"](c) if gate.bias else 0.0
    filters = operands["excite"](c[:, None] * block.channels + squeezed)
    gates = rounded(pointwise(inner, filters, gate, bias), w.dtype)
    return {**operands, "gates": Operand(gates)}


def scaled(w: Workload, operands: Mapping[str, Operand], at: Pixels, k: Array) -> Array:
    """``y`` at pixels (n, 0, h, w), each for all channels ``k``, from operands with gates."""
    e, flat = w.epilogue, (pixel_number(at, (1, w.h, w.w)) * w.c)[:, None] + k
    y = operands["x"](flat) * operands["gates"](at[0][:, None] * w.c + k)
    y = y + (operands["residual"](flat) if e.residual else 0.0)
    return activate(e.activation, y, e.alpha, e.clip_min, e.clip_max)


def _mean(w: Workload, x: Operand, image: int) -> Array:
    """The mean of each channel of an image."""
    pixels = w.h * w.w
    return x(image * pixels * w.c + np.arange(pixels * w.c).reshape(pixels, w.c)).mean(axis=0)
