"""Group and instance norms of 16-bit images, channels last, from sums of each group.

One kernel for each norm would need a block, or few, for all that is normalised together. The sums
use the whole GPU (:mod:`convoy.tir.group_sums`), and the rest is element-wise, so that it is fused
with what follows. Sums are of squares, not of distances from the mean: float32 has enough digits
for them where the data have 16 bits; norms of float32 data are left to TVM.
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
from ..ir.dtypes import HALF_DTYPES
from ..tir.group_sums import (
    GroupSums,
    affine,
    affine_kernel,
    partial_shape,
    sums_kernel,
)


class GroupNorms(Rewriter):
    """Rewrite such norms into reductions and element-wise operators."""

    ops: ClassVar[frozenset[str] | None] = relax_ops("nn.group_norm nn.instance_norm")
    infer_first: ClassVar[bool] = False

    def rewrite(self, call: relax.Call, old: relax.Call) -> relax.Expr | None:
        made, shape = self.producer(call.args[0], "relax.astype"), shape_of(old)
        if made is None or dtype_of(made.args[0]) not in HALF_DTYPES or not _channels_last(old):
            return None
        data, (_, gamma, beta) = made.args[0], call.args
        n, *image, c = shape
        groups = int(call.attrs.num_groups) if op_name(call) == "relax.nn.group_norm" else c
        epsilon = float(call.attrs.epsilon)
        sums = GroupSums(n, math.prod(image), c, groups, dtype_of(data), epsilon)
        if not sums.fits:
            return None
        scale, shift = self._affine(sums, data, gamma, beta)
        of_channels = (n, *(1,) * len(image), c)
        scaled = op.multiply(call.args[0], self.reshaped(scale, of_channels))
        return op.add(self.emit(scaled), self.reshaped(shift, of_channels))

    def _affine(
        self, sums: GroupSums, data: relax.Expr, gamma: relax.Expr, beta: relax.Expr
    ) -> list[relax.Expr]:
        """The scale and shift of each channel, from the partial sums of one kernel: by another
        kernel or, if they are few, by a function of each element, which is fused."""
        flat = self.reshaped(data, (sums.images, sums.rows, sums.channels))
        first = self.builder.add_func(sums_kernel(sums), "group_sums")
        parts = relax.TensorType(partial_shape(sums), "float32")
        partial = self.emit(relax.op.call_tir(first, [flat], parts))
        if sums.few:
            made = (_affine_of_few(sums, which) for which in range(2))
            return [self.emit(self._call(f, [partial, gamma, beta])) for f in made]
        second = self.builder.add_func(affine_kernel(sums), "group_affine")
        of_channels = relax.TensorType((sums.images, sums.channels), "float32")
        both = relax.op.call_tir(second, [partial, gamma, beta], [of_channels] * 2)
        both = self.emit(both)
        return [self.emit(relax.TupleGetItem(both, i)) for i in range(2)]

    def _call(self, function: Callable[..., te.Tensor], args: list[relax.Expr]) -> relax.Call:
        attrs = {"op_pattern": 2}  # injective
        return self.builder.call_te(
            function, *args, primfunc_name_hint="group_affine", primfunc_attrs=attrs
        )


def _affine_of_few(sums: GroupSums, which: int) -> Callable[..., te.Tensor]:
    """The scale or the shift, in which each element adds up the parts of its group."""

    def compute(partial: te.Tensor, gamma: te.Tensor, beta: te.Tensor) -> te.Tensor:
        def element(image: Expr, channel: Expr) -> Expr:
            group = te.indexdiv(channel, sums.members)
            of_group = tuple(
                functools.reduce(
                    operator.add, (partial[image, k, i, group] for k in range(sums.chunks))
                )
                for i in range(2)
            )
            return affine(sums, of_group, gamma[channel], beta[channel])[which]

        return te.compute((sums.images, sums.channels), element, name="group_affine")

    return compute


def _channels_last(norm: relax.Call) -> bool:
    """Whether channels are the last axis, and all between the first and the last is normalised."""
    rank = rank_of(norm)
    axes = sorted(axis % rank for axis in ints(norm.attrs.axes))
    channel = int(norm.attrs.channel_axis) % rank
    return rank > 2 and channel == rank - 1 and axes == list(range(1, rank - 1))
