"""Sizes that users give."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Sequence
from typing import Any

from ..errors import InvalidOption

#: The largest size of an axis, and of a tensor: kernels index with 32 bits.
LARGEST = 2**31 - 1


def check_batch(batch: Any) -> None:
    """Check a batch size.

    Raises:
        InvalidOption: Anything but a number from 1 to :data:`LARGEST`.
    """
    if isinstance(batch, bool) or not _within(batch, 1):
        raise InvalidOption(f"batch {batch!r}", f"a number from 1 to {LARGEST}")


def check_shape(name: str, shape: Sequence[Any]) -> None:
    """Check the shape of an input.

    Raises:
        InvalidOption: Sizes that are no numbers from 0 to :data:`LARGEST`.
    """
    if not isinstance(shape, Iterable) or not all(_within(size, 0) for size in shape):
        raise InvalidOption(f"shape {shape!r} for input {name!r}", f"sizes from 0 to {LARGEST}")


def check_elements(name: str, shape: Sequence[int]) -> None:
    """Check the number of elements of a tensor.

    Raises:
        InvalidOption: More than :data:`LARGEST`.
    """
    if math.prod(shape) > LARGEST:
        raise InvalidOption(
            f"tensor {name!r} of shape {tuple(shape)}, {math.prod(shape)} elements",
            f"at most {LARGEST} in a tensor",
            "Give a smaller batch, or smaller images.",
        )


def _within(size: Any, least: int) -> bool:
    try:
        return least <= operator.index(size) <= LARGEST
    except TypeError:
        return False
