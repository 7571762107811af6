"""Layouts by name: `NCHW`, `OHWI`, `NCHW16c`, `OIHW4i16o`.

An upper-case letter is an axis; a lower-case one with a number in front is that many of the axis's
elements, split off. `NCHW16c` of a (1, 64, 56, 56) tensor is (1, 4, 56, 56, 16).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from math import prod

from convoy.errors import UnsupportedLayout
from convoy.relay.shapes import computed
from convoy.relay.types import Dim

_PART = re.compile(r"([A-Z])|([0-9]+)([a-z])")


@dataclass(frozen=True)
class Layout:
    """A parsed layout.

    Attributes:
        name: The layout as written.
        parts: For each dimension of the tensor its axis (upper case) and the factor that is split
            off (0 for the axis itself).
    """

    name: str
    parts: tuple[tuple[str, int], ...]

    @property
    def axes(self) -> str:
        """The axes in order, without the split parts: `NCHW` of `NCHW16c`."""
        return "".join(axis for axis, factor in self.parts if not factor)

    @property
    def is_plain(self) -> bool:
        """Whether no axis is split."""
        return len(self.axes) == len(self.parts)

    def index(self, axis: str) -> int:
        """Return the dimension of a plain axis."""
        return self.parts.index((axis, 0))

    def factor(self, axis: str) -> int:
        """Return the product of the factors split off an axis; 1 for a plain axis."""
        return prod(f for a, f in self.parts if a == axis and f)

    def to_axes(self, shape: Sequence[Dim], axes: str) -> tuple[Dim, ...]:
        """Convert a shape in this layout to the plain shape of `axes`."""
        sizes = dict(zip(self.parts, shape, strict=False))
        return tuple(_times(sizes[(a, 0)], self.factor(a)) for a in axes)

    def from_axes(self, shape: Sequence[Dim], axes: str) -> tuple[Dim, ...]:
        """Convert the plain shape of `axes` to a shape in this layout."""
        sizes = dict(zip(axes, shape, strict=False))
        return tuple(f or _over(sizes[a], self.factor(a)) for a, f in self.parts)


def _times(size: Dim, factor: int) -> Dim:
    return computed(lambda n: n * factor, size) if factor != 1 else size


def _over(size: Dim, factor: int) -> Dim:
    return computed(lambda n: -(-n // factor), size) if factor != 1 else size


@cache
def layout(name: str, axes: str = "") -> Layout:
    """Parse a layout.

    Args:
        name: The layout, such as "NCHW16c".
        axes: The axes it must have, in any order; "" for no check.

    Raises:
        UnsupportedLayout: Not a layout, or one of other axes.
    """
    found = _PART.findall(name)
    if "".join("".join(f) for f in found) != name or not found:
        raise UnsupportedLayout(f"layout '{name[:32]}'", f"one such as {axes or 'NCHW'}")
    parts = tuple((up or low.upper(), int(number or 0)) for up, number, low in found)
    result = Layout(name, parts)
    plain = result.axes
    split = {a for a, f in parts if f}
    bad = len(set(plain)) != len(plain) or not split <= set(plain)
    bad = bad or any(number and int(number) == 0 for _, number, _ in found)
    if bad or (axes and sorted(plain) != sorted(axes)):
        raise UnsupportedLayout(f"layout '{name}'", f"the axes {axes or 'once each'} in any order")
    return result
