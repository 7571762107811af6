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
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from tvm import relax

from ..graph.expr import FLOAT_DTYPES, as_numpy, dtype_of, is_const, op_name, shape_of
from ..graph.rewriter import Rewriter
from ..ir.activation import WITH_ALPHA, activate, erf
from ..ops import activation as own

Array = np.ndarray[Any, np.dtype[Any]]

#: Operators of the longest spelling, with room to spare.
MOST_OPERATORS = 20
#: Relative and absolute deviation. Where all constants are numbers of float16 they may have been
#: rounded to it, which moves the kink of a hard swish; the kinds of GELU are 4.7e-4 apart.
_EXACT, _ROUNDED = (1e-6, 1e-7), (4e-4, 4e-4)
#: Beyond it a spelling may overflow in float32; up to here its values have to be finite.
_SAFE = 20.0


def _points() -> Array:
    """Closely around zero, then as far as 16-bit numbers go; none where a comparison flips."""
    near = np.arange(-12.0, 12.0, 1 / 16) + 0.011
    far = np.geomspace(12.0, 6e4, 24)
    return np.concatenate([-far[::-1], near, far])


_X = _points()


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
        if op_name(call) not in _VALUES or dtype_of(call) not in FLOAT_DTYPES:
            return None
        if (slope := _slope(call)) is not None:
            return relax.op.nn.leakyrelu(call.args[0], slope)
        taken: list[tuple[relax.Var | None, relax.Call]] = [(None, call)]
        while len(taken) <= MOST_OPERATORS:
            frontier = _read(taken)
            if len(frontier) == 1 and len(taken) > 1:
                (x,) = frontier
                if (dtype_of(x), shape_of(x)) == (dtype_of(call), shape_of(call)):
                    y = _values(x, taken)
                    room = _ROUNDED if all(map(_in_float16, _numbers(taken))) else _EXACT
                    if y is not None and (found := _name(y, room)) is not None:
                        return self._make(x, *found)
            if not frontier:
                return None
            # What was computed last is read by no other part of the frontier.
            last = max(frontier, key=lambda var: self._order.get(var, -1))
            inner = self.producer(last)
            if inner is None or op_name(inner) not in _VALUES:
                return None
            taken.append((last, inner))
        return None

    def _make(self, x: relax.Expr, name: str, alpha: float) -> relax.Expr:
        if name == "leaky_relu":
            return relax.op.nn.leakyrelu(x, alpha)
        return own.elu(x, alpha) if name == "elu" else _MAKERS[name](self, x)


def _read(taken: list[tuple[relax.Var | None, relax.Call]]) -> set[relax.Var]:
    """Variables that an expression reads and does not compute."""
    inside = {var for var, _ in taken if var is not None}
    return {arg for _, call in taken for arg in call.args if isinstance(arg, relax.Var)} - inside


def _slope(call: relax.Call) -> float | None:
    """The one slope of a ``prelu``."""
    if op_name(call) != "relax.nn.prelu" or not is_const(call.args[1]):
        return None
    slopes = np.unique(as_numpy(call.args[1]).astype(np.float64))
    return float(slopes[0]) if slopes.size == 1 else None


def _values(x: relax.Var, taken: list[tuple[relax.Var | None, relax.Call]]) -> Array | None:
    """Values of an expression at :data:`_X`; None where it has an operand of another kind."""
    values: dict[relax.Expr, Array] = {x: _X}
    result = _X
    with np.errstate(all="ignore"):
        for var, call in reversed(taken):
            args = [_argument(arg, values, call) for arg in call.args]
            if any(arg is None for arg in args):
                return None
            result = np.asarray(_VALUES[op_name(call)](call, *args), np.float64)
            if var is not None:
                values[var] = result
    known = np.isfinite(result)
    return result if result.shape == _X.shape and known[np.abs(_X) <= _SAFE].all() else None


def _argument(arg: relax.Expr, values: Mapping[relax.Expr, Array], call: relax.Call) -> Any:
    """Values of an operand: those of a variable, or a constant with one value that spreads."""
    if arg in values:
        return values[arg]
    if not is_const(arg):
        return arg if not isinstance(arg, relax.Var) else None  # a bound of clip
    array, shape = as_numpy(arg), shape_of(call)
    if not array.size or array.ndim > len(shape) or array.dtype.kind not in "fV":
        return None
    first = array.reshape(-1)[0]
    return float(first) if bool((array == first).all()) else None


def _numbers(taken: list[tuple[relax.Var | None, relax.Call]]) -> list[float]:
    """First values of the constants of an expression."""
    found = (as_numpy(arg) for _, call in taken for arg in call.args if is_const(arg))
    return [float(array.reshape(-1)[0]) for array in found if array.size]


def _in_float16(value: float) -> bool:
    return float(np.float16(value)) == value


def _name(y: Array, room: tuple[float, float]) -> tuple[str, float] | None:
    """The activation with the nearest values, and its alpha."""
    off, name = min((_distance(y, _wanted(name), room), name) for name in _MAKERS)
    if off <= 1.0:
        return name, 0.0
    at = int(np.argmin(np.abs(_X + 1)))
    for name in WITH_ALPHA:
        alpha = float(y[at] / _wanted(name, 1.0)[at])
        if math.isclose(alpha, short := float(f"{alpha:.6g}"), rel_tol=1e-7):
            alpha = short  # 0.1 in float32
        # A slope of 1 is no activation; 0 is a relu, which is known already.
        usable = math.isfinite(alpha) and not (name == "leaky_relu" and alpha == 1.0)
        if usable and _distance(y, activate(name, _X, alpha), room) <= 1.0:
            return name, alpha
    return None


def _distance(y: Array, wanted: Array, room: tuple[float, float]) -> float:
    """Largest deviation, 1 where there is no room for more."""
    known = np.isfinite(y)
    relative, absolute = room
    with np.errstate(over="ignore"):
        off = np.abs(y - wanted)[known] / (absolute + relative * np.abs(wanted[known]))
    return float(off.max())


@functools.cache
def _wanted(name: str, alpha: float = 0.0) -> Array:
    return np.clip(_X / 6 + 0.5, 0, 1) if name == _HARD_SIGMOID else activate(name, _X, alpha)


def _hard_sigmoid(p: Rewriter, x: relax.Expr) -> relax.Expr:
    """As a clip, whose scale goes into the weights of a convolution in front of it."""
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


def _softplus(call: relax.Call, x: Array) -> Array:
    beta = float(call.attrs.beta)
    return activate("softplus", x * beta) / beta


def _bound(value: Any) -> float:
    return float(getattr(value, "value", value))


def _plain(name: str) -> Callable[..., Array]:
    return lambda call, x: activate(name, x)


#: Values of operators, of the call and its operands.
_VALUES: dict[str, Callable[..., Any]] = {
    "relax." + name: function
    for name, function in {
        "astype": lambda call, x: x,
        "add": lambda call, a, b: a + b,
        "subtract": lambda call, a, b: a - b,
        "multiply": lambda call, a, b: a * b,
        "divide": lambda call, a, b: np.divide(a, b),
        "maximum": lambda call, a, b: np.maximum(a, b),
        "minimum": lambda call, a, b: np.minimum(a, b),
        "power": lambda call, a, b: np.power(a, b),
        "negative": lambda call, x: -x,
        "abs": lambda call, x: np.abs(x),
        "square": lambda call, x: x * x,
        "exp": lambda call, x: np.exp(x),
        "log": lambda call, x: np.log(x),
        "erf": lambda call, x: erf(x),
        "clip": lambda call, x, low, high: np.clip(x, _bound(low), _bound(high)),
        "greater": lambda call, a, b: np.greater(a, b),
        "greater_equal": lambda call, a, b: np.greater(a, b),
        "less": lambda call, a, b: np.less(a, b),
        "less_equal": lambda call, a, b: np.less(a, b),
        "where": lambda call, c, a, b: np.where(c, a, b),
        "nn.relu": _plain("relu"),
        "nn.leakyrelu": lambda call, x: activate("leaky_relu", x, float(call.attrs.alpha)),
        "nn.prelu": lambda call, x, slope: activate("leaky_relu", x, slope),
        "nn.softplus": _softplus,
        "nn.silu": _plain("silu"),
        "nn.gelu": _plain("gelu"),
        "nn.gelu_tanh": _plain("gelu_tanh"),
        "sigmoid": _plain("sigmoid"),
        "tanh": _plain("tanh"),
        own.HARDSWISH.removeprefix("relax."): _plain("hardswish"),
        own.MISH.removeprefix("relax."): _plain("mish"),
        own.ELU.removeprefix("relax."): lambda call, x: activate(
            "elu", x, float(call.attrs["alpha"])
        ),
    }.items()
}
