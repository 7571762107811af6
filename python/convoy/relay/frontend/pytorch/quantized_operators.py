"""Operators on quantized tensors that are no layers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from convoy.relay.ast import Expr
from convoy.relay.frontend.common import const, dtype_of, value_of
from convoy.relay.frontend.pytorch.quantized import quantized
from convoy.relay.frontend.pytorch.registry import Call, convert, converter_of
from convoy.relay.frontend.pytorch.values import Quantized
from convoy.relay.op import nn
from convoy.relay.op import tensor as R


@convert("add", "add_relu", "mul", "mul_relu", namespace="quantized")
def binary(call: Call) -> Quantized:
    """Add or multiply quantized tensors, in real numbers."""
    left, right = (call.get(n).dequantized() for n in ("qa", "qb"))
    real = (R.add if "add" in call.short else R.multiply)(left, right)
    if call.short.endswith("relu"):
        real = nn.relu(real)
    return quantized(real, call.get("scale"), call.args["zero_point"], "uint8")


@convert("cat", namespace="quantized")
def cat(call: Call) -> Quantized:
    return _joined(call.get("qx"), call.get("dim"), call.get("scale"), call.args["zero_point"])


def _joined(parts: Sequence[Any], axis: int, scale: Any, zero_point: Any) -> Quantized:
    joined = R.concatenate([p.dequantized() for p in parts], axis=axis)
    return quantized(joined, scale, zero_point, dtype_of(parts[0].expr))


def _parameters(data: Quantized) -> tuple[float, int, np.iinfo]:
    """Return the scale, the zero point and the limits of a quantized tensor."""
    scale, zero_point = value_of(data.scale), value_of(data.zero_point)
    assert scale is not None
    assert zero_point is not None
    return float(scale), int(zero_point), np.iinfo(dtype_of(data.expr))


@convert("mul_scalar", namespace="quantized")
def mul_scalar(call: Call) -> Quantized:
    """Multiply the scale; a negative number mirrors the integers."""
    data, factor = call.get("qa"), float(call.args["b"])
    scale, zero_point, limits = _parameters(data)
    if factor == 0:
        return Quantized(R.zeros_like(data.expr), _float(1.0), _int(0))
    if factor > 0:
        return Quantized(data.expr, _float(scale * factor), data.zero_point)
    ends = limits.min + limits.max
    mirrored = R.subtract(_int(ends), R.cast(data.expr, "int32"))
    return Quantized(
        R.cast(mirrored, limits.dtype.name), _float(-scale * factor), _int(ends - zero_point)
    )


@convert("add_scalar", namespace="quantized")
def add_scalar(call: Call) -> Quantized:
    """Move the zero point; where it leaves the integers, widen the scale."""
    data, term = call.get("qa"), float(call.args["b"])
    scale, zero_point, limits = _parameters(data)
    moved = zero_point - int(np.rint(term / scale))
    if limits.min <= moved <= limits.max:
        return Quantized(data.expr, data.scale, _int(moved))
    end, other = (limits.min, limits.max) if moved < limits.min else (limits.max, limits.min)
    wider = scale * abs(other - moved) / (limits.max - limits.min)
    real = R.add(data.dequantized(), _float(term))
    return quantized(real, wider, end, limits.dtype.name)


def _float(value: float) -> Any:
    return const(np.float32(value))


def _int(value: int) -> Any:
    return const(np.int32(value))


@convert("hardswish", "leaky_relu", "sigmoid", "elu", namespace="quantized")
def activation(call: Call) -> Quantized:
    """Compute a function of real numbers and quantize its result."""
    args = dict(call.args)
    scale, zero_point = args.pop("output_scale"), args.pop("output_zero_point")
    first = next(iter(args))
    data = args.pop(first)
    real = _in_real(f"aten::{call.short}", data, args, call)
    return quantized(real, scale, zero_point, dtype_of(data.expr))


def _in_real(name: str, data: Quantized, args: dict[str, Any], call: Call) -> Expr:
    converter = converter_of(name)
    assert converter is not None
    return converter(Call(name, {"self": data.dequantized(), **args}, call.default_dtype))


@convert("relu6", namespace="quantized")
def relu6(call: Call) -> Quantized:
    data = call.get("qx")
    real = _in_real("aten::relu6", data, {}, call)
    return quantized(real, data.scale, data.zero_point, dtype_of(data.expr))


def _argument(call: Call) -> str | None:
    """Return the name of the quantized argument of an operator that also takes real numbers."""
    if call.name.startswith("quantized::"):
        return None
    return next((n for n, v in call.args.items() if isinstance(v, Quantized)), None)


# Operators that keep scale and zero point: they work on the integers.
_KEEPING = (
    "max_pool2d", "relu", "view", "reshape", "flatten", "permute", "transpose", "contiguous",
    "select", "slice", "unsqueeze", "squeeze", "dropout", "clone", "detach", "chunk", "unbind",
)  # fmt: skip


def on_integers(call: Call) -> Any:
    """Convert an operator that keeps scale and zero point, None where it does not."""
    name = _argument(call)
    if name is None or call.short not in _KEEPING:
        return None
    data = call.args[name]
    if call.short == "relu":
        zero = const(np.asarray(data.zero_point.value, dtype_of(data.expr)))
        return Quantized(R.maximum(data.expr, zero), data.scale, data.zero_point)
    converter = converter_of(call.name)
    assert converter is not None
    result = converter(Call(call.name, {**call.args, name: data.expr}, call.default_dtype))
    if isinstance(result, Sequence):
        return [Quantized(r, data.scale, data.zero_point) for r in result]
    return Quantized(result, data.scale, data.zero_point)


# Operators whose result has the scale of the input.
_REQUANTIZED = (
    "adaptive_avg_pool2d", "avg_pool2d", "mean", "upsample_nearest2d", "upsample_bilinear2d",
    "hardtanh", "leaky_relu", "relu6", "hardswish",
)  # fmt: skip

# Functions with a range of their own, which the 256 steps of their result cover.
_RANGES = {"sigmoid": (0.0, 1.0), "hardsigmoid": (0.0, 1.0), "tanh": (-1.0, 1.0)}


def in_real(call: Call) -> Any:
    """Convert an operator on the real numbers, and quantize its result again."""
    parts = call.get("tensors")
    if call.short == "cat" and isinstance(parts[0], Quantized):
        return _joined(parts, call.get("dim", 0), parts[0].scale, parts[0].zero_point)
    name = _argument(call)
    converter = converter_of(call.name)
    known = call.short in _REQUANTIZED or call.short in _RANGES
    if name is None or not known or converter is None:
        return None
    data = call.args[name]
    scale, zero_point, dtype = data.scale, data.zero_point, dtype_of(data.expr)
    if call.short in _RANGES:
        low, high = _RANGES[call.short]
        scale = (high - low) / 256
        zero_point = int(np.iinfo(dtype).min - low / scale)
    real = converter(Call(call.name, {**call.args, name: data.dequantized()}, call.default_dtype))
    return quantized(real, scale, zero_point, dtype)
