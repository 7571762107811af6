"""The largest or smallest elements of rows by kernels that keep a few of each tile
(:mod:`convoy.tir.topk`)."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import ClassVar

from tvm import relax
from tvm.relax import op

from ..graph.expr import dtype_of, inverse, rank_of, relax_ops, shape_of
from ..graph.rewriter import Rewriter
from ..tir.topk import MOST, Source, TopK, topk_kernel

_DTYPES = ("float32", "int32", "int64")


class SelectTopK(Rewriter):
    """Rewrite those that keep few elements; behind OrderNan, where keys are no NaN."""

    ops: ClassVar[frozenset[str] | None] = relax_ops("topk")
    infer_first: ClassVar[bool] = False

    def rewrite(self, call: relax.Call, old: relax.Call) -> relax.Expr | None:
        data, attrs = call.args[0], call.attrs
        shape, axis = shape_of(data), int(attrs.axis) % rank_of(data)
        size, k = shape[axis], int(attrs.k)
        if not 1 <= k <= min(MOST, size) or dtype_of(data) not in _DTYPES or 0 in shape:
            return None
        order = [*(i for i in range(len(shape)) if i != axis), axis]
        moved = self.emit(op.permute_dims(data, order)) if axis < len(shape) - 1 else data
        rows = math.prod(shape) // size
        whole = TopK(rows, size, k, dtype_of(data), bool(attrs.largest))
        found = self._selected(whole, self.reshaped(moved, (rows, size)), str(attrs.dtype))
        kept = (*(shape[i] for i in order[:-1]), k)
        parts = [self.reshaped(part, kept) for part in found]
        if axis < len(shape) - 1:
            back = list(inverse(tuple(order)))
            parts = [self.emit(op.permute_dims(part, back)) for part in parts]
        which = {"values": 0, "indices": 1}.get(str(attrs.ret_type))
        return relax.Tuple(parts) if which is None else parts[which]

    def _selected(self, whole: TopK, keys: relax.Expr, place_dtype: str) -> list[relax.Expr]:
        """Keys (rows, k) and their places."""
        found, source, group = [keys], Source(whole.size), whole.group
        if group:
            apart = self.reshaped(keys, (whole.rows, whole.size // group, group))
            first = self.emit((op.max if whole.largest else op.min)(apart, axis=[2]))
            groups = replace(whole, size=whole.size // group)
            found.append(self._selected(groups, first, "int32")[1])
            source = replace(source, group=group)
            whole = replace(whole, size=whole.k * group)
        steps = list(whole.steps())
        for step in steps:
            dtype = place_dtype if step is steps[-1] else "int32"
            made = topk_kernel(step, source, dtype).without_attr("global_symbol")
            kernel = self.builder.add_func(made, "topk")
            shape = (step.rows, step.kept)
            types = [relax.TensorType(shape, step.dtype), relax.TensorType(shape, dtype)]
            both = self.emit(op.call_tir(kernel, found, types))
            found = [self.emit(relax.TupleGetItem(both, i)) for i in range(2)]
            source = Source(step.kept, placed=True)
        return found
