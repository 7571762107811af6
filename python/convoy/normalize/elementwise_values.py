"""Values of element-wise expressions in float64, operator by operator."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import ArrayLike
from tvm import relax

from ..graph.expr import as_numpy, dtype_of, is_const, op_name, shape_of
from ..ir.activation_values import activate, erf

#: A call, and the variable that it is bound to (None: it is being visited).
Bound = tuple[relax.Var | None, relax.Call]


def evaluate(x: relax.Var, at: np.ndarray, calls: Sequence[Bound]) -> np.ndarray | None:
    """Values of an expression in float64.

    Args:
        x: The one tensor that it reads.
        at: Values of ``x``.
        calls: Its calls of :data:`VALUES` with the variables that they are bound to, in order.

    Returns:
        Values of the last call, of the shape of ``at``; None where a call has an operand with
        several values.
    """
    values: dict[relax.Expr, np.ndarray] = {x: at}
    result = at
    with np.errstate(all="ignore"):
        for var, call in calls:
            args = [_argument(arg, values, call) for arg in call.args]
            if any(arg is None for arg in args):
                return None
            result = np.asarray(VALUES[op_name(call)](call, *args), np.float64)
            if var is not None:
                values[var] = result
    return result if result.shape == at.shape else None


def _argument(
    arg: relax.Expr, values: Mapping[relax.Expr, np.ndarray], call: relax.Call
) -> np.ndarray | float | relax.Expr | None:
    """Values of an operand: those of a variable, or a constant with one value that spreads. Zeros
    for each channel are a bias that has not been trained, and no part of an activation."""
    if arg in values:
        return values[arg]
    if not is_const(arg):
        return arg if not isinstance(arg, relax.Var) else None  # a bound of clip
    array, shape = as_numpy(arg), shape_of(call)
    if not array.size or array.ndim > len(shape) or array.dtype.kind not in "fV":
        return None
    first = array.reshape(-1)[0]
    if array.size > 1 and not first:
        return None
    return float(first) if bool((array == first).all()) else None


def _softplus(call: relax.Call, x: np.ndarray) -> np.ndarray:
    beta, threshold = float(call.attrs.beta), float(call.attrs.threshold)
    return np.where(x * beta > threshold, x, activate("softplus", x * beta) / beta)


def _bound(value: float | relax.Expr) -> float:
    return float(getattr(value, "value", value))


def _plain(name: str) -> Callable[..., np.ndarray]:
    return lambda call, x: activate(name, x)


def _cast(call: relax.Call, x: np.ndarray) -> np.ndarray:
    dtype = dtype_of(call)
    if dtype == "bool":
        return x != 0
    return np.trunc(x) if "int" in dtype else x


_OPERATORS: dict[str, Callable[..., ArrayLike]] = {
    "astype": _cast,
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
    "convoy.hardswish": _plain("hardswish"),
    "convoy.mish": _plain("mish"),
    "convoy.elu": lambda call, x: activate("elu", x, float(call.attrs["alpha"])),
}
#: Values of a call of an operator by its name: of the call itself and the values of its operands.
VALUES = {f"relax.{name}": function for name, function in _OPERATORS.items()}
