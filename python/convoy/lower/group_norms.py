"""Group and instance norms of images from sums of each group, channels last or first.

One kernel for each norm would need a block, or few, for all that is normalised together. The sums
use the whole GPU (:mod:`convoy.tir.group_sums`), and the rest is element-wise, so that it is fused
with what follows. Sums are of squares, not of distances from the mean: float32 has enough digits
for them where the data have 16 bits, or an element of the group has been subtracted.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable
from typing import ClassVar

from tvm import relax, te
from tvm.relax import op
from tvm.tirx import Expr

from ..graph.expr import dtype_of, ints, op_name, rank_of, relax_ops, shape_of
from ..graph.rewriter import Rewriter
from ..ir.dtypes import FLOAT_DTYPES, HALF_DTYPES
from ..tir.group_affine import GroupAffine, affine_kernel
from ..tir.group_sums import GroupSums, sums_kernel


class GroupNorms(Rewriter):
    """Rewrite such norms into reductions and element-wise operators."""

    ops: ClassVar[frozenset[str] | None] = relax_ops("nn.group_norm nn.instance_norm")
    infer_first: ClassVar[bool] = False

    def rewrite(self, call: relax.Call, old: relax.Call) -> relax.Expr | None:
        channel, data = _channel_axis(old), self._source(call.args[0])
        if channel is None or dtype_of(data) not in FLOAT_DTYPES:
            return None
        shape = shape_of(old)
        n, c = shape[0], shape[channel]
        groups = int(call.attrs.num_groups) if op_name(call) == "relax.nn.group_norm" else c
        pixels = math.prod(shape) // (n * c)
        if channel == 1:
            size = c // groups * pixels
            sums = GroupSums.of_contiguous(n * groups, size, dtype_of(data))
        else:
            sums = GroupSums(n, pixels, c, groups, dtype_of(data))
        if not sums.fits:
            return None
        of_channels = tuple(size if i in (0, channel) else 1 for i, size in enumerate(shape))
        scale, shift = (
            self.reshaped(x, of_channels) for x in self._affine(sums, (n, c, groups), data, call)
        )
        return op.add(self.emit(op.multiply(call.args[0], scale)), shift)

    def _source(self, data: relax.Expr) -> relax.Expr:
        """What the data of a norm were made of, without the cast to float32."""
        made = self.producer(data, "relax.astype")
        return data if made is None or dtype_of(made.args[0]) not in HALF_DTYPES else made.args[0]

    def _affine(
        self, sums: GroupSums, sizes: tuple[int, int, int], data: relax.Expr, call: relax.Call
    ) -> list[relax.Expr]:
        """The scale and shift of each channel of ``sizes`` (images, channels, groups), from the
        partial sums of one kernel: by another kernel or, if they are few, by a function of each
        element, which is fused."""
        (n, c, groups), (_, gamma, beta) = sizes, call.args
        flat = self.reshaped(data, sums.shape)
        first = self.builder.add_func(sums_kernel(sums), "group_sums")
        parts = relax.TensorType(sums.partial_shape, "float32")
        *_, chunks, columns = sums.partial_shape
        partial = self.emit(relax.op.call_tir(first, [flat], parts))
        partial = self.reshaped(partial, (n, groups, chunks, columns))
        size = math.prod(shape_of(data)) // (n * groups)
        affine = GroupAffine(n, groups, chunks, columns, c, size, float(call.attrs.epsilon))
        if sums.few:
            made = (_affine_of_few(affine, which) for which in range(2))
            return [self.emit(self._call(f, [partial, gamma, beta])) for f in made]
        second = self.builder.add_func(affine_kernel(affine), "group_affine")
        of_channels = relax.TensorType((n, c), "float32")
        both = relax.op.call_tir(second, [partial, gamma, beta], [of_channels] * 2)
        both = self.emit(both)
        return [self.emit(relax.TupleGetItem(both, i)) for i in range(2)]

    def _call(self, function: Callable[..., te.Tensor], args: list[relax.Expr]) -> relax.Call:
        attrs = {"op_pattern": 2}  # injective
        return self.builder.call_te(
            function, *args, primfunc_name_hint="group_affine", primfunc_attrs=attrs
        )


def _affine_of_few(affine: GroupAffine, which: int) -> Callable[..., te.Tensor]:
    """The scale or the shift, in which each element adds up the parts of its group."""

    def compute(partial: te.Tensor, gamma: te.Tensor, beta: te.Tensor) -> te.Tensor:
        def element(image: Expr, channel: Expr) -> Expr:
            group = te.indexdiv(channel, affine.channels // affine.groups)
            total, squares = (
                functools.reduce(
                    operator.add, (partial[image, group, k, i] for k in range(affine.chunks))
                )
                for i in range(2)
            )
            pivot = partial[image, group, 0, 2] if affine.columns > 2 else None
            return affine.of(total, squares, pivot, gamma[channel], beta[channel])[which]

        return te.compute((affine.images, affine.channels), element, name="group_affine")

    return compute


def _channel_axis(norm: relax.Call) -> int | None:
    """Axis of the channels, the second or the last, where all axes but the first are normalised
    with them."""
    rank = rank_of(norm)
    channel = int(norm.attrs.channel_axis) % rank
    axes = sorted(axis % rank for axis in ints(norm.attrs.axes))
    others = [axis for axis in range(1, rank) if axis != channel]
    return channel if rank > 2 and channel in (1, rank - 1) and axes == others else None
