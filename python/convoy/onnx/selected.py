"""Values whose size depends on data: what a mask that is computed selects."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import UnsupportedOp

#: Stands for the number of true elements of a mask among sizes; no tensor is as large.
COUNT = 2**62 + 57


@dataclass(frozen=True, eq=False)
class Selected:
    """A tensor with a row for each true element of a mask. It is kept with a row for each element
    of the mask, in order, of which those of false elements have no meaning.

    Attributes:
        mask: The mask: an expression of bool.
        axis: The axis of the rows.
        value: The tensor with all rows.
        error: What to raise where it is used in another way than selections can be.
        behind: Sizes of axes behind the rows that are laid out with them.
        source: The name of the mask.
    """

    mask: Any
    axis: int
    value: Any
    error: UnsupportedOp
    behind: tuple[int, ...] = ()
    source: str = ""


@dataclass(frozen=True, eq=False)
class Sizes:
    """Integers that are known but for the number of true elements of a mask.

    Attributes:
        mask: The mask.
        array: The integers, of int64, with COUNT in the place of that number.
        error: As of :class:`Selected`.
    """

    mask: Any
    array: np.ndarray
    error: UnsupportedOp


def check_sized(value: Any) -> Any:
    """The value; raises UnsupportedOp where its size depends on data."""
    if isinstance(value, Selected | Sizes):
        raise value.error
    return value
