"""Stem convolutions whose filters are one column wide: the others are channels of the data."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from tvm import relax

from ..graph.expr import ints, make_const, padding4, shape_of
from ..graph.rewriter import Rewriter


@dataclass(frozen=True)
class GatheredColumns:
    """A convolution of few channels that reads what a row of its filter covers as one pixel.

    ``x'[h, q, (j, c)] = x[h, q * stride + j * dilation - pad, c]`` for each of ``s`` columns ``j``:
    the filter (k, r, s, c) becomes (k, r, 1, s * c). A row of 9 pixels of 3 channels is 27 elements
    instead of the 36 or 72 that padded channels make of it, and the copy takes the place of the one
    that pads.
    """

    filter_width: int
    outputs: int
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    padding: tuple[int, int, int, int]

    @classmethod
    def of(cls, call: relax.Call) -> GatheredColumns:
        (*_, filter_width, _), (_, _, outputs, _) = shape_of(call.args[1]), shape_of(call)
        stride, dilation = ints(call.attrs.strides), ints(call.attrs.dilation)
        padding = padding4(call.attrs.padding)
        return cls(filter_width, outputs, stride, dilation, padding)

    @property
    def attrs(self) -> dict[str, list[int]]:
        """Attributes of the convolution that differ."""
        top, _, bottom, _ = self.padding
        return {
            "strides": [self.stride[0], 1],
            "dilation": [self.dilation[0], 1],
            "padding": [top, 0, bottom, 0],
        }

    def data(self, p: Rewriter, x: relax.Expr) -> relax.Expr:
        """(n, h, w, c) -> (n, h, outputs, filter_width * c), padding of the columns included."""
        n, h, _, c = shape_of(x)
        _, left, _, right = self.padding
        if left or right:
            x = p.emit(relax.op.nn.pad(x, [0, 0, 0, 0, left, right, 0, 0]))
        first = np.arange(self.outputs)[:, None] * self.stride[1]
        columns = first + np.arange(self.filter_width) * self.dilation[1]
        x = p.emit(relax.op.take(x, make_const(columns.reshape(-1).astype("int32")), axis=2))
        return p.emit(relax.op.reshape(x, (n, h, self.outputs, self.filter_width * c)))

    def weights(self, w: np.ndarray) -> np.ndarray:
        """(k, r, s, c) -> (k, r, 1, s * c)."""
        k, r, s, c = w.shape
        return w.reshape(k, r, 1, s * c)
