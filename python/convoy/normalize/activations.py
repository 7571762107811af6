"""Recognize activations by what they compute, however a model spells them.

Exporters write an activation as one operator or as several, and each in its own way: hard swish as
``x * clip(x + 3, 0, 6) / 6`` or ``x * clip(x * 0.1667 + 0.5, 0, 1)``, ELU with a ``where`` or as a
sum of two relus, GELU around ``erf(x / sqrt(2))`` with constants in float16. So an expression of
elementwise operators that reads one tensor is evaluated at some hundred points in float64, and
replaced by the activation that has the same values there.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

import numpy as np
from tvm import relax

from ..graph.expr import as_numpy, dtype_of, is_const, op_name, shape_of
from ..graph.rewriter import Rewriter
from ..ir.activation import WITH_ALPHA
from ..ir.activation_values import activate
from ..ir.dtypes import FLOAT_DTYPES
from ..ops import activation as own
from .elementwise_values import VALUES, Bound, evaluate

#: Operators of the longest spelling, with room to spare.
MOST_OPERATORS = 20
#: Relative deviation, and absolute around kinks. Where all constants are numbers of float16 they
#: may have been rounded to it, which moves the kink of a hard swish; the kinds of GELU are 4.7e-4
#: apart.
_EXACT, _ROUNDED = (1e-6, 1e-7), (4e-4, 4e-4)
#: Beyond it a spelling may overflow in float32; up to here its values have to be finite.
_SAFE = 20.0


def _points() -> np.ndarray:
    """At and closely around zero, then far beyond 16-bit numbers; none where a comparison flips."""
    near = np.arange(-12.0, 12.0, 1 / 16) + 0.011
    far = np.geomspace(12.0, 1e30, 60)
    return np.concatenate([-far[::-1], near, far, (-1e-9, 0.0, 1e-9)])


_X = _points()
#: Where a kink may be. Elsewhere an activation near zero has its own value but for what cancels in
#: float64, and at zero exactly: divisors and logarithms need the number that is added to it, as in
#: ``x / (abs(x) + 1e-8)``.
_KINKS = (np.abs(_X) > 1e-3) & (np.abs(_X) < _SAFE)
_CANCELS = np.where(_X == 0, 1e-300, 1e-14)


class RecognizeActivations(Rewriter):
    """Replace what computes an activation by one operator."""

    def __init__(self) -> None:
        super().__init__()
        self._order: dict[relax.Expr, int] = {}

    def emit(self, expr: relax.Expr, name: str = "") -> relax.Expr:
        var = super().emit(expr, name)
        self._order.setdefault(var, len(self._order))
        return var

    def rewrite(self, call: relax.Call, old: relax.Call) -> relax.Expr | None:
        if op_name(call) not in VALUES or dtype_of(call) not in FLOAT_DTYPES:
            return None
        if (slope := _slope(call)) is not None:
            return relax.op.nn.leakyrelu(call.args[0], slope)
        taken: list[Bound] = [(None, call)]
        while len(taken) <= MOST_OPERATORS:
            frontier = _read(taken)
            if len(frontier) == 1 and len(taken) > 1:
                (x,) = frontier
                if (dtype_of(x), shape_of(x)) == (dtype_of(call), shape_of(call)):
                    y = evaluate(x, _X, taken[::-1])
                    room = _ROUNDED if all(map(_in_float16, _numbers(taken))) else _EXACT
                    if y is not None and (found := _name(y, room)) is not None:
                        return self._make(x, *found)
            if not frontier:
                return None
            # What was computed last is read by no other part of the frontier.
            last = max(frontier, key=lambda var: self._order.get(var, -1))
            inner = self.producer(last)
            if inner is None or op_name(inner) not in VALUES:
                return None
            taken.append((last, inner))
        return None

    def _make(self, x: relax.Expr, name: str, alpha: float) -> relax.Expr:
        if name == "leaky_relu":
            return relax.op.nn.leakyrelu(x, alpha)
        return own.elu(x, alpha) if name == "elu" else _MAKERS[name](self, x)


def _read(taken: list[Bound]) -> set[relax.Var]:
    """Variables that an expression reads and does not compute."""
    inside = {var for var, _ in taken if var is not None}
    return {arg for _, call in taken for arg in call.args if isinstance(arg, relax.Var)} - inside


def _slope(call: relax.Call) -> float | None:
    """The one slope of a ``prelu``."""
    if op_name(call) != "relax.nn.prelu" or not is_const(call.args[1]):
        return None
    slopes = np.unique(as_numpy(call.args[1]).astype(np.float64))
    return float(slopes[0]) if slopes.size == 1 else None


def _numbers(taken: list[Bound]) -> list[float]:
    """First values of the constants of an expression."""
    found = (as_numpy(arg) for _, call in taken for arg in call.args if is_const(arg))
    return [float(array.reshape(-1)[0]) for array in found if array.size]


def _in_float16(value: float) -> bool:
    return float(np.float16(value)) == value


def _name(y: np.ndarray, room: tuple[float, float]) -> tuple[str, float] | None:
    """The activation with the nearest values, and its alpha."""
    if not np.isfinite(y[np.abs(_X) <= _SAFE]).all():
        return None
    off, name = min((_distance(y, _wanted(name), room), name) for name in _MAKERS)
    if off <= 1.0:
        return name, 0.0
    at = int(np.argmin(np.abs(_X + 1)))
    for name in WITH_ALPHA:
        alpha = float(y[at] / _wanted(name, 1.0)[at])
        if math.isclose(alpha, short := float(f"{alpha:.6g}"), rel_tol=1e-7):
            alpha = short  # 0.1 in float32
        # A slope of 1 is no activation; one near 0 is a relu or keeps values from zero.
        usable = math.isfinite(alpha) and abs(alpha) > room[1]
        usable = usable and not (name == "leaky_relu" and alpha == 1.0)
        if usable and _distance(y, activate(name, _X, alpha), room) <= 1.0:
            return name, alpha
    return None


def _distance(y: np.ndarray, wanted: np.ndarray, room: tuple[float, float]) -> float:
    """Largest deviation, 1 where there is no room for more."""
    known = np.isfinite(y)
    relative, absolute = room
    most = np.where(_KINKS, absolute, _CANCELS) + relative * np.abs(wanted)
    with np.errstate(over="ignore"):
        return float((np.abs(y - wanted) / most)[known].max())


@functools.cache
def _wanted(name: str, alpha: float = 0.0) -> np.ndarray:
    return np.clip(_X / 6 + 0.5, 0, 1) if name == _HARD_SIGMOID else activate(name, _X, alpha)


def _hard_sigmoid(p: Rewriter, x: relax.Expr) -> relax.Expr:
    """Rewrite it into a clip, whose scale goes into the weights of a convolution in front of it."""
    sixth, half = (relax.const(value, dtype_of(x)) for value in (1 / 6, 0.5))
    return relax.op.clip(p.emit(relax.op.add(p.emit(relax.op.multiply(x, sixth)), half)), 0.0, 1.0)


_HARD_SIGMOID = "hard_sigmoid"
_MAKERS: dict[str, Callable[[Rewriter, relax.Expr], relax.Expr]] = {
    "relu": lambda p, x: relax.op.nn.relu(x),
    "sigmoid": lambda p, x: relax.op.sigmoid(x),
    "silu": lambda p, x: relax.op.nn.silu(x),
    "gelu": lambda p, x: relax.op.nn.gelu(x),
    "gelu_tanh": lambda p, x: relax.op.nn.gelu_tanh(x),
    "hardswish": lambda p, x: own.hardswish(x),
    "tanh": lambda p, x: relax.op.tanh(x),
    "mish": lambda p, x: own.mish(x),
    "softplus": lambda p, x: relax.op.nn.softplus(x),
    _HARD_SIGMOID: _hard_sigmoid,
}
