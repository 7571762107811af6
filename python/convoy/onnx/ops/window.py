"""Attributes of operators with windows: strides, dilations, padding."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ..call import Call


@dataclass(frozen=True)
class Window:
    """A window of ``kernel`` elements over the spatial axes, (before, after) padded."""

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    before: tuple[int, ...]
    after: tuple[int, ...]

    @property
    def padding(self) -> list[int]:
        """Padding as TVM has it: all before, then all after."""
        return [*self.before, *self.after]

    def extent(self, axis: int) -> int:
        return (self.kernel[axis] - 1) * self.dilations[axis] + 1

    def output(self, sizes: Sequence[int], ceil_mode: bool = False) -> list[int]:
        """Spatial sizes of the result; a window must begin inside of the data or its padding
        before it."""
        found = []
        for axis, size in enumerate(sizes):
            room = size + self.before[axis] + self.after[axis] - self.extent(axis)
            steps = (
                math.ceil(room / self.strides[axis]) if ceil_mode else room // self.strides[axis]
            )
            if ceil_mode and steps * self.strides[axis] >= size + self.before[axis]:
                steps -= 1
            found.append(steps + 1)
        return found


def window(call: Call, kernel: Sequence[int]) -> Window:
    """The window of a call, ``auto_pad`` resolved by the sizes of its first input."""
    rank = len(kernel)
    if call.rank() != rank + 2:
        raise call.unsupported(f"of {call.rank()} dimensions with a window of {rank} axes")
    strides = tuple(call.attrs.get("strides", (1,) * rank))
    dilations = tuple(call.attrs.get("dilations", (1,) * rank))
    pads = tuple(call.attrs.get("pads", (0,) * (2 * rank)))
    before, after = pads[:rank], pads[rank:]
    auto = call.attrs.get("auto_pad", "NOTSET") or "NOTSET"
    if auto == "VALID":
        before = after = (0,) * rank
    elif auto in ("SAME_UPPER", "SAME_LOWER"):
        total = []
        windows = zip(call.shape()[2:], kernel, strides, dilations, strict=True)
        for size, k, stride, dilation in windows:
            out = math.ceil(size / stride)
            total.append(max(0, (out - 1) * stride + (k - 1) * dilation + 1 - size))
        less, more = tuple(n // 2 for n in total), tuple(n - n // 2 for n in total)
        before, after = (less, more) if auto == "SAME_UPPER" else (more, less)
    elif auto != "NOTSET":
        raise call.unsupported(f"with auto_pad {auto!r}")
    return Window(tuple(kernel), strides, dilations, before, after)
