"""Average pools as depthwise convolutions, whose filter has the same weight everywhere."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from tvm import relax
from tvm.relax.dpl import is_op, wildcard

from convoy.graph.expr import dtype_of, ints, make_const, numpy_dtype, padding4, shape_of
from convoy.ir.workload import Workload
from convoy.partition.patterns import Explicit


class AveragePool(Explicit):
    """``avg_pool2d`` that divides by the size of its window, border or not."""

    def __init__(self) -> None:
        self._pool = is_op("relax.nn.avg_pool2d")(wildcard())
        super().__init__("average_pool", self._pool, self._as_convolution)

    def _as_convolution(
        self, matched: Mapping[Any, relax.Expr], var: relax.Var
    ) -> tuple[Workload, list[relax.Expr]] | None:
        call = matched[self._pool]
        attrs, x, dtype = call.attrs, call.args[0], dtype_of(var)
        padding = padding4(attrs.padding)
        divides_evenly = bool(attrs.count_include_pad) or not any(padding)
        if str(attrs.layout) != "NHWC" or attrs.ceil_mode or not divides_evenly:
            return None
        (r, s), stride, dilation = ints(attrs.pool_size), ints(attrs.strides), ints(attrs.dilation)
        n, h, w, c = shape_of(x)
        workload = Workload(
            "fprop",
            *(n, h, w, c, c, r, s),
            stride=(stride[0], stride[-1]),
            padding=padding,
            dilation=(dilation[0], dilation[-1]),
            groups=c,
            dtype=dtype_of(x),
            out_dtype=dtype,
        )
        weights = make_const(np.full((c, r, s, 1), 1 / (r * s), numpy_dtype(dtype)))
        return workload, [x, weights]
