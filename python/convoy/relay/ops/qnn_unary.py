"""Functions of one quantized value, expanded into a table or into real numbers.

A function of 8 bits is a table of 256 results, computed when the module is built. Softmax and wider
integers are computed on real numbers, between a dequantization and a quantization.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from convoy.relay import ast
from convoy.relay.ast import Call, Expr
from convoy.relay.ops.arguments import make_call
from convoy.relay.ops.expansion_call import attrs_of, const, constant, name_of, plain, type_of
from convoy.relay.ops.qnn_arithmetic import dequantized, limits, per_tensor, quantized
from convoy.relay.ops.registry import builder, expansion, type_rule
from convoy.relay.ops.type_inputs import Inputs
from convoy.relay.types import TensorType, Type

Function = Callable[[np.ndarray], np.ndarray]


def hardswish(x: np.ndarray) -> np.ndarray:
    """Compute x * clip(x + 3, 0, 6) / 6."""
    return x * np.clip(x + 3.0, 0.0, 6.0) / 6.0


_FUNCTIONS: dict[str, Function] = {
    "abs": np.abs,
    "erf": np.vectorize(math.erf, otypes=["float32"]),
    "exp": np.exp,
    "hardswish": hardswish,
    "log": np.log,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "sqrt": np.sqrt,
    "tanh": np.tanh,
}
_NAMES = tuple(f"qnn.{name}" for name in (*_FUNCTIONS, "leaky_relu", "softmax"))


def _unary(name: str) -> None:
    def build(
        x: Expr, scale: Expr, zero_point: Expr, output_scale: Expr, output_zero_point: Expr
    ) -> Call:
        return make_call(f"qnn.{name}", x, scale, zero_point, output_scale, output_zero_point)

    build.__name__ = build.__qualname__ = name
    build.__doc__ = f"Apply `{name}` to each quantized value."
    builder(f"qnn.{name}")(build)


for _name in _FUNCTIONS:
    _unary(_name)


@builder("qnn.leaky_relu")
def leaky_relu(
    x: Expr,
    alpha: float,
    input_scale: Expr,
    input_zero_point: Expr,
    output_scale: Expr,
    output_zero_point: Expr,
) -> Call:
    """Multiply values below zero by `alpha`."""
    args = (x, input_scale, input_zero_point, output_scale, output_zero_point)
    return make_call("qnn.leaky_relu", *args, alpha=alpha)


@builder("qnn.softmax")
def softmax(
    x: Expr,
    scale: Expr,
    zero_point: Expr,
    output_scale: Expr,
    output_zero_point: Expr,
    axis: int = -1,
) -> Call:
    """Apply softmax along an axis."""
    args = (x, scale, zero_point, output_scale, output_zero_point)
    return make_call("qnn.softmax", *args, axis=axis)


@type_rule(*_NAMES)
def infer_unary(call: Inputs) -> Type:
    call.count(5)
    return call.tensor(0)


@expansion(*_NAMES)
def expand_unary(call: Call, args: Sequence[Expr]) -> Expr:
    name, type_ = name_of(call).removeprefix("qnn."), type_of(call, 0)
    numbers = [constant(call, arg, "a scale or zero point") for arg in args[1:]]
    function = _FUNCTIONS.get(name)
    if name == "leaky_relu":
        alpha = np.float32(attrs_of(call)["alpha"])
        function = lambda x: np.where(x < 0, x * alpha, x)  # noqa: E731
    if function is not None and type_.dtype in ("int8", "uint8"):
        return _looked_up(args[0], type_, function, numbers)
    scale, zero, out_scale, out_zero = numbers
    ndim = len(type_.shape)
    real = dequantized(args[0], scale, zero, -1, ndim)
    if name == "hardswish":
        gate = plain("clip", plain("add", real, const(3, "float32")), a_min=0.0, a_max=6.0)
        value = plain("divide", plain("multiply", real, gate), const(6, "float32"))
    else:
        prefix = "nn." if name in ("leaky_relu", "softmax") else ""
        value = plain(prefix + name, real, **attrs_of(call))
    return quantized(value, out_scale, out_zero, -1, ndim, type_.dtype)


def _looked_up(
    value: Expr, type_: TensorType, function: Function, numbers: Sequence[np.ndarray]
) -> Expr:
    """Look results up in a table of all 256 values."""
    return looked_up(value, type_.dtype, lookup_table(function, numbers, type_.dtype, type_.dtype))


def lookup_table(
    function: Function, numbers: Sequence[np.ndarray], in_dtype: str, out_dtype: str
) -> np.ndarray:
    """Compute the results of all values of 8 or 16 bits, in the order of their unsigned codes.

    Args:
        function: Takes and returns float32 arrays.
        numbers: Scale and zero point of the input, then those of the result.
        in_dtype, out_dtype: The quantized dtypes.
    """
    scale, zero, out_scale, out_zero = map(per_tensor, numbers)
    bits = np.iinfo(in_dtype).bits
    codes = np.arange(2**bits).astype(f"uint{bits}").view(in_dtype).astype("int32")
    with np.errstate(all="ignore"):
        real = function(((codes - zero) * scale).astype("float32")).astype("float32")
        steps = real / np.float32(out_scale)
        # Halves are rounded away from zero; a value that is no number becomes the zero point.
        steps = np.nan_to_num(np.trunc(steps + np.copysign(0.5, steps)), posinf=2e9, neginf=-2e9)
    return np.clip(steps + out_zero, *limits(out_dtype)).astype(out_dtype)


def looked_up(value: Expr, dtype: str, table: np.ndarray) -> Expr:
    """Take the results of quantized values from a table."""
    if not dtype.startswith("uint"):
        value = plain("reinterpret", value, dtype=f"u{dtype}")
    return plain("take", ast.Constant(table), plain("cast", value, dtype="int32"), axis=0,
                 mode="fast")  # fmt: skip
