"""Integers in the order of floats, for atomic operations and packed keys."""

from __future__ import annotations

from tvm import tirx
from tvm.tirx import Expr

_MAGNITUDE = (1 << 31) - 1


def ordered_bits(value: Expr) -> Expr:
    """Return an int32 for each float32, such that comparisons give the same; -0.0 is below 0.0."""
    return _flipped(tirx.reinterpret("int32", value))


def float_of(bits: Expr) -> Expr:
    """Invert :func:`ordered_bits`."""
    return tirx.reinterpret("float32", _flipped(bits))


def _flipped(bits: Expr) -> Expr:
    return tirx.Select(bits < 0, bits ^ _MAGNITUDE, bits)
