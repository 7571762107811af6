"""Affine types: what the integers of a quantized tensor stand for, scale * (q - zero point)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from convoy.relay.ast import Constant, Expr


@dataclass(frozen=True, eq=False)
class TensorAffineType:
    """The quantization of a tensor.

    Attributes:
        scale: The step between two integers; a vector along `axis` where channels differ.
        zero_point: The integer that stands for 0.
        dtype: The dtype of the integers.
        axis: The axis of the channels.
    """

    scale: Expr
    zero_point: Expr
    dtype: str
    axis: int = -1

    @property
    def per_channel(self) -> bool:
        """Whether channels may have scales or zero points of their own."""
        parts = (self.scale, self.zero_point)
        return any(not isinstance(p, Constant) or p.value.size != 1 for p in parts)


@dataclass(frozen=True, eq=False)
class TupleAffineType:
    """The quantizations of a tuple's fields."""

    types: Sequence[TensorAffineType]
