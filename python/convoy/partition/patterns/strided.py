"""Places of the elements of a view in its tensor: dimensions as nested extents and strides.

A permutation after a merge of two dimensions has no single stride a dimension; so a dimension is a
list of factors (extent, stride), the outermost first. Reshapes split and regroup factors, and
everything that moves no data can be expressed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

#: Extent and stride, in elements.
Factor = tuple[int, int]
Factors = tuple[Factor, ...]


@dataclass(frozen=True)
class Strided:
    """A view of a compact tensor: for each dimension its factors, and where it starts."""

    dims: tuple[Factors, ...]
    offset: int = 0

    @classmethod
    def compact(cls, shape: Sequence[int]) -> Strided:
        """Return a view of the complete tensor."""
        strides = [math.prod(shape[i + 1 :]) for i in range(len(shape))]
        return cls(tuple(((n, s),) for n, s in zip(shape, strides, strict=True)))

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(math.prod(extent for extent, _ in factors) for factors in self.dims)

    def permuted(self, axes: Sequence[int]) -> Strided:
        return Strided(tuple(self.dims[axis] for axis in axes), self.offset)

    def reshaped(self, shape: Sequence[int]) -> Strided | None:
        """None where a dimension would end inside a factor that it does not divide."""
        left = [f for factors in self.dims for f in factors if f[0] > 1]
        dims: list[Factors] = []
        for extent in shape:
            found: list[Factor] = []
            while extent > 1:
                if not left:
                    return None
                size, stride = left.pop(0)
                if extent % size == 0:
                    found.append((size, stride))
                    extent //= size
                elif size % extent == 0:
                    inner = size // extent
                    found.append((extent, stride * inner))
                    left.insert(0, (inner, stride))
                    extent = 1
                else:
                    return None
            dims.append(tuple(found) or ((1, 0),))
        return None if left else Strided(tuple(dims), self.offset)

    def sliced(self, axis: int, begin: int, extent: int, step: int = 1) -> Strided | None:
        """``extent`` elements of a dimension from ``begin`` on, ``step`` apart; None if they are
        not evenly spaced."""
        factors, start = joined(self.dims[axis]), 0
        while len(factors) > 1:
            stride, inner = factors[0][1], math.prod(n for n, _ in factors[1:])
            if step == 1 and begin % inner == 0 and extent % inner == 0:
                cut = ((extent // inner, stride), *factors[1:])
                return self._with(axis, cut, start + begin // inner * stride)
            last = begin + (extent - 1) * step
            if begin // inner != last // inner:
                return None
            start += begin // inner * stride
            factors, begin = factors[1:], begin % inner
        ((_, stride),) = factors
        return self._with(axis, ((extent, stride * step),), start + begin * stride)

    def taken(self, axis: int, index: int) -> Strided | None:
        """Return one element of a dimension, which is no dimension any more."""
        cut = self.sliced(axis, index, 1)
        return cut and Strided(cut.dims[:axis] + cut.dims[axis + 1 :], cut.offset)

    def spread(self, shape: Sequence[int]) -> Strided:
        """Broadcast to a shape."""
        missing = len(shape) - len(self.dims)
        dims: list[Factors] = [((extent, 0),) for extent in shape[:missing]]
        for extent, own, factors in zip(shape[missing:], self.shape, self.dims, strict=True):
            dims.append(factors if own == extent else ((extent, 0),))
        return Strided(tuple(dims), self.offset)

    def _with(self, axis: int, factors: Factors, start: int) -> Strided:
        dims = (*self.dims[:axis], factors, *self.dims[axis + 1 :])
        return Strided(dims, self.offset + start)


def joined(factors: Factors) -> Factors:
    """Return the same elements with as few factors as there can be; at least one."""
    found: list[Factor] = []
    for extent, stride in factors:
        if extent == 1:
            continue
        if found and found[-1][1] == extent * stride:
            found[-1] = (found[-1][0] * extent, stride)
        else:
            found.append((extent, stride))
    return tuple(found) or ((1, 0),)


def common(lists: Sequence[Factors]) -> list[tuple[int, tuple[int, ...]]] | None:
    """Several lists of factors over the same elements, as one list of an extent and the stride of
    each, outermost first. None where their boundaries do not fit each other."""
    left = [[f for f in factors if f[0] > 1] for factors in lists]
    found: list[tuple[int, tuple[int, ...]]] = []
    while any(left):
        if not all(left):
            return None
        extent = min(factors[-1][0] for factors in left)
        if any(factors[-1][0] % extent for factors in left):
            return None
        strides = tuple(factors[-1][1] for factors in left)
        for factors in left:
            size, stride = factors.pop()
            if size > extent:
                factors.append((size // extent, stride * extent))
        if found and all(
            stride == found[0][0] * inner
            for stride, inner in zip(strides, found[0][1], strict=True)
        ):
            found[0] = (found[0][0] * extent, found[0][1])
        else:
            found.insert(0, (extent, strides))
    return found
