"""The third spatial axis of a convolution over volumes."""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import InvalidWorkload
from . import fields as checks


@dataclass(frozen=True, order=True)
class Depth:
    """The outermost spatial axis of a convolution, as h and w are the others of a Workload.

    d         planes of the input
    t         planes of the filter
    stride    in planes
    padding   (front, back)
    dilation  in planes
    """

    d: int = 1
    t: int = 1
    stride: int = 1
    padding: tuple[int, int] = (0, 0)
    dilation: int = 1

    def __post_init__(self) -> None:
        positive = min(self.d, self.t, self.stride, self.dilation) >= 1
        if not positive or min(self.padding) < 0 or self.o < 1:
            raise InvalidWorkload(
                f"a depth of {self.d} planes, filter {self.t}, stride {self.stride}, padding "
                f"{self.padding}, dilation {self.dilation}",
                "positive numbers, padding of at least 0 and a filter no larger than the input",
            )

    @property
    def o(self) -> int:
        """Planes of the output."""
        extent = self.dilation * (self.t - 1) + 1
        return (self.d + sum(self.padding) - extent) // self.stride + 1

    @property
    def name(self) -> str:
        """Short name for keys, e.g. ``d8t3st1pd1x1``."""
        text = f"d{self.d}t{self.t}st{self.stride}pd{self.padding[0]}x{self.padding[1]}"
        return text if self.dilation == 1 else f"{text}dl{self.dilation}"

    @classmethod
    def from_json(cls, data: object) -> Depth:
        """Inverse of ``dataclasses.asdict``; raises InvalidWorkload naming the field."""
        return checks.made(cls, data, _FIELDS, "depth", InvalidWorkload)


#: That of a convolution over images.
IMAGES = Depth()

_EXTENT = checks.integer(1, 1 << 24)
_FIELDS: dict[str, checks.Check] = {
    **dict.fromkeys(("d", "t", "stride", "dilation"), _EXTENT),
    "padding": checks.tuple_of(checks.integer(0, 1 << 24), 2),
}
