"""Data that was dequantized: the 8-bit integers, and what was done to them."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass

from tvm import relax

from ..graph.expr import (
    as_numpy,
    dtype_of,
    is_const,
    number,
    op_name,
    permutation_of,
    shape_of,
)
from ..graph.rewriter import Rewriter


@dataclass(frozen=True)
class Quantized:
    """A value as ``scale * (q - zero - point)``, of integers q in 8 bits.

    Attributes:
        point: A scalar of int32 that the network computes, as it does to quantize on the fly.
        moves: Permutations and shapes that make the value's axes of those of q, in order.
    """

    q: relax.Expr
    zero: int
    scale: float
    point: relax.Expr | None
    moves: tuple[tuple[str, tuple[int, ...]], ...]


class QuantizedData(Rewriter):
    """Find what values were dequantized from, and make int8 of it."""

    def __init__(self) -> None:
        super().__init__()
        self._made: dict[tuple[object, ...], relax.Expr] = {}

    def narrowed(self, call: relax.Call) -> relax.Expr | None:
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
        whole = zero is not None and not any(value % 1 for value in (zero, low, high))
        if not rounded or zero is None or not whole or not 0 <= low <= high <= 255:
            return None
        shifted = self.emit(relax.op.add(value, relax.const(zero - 128, "float32")))
        clipped = self.emit(relax.op.clip(shifted, low - 128, high - 128))
        narrow = self.emit(relax.op.astype(clipped, "int8"))
        wide = self.emit(relax.op.astype(narrow, "int32"))
        wide = self.emit(relax.op.add(wide, relax.const(128, "int32")))
        result = self.emit(relax.op.astype(wide, "uint8"))
        self._made[(result,)] = narrow
        return result

    def quantized(self, value: relax.Expr) -> Quantized | None:
        """What a value, of integers in int32 or of scaled ones in float32, was dequantized from."""
        scaled, moves = dtype_of(value) == "float32", []
        shift, scale, point = 0.0, 1.0, None
        while dtype_of(value) not in ("int8", "uint8"):
            if (made := self.producer(value)) is None:
                return None
            name = op_name(made)
            if name == "relax.permute_dims":
                moves.append((name, tuple(permutation_of(made))))
            elif name == "relax.reshape":
                moves.append((name, shape_of(made)))
            elif name in _AFFINE[dtype_of(value)] and (constant := _scalar(made)) is not None:
                if name == "relax.multiply":
                    scale *= constant
                else:
                    shift += scale * (constant if name == "relax.add" else -constant)
            elif name == "relax.subtract" and dtype_of(value) == "int32":
                if point is not None or scaled or shape_of(made.args[1]) != ():
                    return None
                point = made.args[1]
            elif name != "relax.astype" or dtype_of(made.args[0]) not in _WIDENED[dtype_of(value)]:
                return None
            value = made.args[0]
        zero = _whole(-shift / scale) if scale else None
        if zero is None or not math.isfinite(scale):
            return None
        return self._as_int8(Quantized(value, zero, scale, point, tuple(reversed(moves))))

    def _as_int8(self, quantized: Quantized) -> Quantized:
        q, zero = quantized.q, quantized.zero
        if dtype_of(q) == "int8":
            return quantized
        if (key := (q,)) not in self._made:
            wide = self.emit(relax.op.astype(q, "int32"))
            shifted = self.emit(relax.op.subtract(wide, relax.const(128, "int32")))
            self._made[key] = self.emit(relax.op.astype(shifted, "int8"))
        return dataclasses.replace(quantized, q=self._made[key], zero=zero - 128)

    def padded(self, quantized: Quantized, around: tuple[int, ...], channels: int) -> relax.Expr:
        """The integers with the value's axes, and padding: their zero point around its inner axes
        (before and behind each), and ``channels`` behind the last axis, where weights are zero."""
        key = (quantized, around, channels)
        if key not in self._made:
            x = quantized.q
            for name, sizes in quantized.moves:
                if name == "relax.reshape":
                    x = self.reshaped(x, sizes)
                else:
                    x = self.emit(relax.op.permute_dims(x, list(sizes)))
            if any(around) or channels:
                value = quantized.zero if any(around) else 0
                width = [0, 0, *around, 0, channels]
                x = self.emit(relax.op.nn.pad(x, width, pad_value=value))
            self._made[key] = x
        return self._made[key]


#: Dtypes of which a cast keeps every value that 8 bits have.
_WIDENED = {
    "float32": ("int8", "uint8", "int16", "int32"),
    "int32": ("int8", "uint8", "int16"),
    "int16": ("int8", "uint8"),
}


#: Operators between 8 bits and the value that a scalar may be the second operand of.
_AFFINE = {
    "float32": ("relax.multiply", "relax.add", "relax.subtract"),
    "int32": ("relax.add", "relax.subtract"),
    "int16": (),
}
_MOST_ZERO = 1 << 15


def _whole(value: float) -> int | None:
    """The integer that a quotient of float32 is but for rounding; None if it is no zero point."""
    if not abs(value) <= _MOST_ZERO or abs(value - round(value)) > 2.0**-21 * abs(value):
        return None
    return round(value)


def _scalar(call: relax.Call) -> float | None:
    """The number that the first operand is combined with; None if there is none."""
    x, other = call.args
    if not is_const(other) or as_numpy(other).size != 1 or shape_of(x) != shape_of(call):
        return None
    return float(as_numpy(other).item())
