"""Compute maxima over large windows from those over smaller ones.

Spatial pyramids (SPP) take maxima of one tensor over windows of several sizes around each pixel:
275 loads for 5, 9 and 13 pixels a side. Every pixel in reach of the two halves of a window lies in
reach of its first half from a pixel in reach of its second, edges included, so that the maximum
over 9 is that over 5 of maxima over 5: 75 loads.
"""

from __future__ import annotations

from typing import ClassVar

from tvm import relax

from ..graph.expr import call_like, ints, op_name, padding_of
from ..graph.rewriter import Rewriter

_MAX_POOL = "relax.nn.max_pool2d"
_Window = tuple[int, ...]


class NestPools(Rewriter):
    """Of maxima with as many results as pixels, whose windows are centred on these."""

    ops: ClassVar[frozenset[str] | None] = frozenset({_MAX_POOL})

    def start(self, func: relax.Function) -> None:
        self._windows: dict[relax.Expr, set[_Window]] = {}
        self._made: dict[tuple[relax.Expr, _Window], relax.Expr] = {}
        for value in self.values.values():
            if (window := _centred(value)) is not None:
                self._windows.setdefault(value.args[0], set()).add(window)

    def rewrite(self, call: relax.Call, old: relax.Call) -> relax.Expr | None:
        window = _centred(old)
        if window is None or len(self._windows[old.args[0]]) == 1:
            return None
        return self._pool(call, old.args[0], window)

    def _pool(self, call: relax.Call, data: relax.Expr, window: _Window) -> relax.Expr:
        """Maxima of ``data`` over a window, with the attributes of ``call``; computed once."""
        if (data, window) not in self._made:
            source, left = call.args[0], window
            within = [w for w in self._windows[data] if w != window and _fits(w, window)]
            if within:
                inner = max(within, key=lambda w: (sum(w), w))
                source = self._pool(call, data, inner)
                left = tuple(a - b + 1 for a, b in zip(window, inner, strict=True))
            halves = [size // 2 for size in left]
            pool = call_like(call, [source], pool_size=list(left), padding=halves * 2)
            self._made[data, window] = self.emit(pool)
        return self._made[data, window]


def _centred(value: relax.Expr) -> _Window | None:
    """The window of a maximum around each pixel; None for any other operator."""
    if op_name(value) != _MAX_POOL or str(value.attrs.layout) != "NHWC":
        return None
    attrs, window = value.attrs, ints(value.attrs.pool_size)
    halves = tuple(size // 2 for size in window)
    around = all(size % 2 for size in window) and padding_of(attrs.padding, 2) == halves * 2
    dense = {*ints(attrs.strides), *ints(attrs.dilation)} == {1}
    return window if around and dense and max(window) > 1 else None


def _fits(inner: _Window, outer: _Window) -> bool:
    return all(a <= b for a, b in zip(inner, outer, strict=True))
