"""Convolutions of quantized data and weights -> convolutions of int8 with sums in int32.

Importers write a quantized convolution as one of int32 without the zero points, or of the floats
that the integers stand for: ``scale * (q - zero)``, and weights with their scale multiplied in. Of
the latter only the rounding of float32 changes: the sums of integers are exact, and scaled once.
The zero point of the data leaves a constant for each output channel, which is the convolution's
bias; padding is done before, with the zero point. uint8 becomes int8 by a shift of 128, where a
value is quantized if that is in the network: then a kernel may write it behind its own sums.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
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
    number,
    op_name,
    padding4,
    permutation_of,
    shape_of,
)
from ..graph.rewriter import Rewriter, calls_of
from .integer_weights import as_integers

_CONV = frozenset({"relax.nn.conv2d"})
_AFFINE = frozenset({"relax.multiply", "relax.add", "relax.subtract"})
#: Channels that kernels for integers load at once.
VECTOR = 4
#: Products of int8 in one sum from which on it may not fit into int32.
MOST_PRODUCTS = 1 << 17
_MOST_ZERO = 1 << 15


@dataclass(frozen=True)
class Quantized:
    """A value as ``scale * (q - zero)``, q of 8 bits, its axes in another order."""

    q: relax.Expr
    zero: int
    scale: float
    axes: tuple[int, ...]


class IntegerConvolutions(Rewriter):
    """Of convolutions with channels last, constant weights and one group."""

    ops: ClassVar[frozenset[str] | None] = _CONV | {"relax.astype"}

    def __init__(self) -> None:
        super().__init__()
        self._made: dict[tuple[object, ...], relax.Expr] = {}

    def __call__(self, mod: tvm.IRModule) -> tvm.IRModule:
        return super().__call__(mod) if calls_of(mod, _CONV) else mod

    def rewrite(self, call: relax.Call, old: relax.Call) -> relax.Expr | None:
        return self._cast(call) if op_name(call) == "relax.astype" else self._convolution(call)

    def _cast(self, call: relax.Call) -> relax.Expr | None:
        """uint8 of rounded and clipped floats, from the int8 that are 128 less."""
        clip = self.producer(call.args[0], "relax.clip") if dtype_of(call) == "uint8" else None
        if clip is None or dtype_of(clip) != "float32":
            return None
        low, high = (float(number(arg)) for arg in clip.args[1:3])
        value: relax.Expr = clip.args[0]
        zero: float | None = 0.0
        if (added := self.producer(value, "relax.add")) is not None:
            value, zero = added.args[0], _scalar(added)
        rounded = self.producer(value, "relax.round") is not None
        if not rounded or zero is None or zero % 1 or not 0 <= low <= high <= 255:
            return None
        shifted = self.emit(relax.op.add(value, relax.const(zero - 128, "float32")))
        clipped = self.emit(relax.op.clip(shifted, low - 128, high - 128))
        narrow = self.emit(relax.op.astype(clipped, "int8"))
        wide = self.emit(relax.op.astype(narrow, "int32"))
        wide = self.emit(relax.op.add(wide, relax.const(128, "int32")))
        result = self.emit(relax.op.astype(wide, "uint8"))
        self._made[(result,)] = narrow
        return result

    def _convolution(self, call: relax.Call) -> relax.Expr | None:
        (data, kernel), result = call.args, dtype_of(call)
        layouts = (str(call.attrs.data_layout), str(call.attrs.kernel_layout))
        if layouts != ("NHWC", "OHWI") or int(call.attrs.groups) != 1 or not is_const(kernel):
            return None
        if result not in ("int32", "float32") or dtype_of(kernel) not in ("int8", "int32", result):
            return None
        quantized = self._quantized(data, result == "float32")
        if quantized is None or math.prod(shape_of(kernel)[1:]) >= MOST_PRODUCTS:
            return None
        quantized = self._as_int8(quantized)
        padding, zero = padding4(call.attrs.padding), quantized.zero
        found = as_integers(as_numpy(kernel)) if -128 <= zero <= 127 or not any(padding) else None
        if found is None:
            return None
        weights, scales = found
        if result == "float32" and not _fit_int32(weights, zero):
            return None
        more = -weights.shape[3] % VECTOR
        if not zero:
            ahead: tuple[int, int, int, int] = (0, 0, 0, 0)
        else:
            ahead, padding = padding, (0, 0, 0, 0)
        x = self._padded(quantized, ahead, more)
        w = make_const(np.pad(weights, [(0, 0)] * 3 + [(0, more)]))
        y = self.emit(call_like(call, [x, w], padding=padding, out_dtype="int32"))
        if zero:
            sums = weights.astype(np.int64).sum(axis=(1, 2, 3))
            y = self.emit(relax.op.add(y, make_const(-zero * sums, "int32")))
        if result == "int32":
            return y
        y = self.emit(relax.op.astype(y, "float32"))
        return relax.op.multiply(y, make_const(scales * quantized.scale, "float32"))

    def _quantized(self, value: relax.Expr, scaled: bool) -> Quantized | None:
        """What a value, of integers or of scaled ones, was dequantized from."""
        shift, scale, axes = 0.0, 1.0, [0, 1, 2, 3]
        while dtype_of(value) not in ("int8", "uint8"):
            if (made := self.producer(value)) is None:
                return None
            name = op_name(made)
            if name == "relax.permute_dims":
                inner = permutation_of(made)
                axes = [inner[axis] for axis in axes]
            elif name in _AFFINE and (dtype_of(value) == "int32" or scaled):
                if (constant := _scalar(made)) is None:
                    return None
                if name == "relax.multiply":
                    scale *= constant
                else:
                    shift += scale * (constant if name == "relax.add" else -constant)
            elif name != "relax.astype" or dtype_of(made.args[0]) not in _WIDENED[dtype_of(value)]:
                return None
            value = made.args[0]
        zero = _integer(-shift / scale) if scale else None
        if zero is None or not math.isfinite(scale):
            return None
        return Quantized(value, zero, scale, tuple(axes))

    def _as_int8(self, quantized: Quantized) -> Quantized:
        q, zero = quantized.q, quantized.zero
        if dtype_of(q) == "int8":
            return quantized
        if (key := (q,)) not in self._made:
            wide = self.emit(relax.op.astype(q, "int32"))
            shifted = self.emit(relax.op.subtract(wide, relax.const(128, "int32")))
            self._made[key] = self.emit(relax.op.astype(shifted, "int8"))
        return dataclasses.replace(quantized, q=self._made[key], zero=zero - 128)

    def _padded(
        self, quantized: Quantized, padding: tuple[int, int, int, int], channels: int
    ) -> relax.Expr:
        """The integers, channels last, with their zero point around the images and behind the
        channels, where weights are zero."""
        key = (quantized, padding, channels)
        if key not in self._made:
            x = quantized.q
            if quantized.axes != (0, 1, 2, 3):
                x = self.emit(relax.op.permute_dims(x, list(quantized.axes)))
            if any(padding) or channels:
                top, left, bottom, right = padding
                width = [0, 0, top, bottom, left, right, 0, channels]
                value = quantized.zero if any(padding) else 0
                x = self.emit(relax.op.nn.pad(x, width, pad_value=value))
            self._made[key] = x
        return self._made[key]


def _fit_int32(weights: np.ndarray, zero: int) -> bool:
    """Whether no sum of products of ``q - zero`` is beyond int32, where integers wrap around."""
    largest = int(np.abs(weights.astype(np.int64)).sum(axis=(1, 2, 3)).max())
    return largest * (128 + abs(zero)) < 2**31


#: Dtypes of which a cast keeps every value that 8 bits have.
_WIDENED = {
    "float32": ("int8", "uint8", "int16", "int32"),
    "int32": ("int8", "uint8", "int16"),
    "int16": ("int8", "uint8"),
}


def _integer(value: float) -> int | None:
    """The integer that a quotient of float32 is but for rounding; None if it is no zero point."""
    nearest = round(value) if abs(value) <= _MOST_ZERO else None
    return (
        nearest if nearest is not None and abs(value - nearest) <= 2.0**-21 * abs(value) else None
    )


def _scalar(call: relax.Call) -> float | None:
    """The number that the first operand is combined with; None if there is none."""
    x, other = call.args
    if not is_const(other) or as_numpy(other).size != 1 or shape_of(x) != shape_of(call):
        return None
    return float(as_numpy(other).item())
