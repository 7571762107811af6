"""Sorted rows, and the largest or smallest elements of rows, by kernels that keep a few of each
tile (:mod:`convoy.tir.topk`)."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import ClassVar

from tvm import relax, tirx
from tvm.relax import op

from ..graph.expr import dtype_of, inverse, op_name, rank_of, relax_ops, shape_of
from ..graph.rewriter import Rewriter
from ..tir.topk import LONGEST, LONGEST_TILE, MOST, TopK, merge_kernel, topk_kernel

_DTYPES = ("float32", "int32")
_SORTS = {"relax.sort": "values", "relax.argsort": "indices"}


class SelectTopK(Rewriter):
    """Rewrite those that keep few elements, and sorts of short rows; behind OrderNan, where keys
    are no NaN."""

    ops: ClassVar[frozenset[str] | None] = relax_ops("topk sort argsort")
    infer_first: ClassVar[bool] = False

    def rewrite(self, call: relax.Call, old: relax.Call) -> relax.Expr | None:
        data, attrs, sorts = call.args[0], call.attrs, op_name(call) in _SORTS
        shape, axis = shape_of(data), int(attrs.axis) % rank_of(data)
        size = shape[axis]
        k, largest = (size, attrs.descending) if sorts else (int(attrs.k), attrs.largest)
        fits = size <= LONGEST or k <= MOST
        if not 1 <= k <= size or not fits or dtype_of(data) not in _DTYPES or 0 in shape:
            return None
        order = [*(i for i in range(len(shape)) if i != axis), axis]
        moved = self.emit(op.permute_dims(data, order)) if axis < len(shape) - 1 else data
        whole = TopK(math.prod(shape) // size, size, k, dtype_of(data), bool(largest))
        found = self._selected(whole, self.reshaped(moved, (whole.rows, size)))
        kept = (*(shape[i] for i in order[:-1]), k)
        kind = _SORTS[op_name(call)] if sorts else str(attrs.ret_type)
        parts = {"values": found[:1], "indices": found[1:]}.get(kind, found)
        parts = [self.reshaped(part, kept) for part in parts]
        if axis < len(shape) - 1:
            back = list(inverse(tuple(order)))
            parts = [self.emit(op.permute_dims(part, back)) for part in parts]
        if kind != "values" and str(attrs.dtype) != "int64":
            parts[-1] = self.emit(op.astype(parts[-1], str(attrs.dtype)))
        return parts[0] if len(parts) == 1 else relax.Tuple(parts)

    def _selected(self, whole: TopK, keys: relax.Expr) -> list[relax.Expr]:
        """Keys (rows, k) and their places."""
        if whole.size > LONGEST_TILE and whole.k > MOST:
            step = replace(whole, k=LONGEST_TILE)
            kernel = topk_kernel(step, whole.size, groups=False, packed=False, last=False)
            tiles = self._call(kernel, [keys], step, ["int64"])
            return self._both(merge_kernel(step, whole.k), [tiles], whole)
        read, group = [keys], whole.group
        if group:
            apart = self.reshaped(keys, (whole.rows, whole.size // group, group))
            first = self.emit((op.max if whole.largest else op.min)(apart, axis=[2]))
            groups = replace(whole, size=whole.size // group)
            read.append(self._selected(groups, first)[1])
            whole = replace(whole, size=whole.k * group)
        size = shape_of(keys)[1]
        *steps, last = whole.steps()
        for step in steps:
            kernel = topk_kernel(step, size, len(read) > 1, step is not whole, last=False)
            read, size = [self._call(kernel, read, step, ["int64"])], step.kept
        kernel = topk_kernel(last, size, len(read) > 1, bool(steps), last=True)
        return self._both(kernel, read, last)

    def _both(self, kernel: tirx.PrimFunc, read: list[relax.Expr], whole: TopK) -> list[relax.Expr]:
        """Call a kernel whose results are keys and places."""
        both = self._call(kernel, read, whole, [whole.dtype, "int64"])
        return [self.emit(relax.TupleGetItem(both, i)) for i in range(2)]

    def _call(
        self, kernel: tirx.PrimFunc, read: list[relax.Expr], step: TopK, dtypes: list[str]
    ) -> relax.Var:
        """Call a kernel whose results are of these dtypes."""
        kept = step.kept if len(dtypes) == 1 else step.k
        types = [relax.TensorType((step.rows, kept), dtype) for dtype in dtypes]
        name = str(kernel.attrs["global_symbol"])
        var = self.builder.add_func(kernel.without_attr("global_symbol"), name)
        return self.emit(op.call_tir(var, read, types if len(types) > 1 else types[0]))
