"""The first convolution of a network as one kernel computes it: with the conversion of the
network's input and the max-pool behind it."""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import InvalidWorkload
from . import fields as checks
from .dtypes import FLOAT_DTYPES

_NO_WINDOW = (0, 0)


@dataclass(frozen=True, order=True)
class Stem:
    """Fields of a ``stem`` workload beside those of its convolution.

    channels       of the input: the first of the convolution's, whose others are zeros
    channels_last  the input is (n, h, w, channels) instead of (n, channels, h, w)
    dtype          of the input, which is rounded to that of the filter
    window         of the max-pool behind the epilogue, (rows, columns); (0, 0) without one
    stride         of the max-pool
    padding        of the max-pool, (top, left, bottom, right); the last two as far as windows reach
    """

    channels: int
    channels_last: bool = False
    dtype: str = "float32"
    window: tuple[int, int] = _NO_WINDOW
    stride: tuple[int, int] = (1, 1)
    padding: tuple[int, int, int, int] = (0, 0, 0, 0)

    def __post_init__(self) -> None:
        if self.dtype not in FLOAT_DTYPES:
            raise InvalidWorkload(
                f"a stem's input of {self.dtype}", f"one of {', '.join(FLOAT_DTYPES)}"
            )
        whole = self.window == _NO_WINDOW
        unused = whole and (self.stride != (1, 1) or any(self.padding))
        if (
            min(self.stride) < 1
            or min(self.padding) < 0
            or unused
            or (min(self.window) < 1 and not whole)
        ):
            raise InvalidWorkload(
                f"a pool with window {self.window}, stride {self.stride}, padding {self.padding}",
                "a window and strides of at least 1, padding of at least 0; without a pool none",
            )

    @property
    def pools(self) -> bool:
        """Whether there is a max-pool."""
        return self.window != _NO_WINDOW

    def pooled(self, p: int, q: int) -> tuple[int, int]:
        """Rows and columns of the result, of so many of the convolution."""
        if not self.pools:
            return p, q
        top, left, bottom, right = self.padding
        rows = (p + top + bottom - self.window[0]) // self.stride[0] + 1
        return rows, (q + left + right - self.window[1]) // self.stride[1] + 1

    def shape(self, n: int, h: int, w: int) -> tuple[int, ...]:
        """Shape of the input."""
        return (n, h, w, self.channels) if self.channels_last else (n, self.channels, h, w)

    @property
    def name(self) -> str:
        """Short name for keys, e.g. ``image3float32.pool3x3st2x2pd1x1x1x1``."""
        last = "last" if self.channels_last else ""
        parts = [f"image{self.channels}{last}{self.dtype}"]
        if self.pools:
            sizes = (self.window, self.stride, self.padding)
            window, stride, padding = ("x".join(map(str, size)) for size in sizes)
            parts.append(f"pool{window}st{stride}pd{padding}")
        return ".".join(parts)

    def fits(self, p: int, q: int) -> bool:
        """Return whether each window has a pixel of so many rows and columns."""
        axes = zip((p, q), self.pooled(p, q), self.window, self.stride, self.padding, strict=False)
        return not self.pools or all(
            results >= 1 and before < window and (results - 1) * stride - before < sums
            for sums, results, window, stride, before in axes
        )

    @classmethod
    def from_json(cls, data: object) -> Stem:
        """Inverse of ``dataclasses.asdict``; raises InvalidWorkload naming the field."""
        return checks.made(cls, data, _FIELDS, "stem", InvalidWorkload, ("channels",))


_EXTENT = checks.integer(1, 1 << 24)
_FIELDS: dict[str, checks.Check] = {
    "channels": _EXTENT,
    "channels_last": checks.boolean,
    "dtype": checks.one_of(FLOAT_DTYPES),
    "window": checks.tuple_of(checks.integer(0, 1 << 24), 2),
    "stride": checks.tuple_of(_EXTENT, 2),
    "padding": checks.tuple_of(checks.integer(0, 1 << 24), 4),
}
