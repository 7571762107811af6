"""Bring per-channel multiplications and additions of constants to the form ``x * scale + shift``.

Chains are merged. A scale is folded into the weights of the convolution or matrix product that
computes ``x`` if there is no other reader. Runs on the channels-last graph, so that channels are
the last axis. The constants have shape ``(channels,)``, or ``()`` for one value for all channels.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import ClassVar

import numpy as np
import tvm
from tvm import relax

from ..graph.expr import (
    as_numpy,
    call_like,
    dtype_of,
    is_const,
    make_const,
    op_name,
    relax_ops,
    shape_of,
)
from ..graph.rewriter import Rewriter
from ..ir.dtypes import FLOAT_DTYPES
from ..ops import DGRAD, DGRAD_3D, conv_attrs
from .reshapes import NORMS

#: Relative rounding error of weights from which a scale is left beside them; 16-bit floats without
#: subnormals have 2e-4.
_MOST_ROUNDING = 1e-3
#: Root mean square from which float16 rounds by less than that: an element by 2**-11 of itself or,
#: as a subnormal, by 2**-25, at most.
_PLAIN = 2.0**-25 / (_MOST_ROUNDING - 2.0**-11)
_LARGEST = 65504.0
#: Scales of values that a sum with others hides.
_SMALL = 2.0**-8
_VIEWS = relax_ops("reshape permute_dims")
PRODUCTS = relax_ops("nn.conv2d nn.conv3d matmul")


def is_product(x: relax.Expr, made: Callable[[relax.Expr], relax.Expr | None]) -> bool:
    """Whether a product, or a view of one, computes ``x``: its kernel adds a shift. ``made`` is
    the operator that makes a value."""
    value = made(x)
    while value is not None and op_name(value) == "relax.reshape":
        value = made(value.args[0])
    return op_name(value) in PRODUCTS


def channel_constant(const: relax.Expr, x: relax.Expr) -> np.ndarray | None:
    """Values of ``const`` as float64 of shape ``(channels,)`` or ``()`` when it broadcasts onto
    ``x`` along the last axis only (or as a scalar) without changing its shape; else None."""
    return channel_values(const, x) if dtype_of(x) in FLOAT_DTYPES else None


def channel_values(const: relax.Expr, x: relax.Expr) -> np.ndarray | None:
    """As :func:`channel_constant`, onto integers as well; float64 holds those of 32 bits."""
    if not is_const(const):
        return None
    shape, x_shape = shape_of(const), shape_of(x)
    if len(shape) > len(x_shape) or not x_shape:
        return None
    if all(d == 1 for d in shape):
        return as_numpy(const).astype(np.float64).reshape(())
    if shape[-1] != x_shape[-1] or any(d != 1 for d in shape[:-1]):
        return None
    return as_numpy(const).astype(np.float64).reshape(-1)


class FoldAffine(Rewriter):
    """Merge chains of per-channel scales and shifts, and fold scales into weights."""

    ops: ClassVar[frozenset[str] | None] = frozenset(
        {"relax.add", "relax.subtract", "relax.multiply", "relax.divide"}
    )

    def __init__(self) -> None:
        super().__init__()
        self._ours: set[relax.Var] = set()  # emitted here, read once by construction

    def start(self, func: relax.Function) -> None:
        small = self._small()
        self._hidden: set[relax.Expr] = set()
        for var, value in reversed(self.values.items()):
            if op_name(value) == "relax.add":
                pairs = (tuple(value.args), tuple(reversed(value.args)))
                self._hidden.update(a for a, b in pairs if not (is_const(b) or b in small))
            elif op_name(value) in _VIEWS and var in self._hidden:
                self._hidden.add(value.args[0])

    def _small(self) -> set[relax.Expr]:
        """Values that are scaled down, by norms too, and sums of such alone."""
        small: set[relax.Expr] = set()
        for var, value in self.values.items():
            name = op_name(value)
            if name == "relax.multiply":
                scales = [channel_constant(c, x) for x, c in (value.args, value.args[::-1])]
                if any(s is not None and (abs(s) < _SMALL).all() for s in scales):
                    small.add(var)
            elif (
                (name in _VIEWS and value.args[0] in small)
                or (name == "relax.add" and all(is_const(a) or a in small for a in value.args))
                or (name in NORMS and all(_is_small(c) for c in value.args[1:]))
            ):
                small.add(var)
        return small

    def rewrite(self, call: relax.Call, old: relax.Call) -> relax.Expr | None:
        name = op_name(call)
        x, const = call.args
        values = channel_constant(const, x)
        if values is None and name in ("relax.add", "relax.multiply"):
            x, const = const, x
            values = channel_constant(const, x)
        if values is None:
            return self._before_spread(call) if name == "relax.add" else None
        if name == "relax.subtract":
            name, values = "relax.add", -values
        elif name == "relax.divide":
            if not np.all(values):
                return None
            name, values = "relax.multiply", 1.0 / values
        return self._add(x, values) if name == "relax.add" else self._multiply(x, values)

    def _read_once(self, var: relax.Expr) -> bool:
        """Whether the binding being visited is the only reader of ``var``."""
        if var in self._ours:
            return True
        old = [v for v in self.old.value.args if self.renamed.get(v, v).same_as(var)]
        return len(old) == 1 and self.uses[old[0]] == 1

    def _inner(self, x: relax.Expr, name: str) -> tuple[relax.Expr, np.ndarray] | None:
        """(operand, constant) of the canonical ``name`` that makes ``x`` for us alone."""
        made = self.producer(x, name)
        if made is None or not self._read_once(x):
            return None
        values = channel_constant(made.args[1], made.args[0])
        return None if values is None else (made.args[0], values)

    def _emit(self, name: str, x: relax.Expr, values: np.ndarray) -> relax.Expr:
        const = make_const(values, dtype_of(x))
        function = relax.op.add if name == "relax.add" else relax.op.multiply
        var = self.emit(function(x, const))
        self._ours.add(var)
        return var

    def _add(self, x: relax.Expr, values: np.ndarray) -> relax.Expr:
        inner = self._inner(x, "relax.add")
        if inner is not None:
            x, values = inner[0], inner[1] + values
        if not values.any() and not is_product(x, self.producer):
            return x  # the bias of a product is kept: its kernel adds it with the rest
        return self._last("relax.add", x, values)

    def _before_spread(self, call: relax.Call) -> relax.Expr | None:
        """Add a constant to a vector that is spread over an image (the embedding of a time step)
        rather than to the image: one sum of the image is left, which may be a convolution's bias.
        """
        for x, vector in (tuple(call.args), tuple(reversed(call.args))):
            inner, shape = self._inner(x, "relax.add"), shape_of(vector)
            spread = shape[-1:] == shape_of(x)[-1:] and math.prod(shape) < math.prod(shape_of(x))
            if inner is None or not spread or shape_of(inner[0]) != shape_of(call):
                continue
            view = self.producer(vector, "relax.reshape")
            if view is not None and shape_of(view.args[0])[-1:] == shape[-1:]:
                vector = view.args[0]
            return relax.op.add(inner[0], self.reshaped(self._add(vector, inner[1]), shape))
        return None

    def _multiply(self, x: relax.Expr, values: np.ndarray) -> relax.Expr:
        added = self._inner(x, "relax.add")
        if added is not None:
            base, shift = added
            self._ours.add(base)  # only the addition that goes away reads it
            return self._last("relax.add", self._multiply(base, values), shift * values)
        inner = self._inner(x, "relax.multiply")
        if inner is not None:
            x, values = inner[0], inner[1] * values
        if (values == 1).all():
            return x
        folded = self._into_weights(x, values)
        return folded if folded is not None else self._last("relax.multiply", x, values)

    def _last(self, name: str, x: relax.Expr, values: np.ndarray) -> relax.Expr:
        var = self._emit(name, x, values)
        self._ours.discard(var)  # the graph's own uses decide from here on
        return var

    def _into_weights(self, x: relax.Expr, values: np.ndarray) -> relax.Expr | None:
        made = self.producer(x)
        if made is None or not self._read_once(x) or len(made.args) < 2:
            return None
        weights = made.args[1]
        if not is_const(weights) or dtype_of(weights) not in FLOAT_DTYPES:
            return None
        array = as_numpy(weights)
        if op_name(made) in ("relax.nn.conv2d", "relax.nn.conv3d"):
            if str(made.attrs.kernel_layout) not in ("OHWI", "ODHWI"):
                return None
            values = values.reshape(*values.shape, *(1,) * (array.ndim - 1))
        elif op_name(made) in (DGRAD, DGRAD_3D):  # its output's channels are the last axis
            attrs = conv_attrs(made)
            if not attrs.is_normal or (attrs.groups > 1 and values.ndim):
                return None
        elif op_name(made) != "relax.matmul" or array.ndim != 2:
            return None
        scaled = np.multiply(array, values, dtype=np.float64)
        if self.old.var not in self._hidden and _loses_digits(scaled, array):
            return None
        new = self.emit(call_like(made, [made.args[0], make_const(scaled, dtype_of(weights))]))
        return new


def _is_small(const: relax.Expr) -> bool:
    return is_const(const) and bool((np.abs(as_numpy(const).astype(np.float64)) < _SMALL).all())


def _loses_digits(scaled: np.ndarray, weights: np.ndarray) -> bool:
    """Whether float16 holds scaled weights worse than the weights themselves: a layer scale of 1e-5
    makes them subnormal, which only a sum with a value that is not scaled so hides."""
    norm = float(np.linalg.norm(scaled))
    if _PLAIN * math.sqrt(scaled.size) <= norm < _LARGEST:
        return False  # without a copy of the weights, which takes longer than all else here
    rounding = _rounding(scaled)
    return rounding > _MOST_ROUNDING and rounding > 2 * _rounding(weights.astype(np.float64))


def _rounding(values: np.ndarray) -> float:
    """Relative L2 error of values in float16."""
    with np.errstate(over="ignore"):
        error = np.linalg.norm(values - values.astype(np.float16))
    return float(error / (np.linalg.norm(values) or 1.0))


class ThenFoldAffine(Rewriter):
    """Base of passes that leave scales and shifts to fold; sets ``changed`` if it replaced any
    call. Without a change the module is returned as it was."""

    changed = False

    def __call__(self, mod: tvm.IRModule) -> tvm.IRModule:
        replaced = super().__call__(mod)
        return FoldAffine()(replaced) if self.changed else mod
