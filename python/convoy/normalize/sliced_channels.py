"""Pointwise convolutions of some channels of a tensor, as convolutions of all of them.

Libraries read dense tensors, so the channels would be copied first, as in networks that convolve
one half and keep the other. Filters of zeros for the other channels read more and copy nothing:
with ``c`` channels of at most ``2 c`` and few results, memory bounds the convolution, and ``2 c``
channels are read in place of three times ``c`` that are read, written and read.

Zero times NaN is NaN: channels that no convolution has mixed are cut, since an input of the network
may mark so what is missing in some of them.
"""

from __future__ import annotations

import math
from typing import ClassVar

import numpy as np
from tvm import relax

from ..graph.expr import (
    as_numpy,
    call_like,
    dtype_of,
    is_const,
    make_const,
    op_name,
    rank_of,
    relax_ops,
    shape_of,
)
from ..graph.function import used_vars
from ..graph.rewriter import Rewriter
from ..ir.dtypes import HALF_DTYPES
from ..ops.conv_attrs import has_normal_layouts

#: Channels of the whole over those that are read, and results up to which memory bounds.
_MOST, _RESULTS = 2, 256


class SlicedChannels(Rewriter):
    """Rewrite 1x1 convolutions and linear layers in 16 bit with constant weights."""

    ops: ClassVar[frozenset[str] | None] = relax_ops("nn.conv2d matmul")

    def rewrite(self, call: relax.Call, old: relax.Call) -> relax.Expr | None:
        axis = _weights_axis(call)
        if axis is None or self.uses[old.args[0]] != 1:
            return None
        cut = self._cut(old.args[0])
        if cut is None:
            return None
        whole, begin = cut
        channels, own = shape_of(whole)[-1], shape_of(call.args[0])[-1]
        if channels > _MOST * own or not self._is_mixed(whole):
            return None
        weights = as_numpy(call.args[1])
        around = [(0, 0)] * weights.ndim
        around[axis] = (begin, channels - begin - own)
        wide = make_const(np.pad(weights, around), dtype_of(call.args[1]))
        return call_like(call, [self.rename(whole), wide])

    def _is_mixed(self, value: relax.Expr) -> bool:
        """Whether every way from an input of the network to a value passes a convolution or product
        of all channels: NaN in one of them is then in all."""
        waiting, seen = [value], set()
        while waiting:
            read = waiting.pop()
            made = self.values.get(read)
            if made is None:
                return False
            if read not in seen and not _mixes_channels(made):
                seen.add(read)
                waiting += used_vars(made)
        return True

    def _cut(self, value: relax.Expr) -> tuple[relax.Expr, int] | None:
        """(whole, first channel) of a slice of channels."""
        made = self.values.get(value)
        if isinstance(made, relax.TupleGetItem):
            return self._part(made)
        if made is None or op_name(made) != "relax.strided_slice":
            return None
        whole, *bounds = made.args
        if not all(isinstance(bound, relax.Tuple) for bound in bounds):
            return None
        axes, begins, _, *steps = ([int(field) for field in bound.fields] for bound in bounds)
        last = rank_of(whole) - 1
        if [axis % rank_of(whole) for axis in axes] != [last] or (steps and steps[0] != [1]):
            return None
        size = shape_of(whole)[-1]
        return whole, min(max(begins[0] + size * (begins[0] < 0), 0), size)

    def _part(self, item: relax.TupleGetItem) -> tuple[relax.Expr, int] | None:
        """The same of a part of a split."""
        call = self.values.get(item.tuple_value)
        if call is None or op_name(call) != "relax.split":
            return None
        whole = call.args[0]
        if int(call.attrs.axis) % rank_of(whole) != rank_of(whole) - 1:
            return None
        before = call.ty.fields[: item.index]
        return whole, sum(int(field.shape.values[-1]) for field in before)


def _mixes_channels(expr: relax.Expr) -> bool:
    if op_name(expr) == "relax.nn.conv2d":
        return int(expr.attrs.groups) == 1
    return op_name(expr) == "relax.matmul"


def _weights_axis(call: relax.Call) -> int | None:
    """Axis of the weights along the channels of the data; None for another operator."""
    data, weights = call.args
    if not is_const(weights) or dtype_of(data) not in HALF_DTYPES:
        return None
    if op_name(call) == "relax.matmul":
        linear = rank_of(weights) == 2 and shape_of(weights)[1] <= _RESULTS
        return 0 if linear else None
    if not has_normal_layouts(call):
        return None
    results, *window, _ = shape_of(weights)
    pointwise = math.prod(window) == 1 and int(call.attrs.groups) == 1
    return 3 if pointwise and results <= _RESULTS else None
