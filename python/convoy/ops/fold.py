"""``convoy.fold``: overlapping patches added up, as each place's sum of the patches that cover it.

Along an axis, tap ``r`` of patch ``p`` lies at ``p * stride + r * dilation - padding``. Of the taps
at one place each ``stride / gcd(stride, dilation)``-th is one: their number is known, and which
they are is arithmetic.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import tvm
from tvm import relax, te, tirx

from ..graph.expr import attr_fields, dtype_of, ints, shape_of
from ..ir.dtypes import widened
from .registration import NAMESPACE, make_call, register_op

FOLD = NAMESPACE + "fold"

#: Patches that a place is in, up to which their sum is written out, so that what is around the
#: operator becomes one kernel with it.
MOST_WRITTEN_OUT = 32


def fold(
    x: relax.Expr,
    size: Sequence[int],
    strides: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
) -> relax.Call:
    """Add up patches (n, patches along each axis..., taps along each axis..., c) in an image
    (n, *size, c); ``padding`` is what lies in front of the image along each axis."""
    return make_call(
        "fold", [x], size=list(size), strides=list(strides), padding=list(padding),
        dilation=list(dilation),
    )  # fmt: skip


@dataclass(frozen=True)
class Axis:
    """The patches along one axis of an image."""

    count: int
    taps: int
    stride: int
    padding: int
    dilation: int

    @property
    def _common(self) -> int:
        return math.gcd(self.stride, self.dilation)

    @property
    def _step(self) -> int:
        """From a tap at some place to the next one there."""
        return self.stride // self._common

    @property
    def most(self) -> int:
        """Taps at one place, at most."""
        return -(-self.taps // self._step)

    def found(
        self, place: tirx.Expr, number: int | tirx.Expr
    ) -> tuple[tirx.Expr, tirx.Expr, tirx.Expr]:
        """The patch and the tap, of those at a place the one of a number, and whether there is
        one; where there is none, they are others."""
        shifted, shift = place + self.padding, self.dilation // self._common
        even = te.floordiv(shifted, self._common)
        first = te.floormod(even * pow(shift, -1, self._step), self._step)
        tap = first + number * self._step
        patch = te.floordiv(even - tap * shift, self._step)
        bounds = [te.floormod(shifted, self._common) < 1, tap < self.taps]
        inside = tirx.all(*bounds, patch >= 0, patch < self.count)
        patch, tap = te.max(te.min(patch, self.count - 1), 0), te.min(tap, self.taps - 1)
        return patch, tap, inside


def _axes(call: relax.Call) -> list[Axis]:
    shape, attrs = shape_of(call.args[0]), attr_fields(call.attrs)
    rank = len(attrs["size"])
    given = (ints(attrs[name]) for name in ("strides", "padding", "dilation"))
    return [
        Axis(*values)
        for values in zip(shape[1 : 1 + rank], shape[1 + rank : -1], *given, strict=True)
    ]


def _infer(call: relax.Call, _builder: relax.BlockBuilder | None = None) -> tvm.ir.Type:
    batch, *_, channels = shape_of(call.args[0])
    size = ints(attr_fields(call.attrs)["size"])
    return relax.TensorType((batch, *size, channels), dtype_of(call.args[0]))


def _legalize(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    axes, shape, dtype = _axes(call), shape_of(call), dtype_of(call)
    wide = widened(dtype)
    most = [axis.most for axis in axes]
    is_short = math.prod(most) <= MOST_WRITTEN_OUT

    def folded(x: te.Tensor) -> te.Tensor:
        def value(at: Sequence[tirx.Expr], numbers: Sequence[int | tirx.Expr]) -> tirx.Expr:
            found = [axis.found(*pair) for axis, *pair in zip(axes, at[1:-1], numbers, strict=True)]
            patches, taps, inside = zip(*found, strict=True)
            read = x(at[0], *patches, *taps, at[-1]).astype(wide)
            return tirx.Select(tirx.all(*inside), read, tirx.const(0, wide))

        def written_out(*at: tirx.Expr) -> tirx.Expr:
            first, *rest = (value(at, numbers) for numbers in itertools.product(*map(range, most)))
            return sum(rest, first).astype(dtype)

        if is_short:
            return te.compute(shape, written_out, name="fold")
        numbers = [te.reduce_axis((0, count), name="tap") for count in most]
        sums = te.compute(shape, lambda *at: te.sum(value(at, numbers), axis=numbers), name="sums")
        return te.compute(shape, lambda *at: sums(*at).astype(dtype), name="fold")

    return builder.call_te(
        folded, call.args[0], primfunc_name_hint="fold",
        primfunc_attrs={"op_pattern": 2 if is_short else 4},  # injective, or fused with what reads
    )  # fmt: skip


register_op("fold", "Sums of overlapping patches.", _infer, _legalize, fold)
