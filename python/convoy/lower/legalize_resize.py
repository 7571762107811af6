"""Resize images of four axes with integer arithmetic.

TVM computes coordinates in float32 and rounds them. Its analysis cannot bound them, so that to
stage an operand in registers it would copy the whole image. Here sizes are static: a coordinate is
``(a * x + b) / c`` with integers, its pixel a floor division and its fraction a remainder.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

import tvm
from tvm import relax, te

from ..graph.expr import dtype_of, shape_of
from ..graph.target import on_gpu
from ..tir.loads import STAGED
from .default import default_legalize


@dataclass(frozen=True)
class Coordinates:
    """Places ``(a * x + b) / c`` in a row of ``size`` pixels, for x from 0 to ``count`` - 1."""

    a: int
    b: int
    c: int
    size: int
    count: int

    def plus(self, shift: Fraction) -> Coordinates:
        """The places, each moved by ``shift``."""
        d = shift.denominator
        b = self.b * d + shift.numerator * self.c
        return Coordinates(self.a * d, b, self.c * d, self.size, self.count)

    def floor(self, x: tvm.tirx.Expr) -> tvm.tirx.Expr:
        """The pixel at or before place ``x``, which may lie outside of the row."""
        common = math.gcd(self.a, self.c)
        if common == 0:
            return tvm.tirx.const(self.b // self.c, x.dtype)
        a, b, c = self.a // common, self.b // common, self.c // common
        return te.floordiv(x * a + b, c)

    def inside(self, pixel: tvm.tirx.Expr, shift: int = 0) -> tvm.tirx.Expr:
        """The pixel ``shift`` behind ``pixel`` (:meth:`floor`), or the row's end before it."""
        first, last = (
            self.b // self.c + shift,
            (self.a * (self.count - 1) + self.b) // self.c + shift,
        )
        pixel = pixel + shift
        pixel = pixel if first >= 0 else te.max(pixel, 0)
        return pixel if last < self.size else te.min(pixel, self.size - 1)

    def fraction(self, x: tvm.tirx.Expr) -> tvm.tirx.Expr:
        """Return the distance of ``x`` from its pixel, in float32."""
        common = math.gcd(self.a, self.b, self.c)
        a, b, c = self.a // common, self.b // common, self.c // common
        return te.floormod(x * a + b, c).astype("float32") * tvm.tirx.const(1.0 / c, "float32")


def coordinates(mode: str, size: int, count: int) -> Coordinates | None:
    """The places of ``count`` pixels in a row of ``size``; None for a mode unknown here."""
    if mode == "half_pixel" or (mode == "pytorch_half_pixel" and count > 1):
        return Coordinates(2 * size, size - count, 2 * count, size, count)
    if mode == "pytorch_half_pixel":
        return Coordinates(0, 0, 1, size, count)
    if mode == "asymmetric":
        return Coordinates(size, 0, count, size, count)
    if mode == "align_corners" and count > 1:
        return Coordinates(size - 1, 0, count - 1, size, count)
    if mode == "tf_half_pixel_for_nn":
        return Coordinates(2 * size, size, 2 * count, size, count)
    return None


def nearest(places: Coordinates, rounding: str) -> Coordinates | None:
    """Places whose floor is the nearest pixel; None where the rule is unknown here, or where
    ``round``, to even, is no floor."""
    half = Fraction(1, 2)
    if rounding == "floor":
        return places
    if rounding == "round_prefer_ceil":
        return places.plus(half)
    if rounding == "ceil":
        return places.plus(Fraction(places.c - 1, places.c))
    below = places.plus(half - Fraction(1, 2 * places.c))  # a tie goes to the pixel before
    if rounding == "round_prefer_floor":
        return below
    if rounding == "round":
        even = [round(Fraction(places.a * x + places.b, places.c)) for x in range(places.count)]
        for found in (below, places.plus(half)):
            if even == [(found.a * x + found.b) // found.c for x in range(places.count)]:
                return found
    return None


#: By axis of the image.
Places = dict[int, Coordinates]


def resize2d(bb: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """Legalize nearest and linear interpolation in NHWC and NCHW; all else as TVM does."""
    attrs, source, result = call.attrs, shape_of(call.args[0]), shape_of(call)
    layout, mode = str(attrs.layout), str(attrs.coordinate_transformation_mode)
    method, floating = str(attrs.method), dtype_of(call).startswith(("float", "bfloat"))
    known = method == "nearest_neighbor" or (method == "linear" and floating)
    if layout not in ("NHWC", "NCHW") or not known:
        return default_legalize(bb, call)
    rounding = str(attrs.rounding_method) or ("round" if mode == "align_corners" else "floor")
    found: Places = {}
    for axis in (layout.index("H"), layout.index("W")):
        places = coordinates(mode, source[axis], result[axis])
        if places is not None and method == "nearest_neighbor":
            places = nearest(places, rounding)
        if places is None:
            return default_legalize(bb, call)
        found[axis] = places
    resize = _nearest if method == "nearest_neighbor" else _linear
    return bb.call_te(
        lambda x: resize(x, result, found, dtype_of(call)), call.args[0],
        primfunc_name_hint="resize2d", primfunc_attrs={"op_pattern": 2},  # injective
    )  # fmt: skip


def _nearest(x: te.Tensor, shape: tuple[int, ...], places: Places, dtype: str) -> te.Tensor:
    def element(*at: tvm.tirx.Expr) -> tvm.tirx.Expr:
        return x(*_pixels(at, places, dict.fromkeys(places, 0))).astype(dtype)

    return te.compute(shape, element, name="resize")


def _linear(x: te.Tensor, shape: tuple[int, ...], places: Places, dtype: str) -> te.Tensor:
    """On a GPU the four neighbours of a place are tensors of their own, each loaded as vectors."""
    rows, columns = places
    corners = {}
    for i, j in itertools.product(range(2), repeat=2):
        corners[i, j] = corner = _corner(x, places, {rows: i, columns: j})
        if on_gpu():
            corners[i, j] = te.compute(shape, corner, f"corner_{i}{j}", attrs={STAGED: True})

    def element(*at: tvm.tirx.Expr) -> tvm.tirx.Expr:
        def mixed(a: tvm.tirx.Expr, b: tvm.tirx.Expr, axis: int) -> tvm.tirx.Expr:
            share = places[axis].fraction(at[axis])
            return a * (1.0 - share) + b * share

        p = {key: corner(*at).astype("float32") for key, corner in corners.items()}
        top, bottom = (mixed(p[i, 0], p[i, 1], columns) for i in range(2))
        return mixed(top, bottom, rows).astype(dtype)

    return te.compute(shape, element, name="resize")


def _corner(x: te.Tensor, places: Places, shift: dict[int, int]) -> Callable[..., tvm.tirx.Expr]:
    return lambda *at: x(*_pixels(at, places, shift))


def _pixels(
    at: tuple[tvm.tirx.Expr, ...], places: Places, shift: dict[int, int]
) -> list[tvm.tirx.Expr]:
    """Indices of the pixels behind those of an output element by ``shift`` along each axis."""
    return [
        places[axis].inside(places[axis].floor(i), shift[axis]) if axis in places else i
        for axis, i in enumerate(at)
    ]
