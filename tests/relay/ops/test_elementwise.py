"""Elementwise operators against numpy."""

from __future__ import annotations

from typing import Any

import numpy as np

from convoy import relay

from .. import reference
from .cases import INTS, POSITIVE, RNG, UNIT, Case, X, check, uniform


def test_unary() -> None:
    numpy_of = {
        **{
            n: getattr(np, n)
            for n in ["abs", "exp", "floor", "ceil", "sign", "sin", "cos", "tan", "sinh", "cosh"]
        },
        **{n: getattr(np, n) for n in ["tanh", "trunc", "negative"]},
        "asin": np.arcsin,
        "acos": np.arccos,
        "atan": np.arctan,
        "asinh": np.arcsinh,
        "atanh": np.arctanh,
        "sigmoid": reference.sigmoid,
        "erf": reference.erf,
        "round": np.round,
        "fast_exp": np.exp,
        "fast_tanh": np.tanh,
        "fast_erf": reference.erf,
        "copy": lambda x: x,
        "zeros_like": np.zeros_like,
        "ones_like": np.ones_like,
        "isnan": np.isnan,
        "isinf": np.isinf,
        "isfinite": np.isfinite,
    }
    cases = {n: Case(getattr(relay, n), f, UNIT) for n, f in numpy_of.items()}
    for name, function in {
        "log": np.log,
        "log2": np.log2,
        "log10": np.log10,
        "sqrt": np.sqrt,
        "rsqrt": lambda x: 1 / np.sqrt(x),
        "acosh": lambda x: np.arccosh(x),
    }.items():
        cases[name] = Case(getattr(relay, name), function, uniform(7, low=1.1, high=3))
    cases["bitwise_not"] = Case(relay.bitwise_not, np.invert, INTS)
    cases["logical_not"] = Case(relay.logical_not, np.logical_not, UNIT > 0)
    unsigned = np.array([0, 1, 7, 255], "uint8")
    cases["unsigned_negative"] = Case(relay.negative, np.negative, unsigned)
    cases["unsigned_sign"] = Case(relay.sign, np.sign, unsigned)
    check(cases)


def test_binary() -> None:
    a, b = uniform(3, 1, 4), uniform(2, 4, low=0.5, high=2)
    numpy_of: dict[str, Any] = {
        **{
            n: getattr(np, n)
            for n in ["add", "subtract", "multiply", "divide", "maximum", "minimum"]
        },
        **{n: getattr(np, n) for n in ["equal", "not_equal", "less", "less_equal", "greater"]},
        "greater_equal": np.greater_equal,
        "floor_divide": np.floor_divide,
        "floor_mod": np.mod,
        "mod": np.fmod,
    }
    cases = {n: Case(getattr(relay, n), f, a, b) for n, f in numpy_of.items()}
    cases["power"] = Case(relay.power, np.power, np.abs(a), b)
    i, j = INTS, RNG.integers(1, 5, (3, 1)).astype("int32")
    for name, function in {
        "divide": lambda x, y: np.trunc(x / y).astype("int32"),
        "trunc_divide": lambda x, y: np.trunc(x / y).astype("int32"),
        "mod": np.fmod,
        "trunc_mod": np.fmod,
        "floor_divide": np.floor_divide,
        "floor_mod": np.mod,
        "bitwise_and": np.bitwise_and,
        "bitwise_or": np.bitwise_or,
        "bitwise_xor": np.bitwise_xor,
        "left_shift": lambda x, y: np.left_shift(x, y),
        "right_shift": np.right_shift,
    }.items():
        cases[f"int_{name}"] = Case(getattr(relay, name), function, i, j)
    for name in ("logical_and", "logical_or", "logical_xor"):
        cases[name] = Case(getattr(relay, name), getattr(np, name), i > 0, j > 2)
    check(cases)


def test_elementwise_with_attributes() -> None:
    check(
        {
            "clip": Case(lambda x: relay.clip(x, -1, 1), lambda x: np.clip(x, -1, 1), X),
            "clip_int": Case(
                lambda x: relay.clip(x, -1e9, 3), lambda x: np.minimum(x, 3), INTS.astype("int8")
            ),
            "relu": Case(relay.nn.relu, lambda x: np.maximum(x, 0), X),
            "leaky": Case(relay.nn.leaky_relu, lambda x: np.where(x > 0, x, 0.01 * x), X),
            "prelu": Case(
                relay.nn.prelu,
                lambda x, a: np.where(x > 0, x, x * a[:, None, None]),
                X,
                uniform(6),
            ),
            "cast": Case(lambda x: relay.cast(x, "int32"), lambda x: x.astype("int32"), X),
            "cast_like": Case(relay.cast_like, lambda x, y: x.astype("int32"), X, INTS),
            "where": Case(relay.where, np.where, X > 0, X, POSITIVE),
        }
    )
