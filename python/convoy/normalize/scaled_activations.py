"""Scales and shifts behind relus and clips, in front of them: in the weights and the bias of the
convolution or matmul there.

``s relu(y) + t`` is ``s y + t`` with the lower bound ``t``, or with that as the upper bound where
``s`` is negative; a clip has two bounds. So is the learnable affine block behind each activation of
HGNetv2 no kernel of its own. Positive scales of channels pass relus and leaky relus. Runs behind
FoldData, which folds a scale and shift into the weights that read it where it can.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from tvm import relax

from ..graph.expr import dtype_of, is_const, make_const, number, op_name
from ..ir.dtypes import FLOAT_DTYPES, HALF_DTYPES
from .affine import PRODUCTS, ThenFoldAffine, channel_constant
from .precision import compute_dtype

_ADD, _MULTIPLY = "relax.add", "relax.multiply"
_RELU, _CLIP, _LEAKY = "relax.nn.relu", "relax.clip", "relax.nn.leakyrelu"


@dataclass(frozen=True)
class _Scaled:
    """``scale * activation + shift`` of an old call, each of shape ``(channels,)`` or ``()``."""

    activation: relax.Call
    scale: np.ndarray
    shift: np.ndarray


class ScaleActivations(ThenFoldAffine):
    """Move what is folded into weights then. Bounds of infinity are for 16-bit floats alone, which
    kernels round to it."""

    ops: ClassVar[frozenset[str] | None] = frozenset({_ADD, _MULTIPLY})

    def __init__(self, policy: str) -> None:
        super().__init__()
        self._is_half = compute_dtype(policy) in HALF_DTYPES

    def start(self, func: relax.Function) -> None:
        added = (v for v in self.values.values() if op_name(v) == _ADD and is_const(v.args[1]))
        self._shifted = {value.args[0] for value in added}

    def rewrite(self, call: relax.Call, old: relax.Call) -> relax.Expr | None:
        found = self._scaled(old)
        if found is None or not self._is_folded(found.activation.args[0]):
            return None
        made = self._activation(found)
        self.changed |= made is not None
        return made

    def _scaled(self, old: relax.Call) -> _Scaled | None:
        """What a call is, if it is the last one of a scale and a shift."""
        x, const = old.args
        values = channel_constant(const, x)
        if values is None or not np.isfinite(values).all():
            return None
        if op_name(old) == _MULTIPLY:
            if self.old.var in self._shifted and self.uses[self.old.var] == 1:
                return None
            activation = self.single_use(x)
            return None if activation is None else _Scaled(activation, values, np.zeros(()))
        inner = self.single_use(x)
        if inner is None:
            return None
        if op_name(inner) != _MULTIPLY:
            return _Scaled(inner, np.ones(()), values)
        before = self.single_use(inner.args[0])
        scale = channel_constant(inner.args[1], inner.args[0])
        if before is None or scale is None or not np.isfinite(scale).all():
            return None
        return _Scaled(before, scale, values)

    def _is_folded(self, expr: relax.Expr) -> bool:
        """Whether a scale and a shift of an old value become part of weights and bias."""
        made = self.single_use(expr)
        if made is not None and op_name(made) == _ADD:
            is_bias = channel_constant(made.args[1], made.args[0]) is not None
            made = self.single_use(made.args[0]) if is_bias else None
        return made is not None and op_name(made) in PRODUCTS and is_const(made.args[1])

    def _activation(self, found: _Scaled) -> relax.Expr | None:
        """The activation of scaled and shifted data."""
        name, old, dtype = op_name(found.activation), found.activation, dtype_of(found.activation)
        scale, shift = found.scale, found.shift
        if dtype not in FLOAT_DTYPES or not scale.all():
            return None
        positive = bool((scale > 0).all())
        if name in (_RELU, _LEAKY) and positive and not shift.any():
            data = self._moved(old.args[0], found)
            return relax.op.nn.relu(data) if name == _RELU else _leaky(data, old)
        if name not in (_RELU, _CLIP) or scale.ndim or shift.ndim:
            return None
        bounds = (0.0, math.inf) if name == _RELU else tuple(map(_bound, old.args[1:3]))
        if not bounds[0] <= bounds[1]:
            return None
        low, high = sorted(float(scale * bound + shift) for bound in bounds)
        if not self._is_half and not (math.isfinite(low) and math.isfinite(high)):
            return None
        return relax.op.clip(self._moved(old.args[0], found), low, high)

    def _moved(self, data: relax.Expr, found: _Scaled) -> relax.Expr:
        """Old data, scaled and shifted."""
        new = self.rename(data)
        dtype = dtype_of(new)
        if (found.scale != 1).any():
            new = self.emit(relax.op.multiply(new, make_const(found.scale, dtype)))
        if found.shift.any():
            new = self.emit(relax.op.add(new, make_const(found.shift, dtype)))
        return new


def _leaky(data: relax.Expr, old: relax.Call) -> relax.Expr:
    return relax.op.nn.leakyrelu(data, float(old.attrs.alpha))


def _bound(expr: relax.Expr) -> float:
    return float(number(expr))
