"""Group and instance norms of 16-bit images, channels last, from sums of each group.

One kernel for each norm would need a block, or few, for all that is normalised together. The sums
use the whole GPU (:mod:`convoy.tir.group_sums`; those of few channels a group are sums of channels
first), and the rest is element-wise, so that it is fused with what follows. Sums are of squares,
not of distances from the mean: float32 has enough digits for them where the data have 16 bits;
norms of float32 data are left to TVM.
"""

from __future__ import annotations

import math
from typing import ClassVar

from tvm import relax, te, topi
from tvm.relax import op

from ..graph.expr import dtype_of, ints, op_name, rank_of, relax_ops, shape_of
from ..graph.rewriter import Rewriter
from ..tir.group_sums import GroupSums, kernels, partial_shape
from .accumulate import NARROW
from .legalize import parts_of_mean


class GroupNorms(Rewriter):
    """Rewrite such norms into reductions and element-wise operators."""

    ops: ClassVar[frozenset[str] | None] = relax_ops("nn.group_norm nn.instance_norm")
    infer_first: ClassVar[bool] = False

    def rewrite(self, call: relax.Call, old: relax.Call) -> relax.Expr | None:
        made, shape = self.producer(call.args[0], "relax.astype"), shape_of(old)
        if made is None or dtype_of(made.args[0]) not in NARROW or not _channels_last(old):
            return None
        data, (_, gamma, beta) = made.args[0], call.args
        n, *image, c = shape
        groups = int(call.attrs.num_groups) if op_name(call) == "relax.nn.group_norm" else c
        epsilon = float(call.attrs.epsilon)
        sums = GroupSums(n, math.prod(image), c, groups, dtype_of(data), epsilon)
        if sums.fits:
            scale, shift = self._affine(sums, data, gamma, beta)
        else:
            scale, shift = self._affine_of_channels(sums, data, gamma, beta)
        of_channels = (n, *(1,) * len(image), c)
        scaled = op.multiply(call.args[0], self.reshaped(scale, of_channels))
        return op.add(self.emit(scaled), self.reshaped(shift, of_channels))

    def _affine(
        self, sums: GroupSums, data: relax.Expr, gamma: relax.Expr, beta: relax.Expr
    ) -> list[relax.Expr]:
        """The scale and shift of each channel, computed by two kernels."""
        flat = self.reshaped(data, (sums.images, sums.rows, sums.channels))
        first, second = (
            self.builder.add_func(func, name)
            for func, name in zip(kernels(sums), ("group_sums", "group_affine"), strict=True)
        )
        parts = relax.TensorType(partial_shape(sums), "float32")
        partial = self.emit(relax.op.call_tir(first, [flat], parts))
        of_channels = relax.TensorType((sums.images, sums.channels), "float32")
        both = relax.op.call_tir(second, [partial, gamma, beta], [of_channels] * 2)
        both = self.emit(both)
        return [self.emit(relax.TupleGetItem(both, i)) for i in range(2)]

    def _affine_of_channels(
        self, sums: GroupSums, data: relax.Expr, gamma: relax.Expr, beta: relax.Expr
    ) -> list[relax.Expr]:
        """The same from sums of channels."""
        apart = (sums.images, 1, sums.groups, sums.members)
        mean, square = (self._moment(data, power, apart) for power in (1, 2))
        variance = self.emit(op.subtract(square, self.emit(op.multiply(mean, mean))))
        variance = self.emit(op.maximum(variance, relax.const(0.0, "float32")))
        epsilon = relax.const(sums.epsilon, "float32")
        scale = self.emit(op.rsqrt(self.emit(op.add(variance, epsilon))))
        scale = self.emit(op.multiply(scale, self.reshaped(gamma, apart[2:])))
        away = self.emit(op.multiply(mean, scale))
        return [scale, self.emit(op.subtract(self.reshaped(beta, apart[2:]), away))]

    def _moment(self, data: relax.Expr, power: int, apart: tuple[int, ...]) -> relax.Expr:
        """Means of the first or second power of a group: (n, 1, groups, 1) in float32."""
        n, *image, c = shape_of(data)
        parts, rows = parts_of_mean((n, *image, c)), math.prod(image)

        def sums(x: te.Tensor) -> te.Tensor:
            wide = topi.cast(x, "float32")
            return topi.sum(wide if power == 1 else wide * wide, axis=2)

        flat = self.reshaped(data, (n, parts, rows // parts, c))
        names = {1: "channel_sums", 2: "channel_squares"}
        found = self.builder.call_te(
            sums, flat, primfunc_name_hint=names[power], primfunc_attrs={"op_pattern": 4}
        )
        split = self.reshaped(self.emit(found), (n, parts, *apart[2:]))
        total = self.emit(op.sum(split, [1, 3], keepdims=True))
        return self.emit(op.multiply(total, relax.const(1.0 / (rows * apart[3]), "float32")))


def _channels_last(norm: relax.Call) -> bool:
    """Whether channels are the last axis, and all between the first and the last is normalised."""
    rank = rank_of(norm)
    axes = sorted(axis % rank for axis in ints(norm.attrs.axes))
    channel = int(norm.attrs.channel_axis) % rank
    return rank > 2 and channel == rank - 1 and axes == list(range(1, rank - 1))
