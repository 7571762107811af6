"""Compile each norm over the last axis to one GPU kernel, with the casts before and after it."""

from __future__ import annotations

import math
from collections import defaultdict
from typing import ClassVar

from tvm import relax

from ..graph.expr import as_numpy, dtype_of, ints, is_const, op_name, rank_of, relax_ops, shape_of
from ..graph.function import bindings_of, result_of, used_vars
from ..graph.rewriter import Rewriter
from ..ir.dtypes import FLOAT_DTYPES, HALF_DTYPES
from ..tir.row_norms import LONGEST_ROW, RowNorm, Run, kernel

_NORMS = relax_ops("nn.layer_norm nn.rms_norm nn.softmax nn.log_softmax")


class RowNorms(Rewriter):
    """Call :mod:`convoy.tir.row_norms`; other axes and very long rows are left to TVM.

    Norms are computed in float32 of 16-bit data and their results are mostly rounded again: the
    kernel reads and writes the 16-bit values.
    """

    ops: ClassVar[frozenset[str] | None] = _NORMS | relax_ops("astype reshape")
    infer_first: ClassVar[bool] = False

    def start(self, func: relax.Function) -> None:
        self._readers: dict[relax.Var, list[relax.Expr]] = defaultdict(list)
        for binding in bindings_of(func):
            for var in used_vars(binding.value):
                self._readers[var].append(binding.value)
        for var in used_vars(result_of(func)):
            self._readers[var].append(var)

    def rewrite(self, call: relax.Call, old: relax.Call) -> relax.Expr | None:
        if op_name(call) == "relax.astype":
            return call.args[0] if dtype_of(call.args[0]) == dtype_of(old) else None
        if op_name(call) == "relax.reshape":
            return self.reshaped(call.args[0], shape_of(old))
        *outer, columns = shape_of(old) or (0,)
        dtypes = {dtype_of(arg) for arg in old.args}
        if not 1 < columns <= LONGEST_ROW or not _of_last_axis(old) or dtypes != {"float32"}:
            return None
        data, factor = self._unscaled(call)
        made = self.producer(data, "relax.astype")
        if made is not None and dtype_of(made.args[0]) in HALF_DTYPES:
            data = made.args[0]  # what the kernel rounds up itself
        epsilon = float(getattr(call.attrs, "epsilon", 0.0))
        name = op_name(call).removeprefix("relax.nn.")
        dtype = self._written()
        data, run = self._cut_from(data, columns)
        norm = RowNorm(name, math.prod(outer), columns, dtype_of(data), dtype, epsilon, run, factor)
        flat = self.reshaped(data, norm.shape)
        callee = self.builder.add_func(kernel(norm), name)
        ty = relax.TensorType((norm.rows, columns), dtype)
        result = self.emit(relax.op.call_tir(callee, [flat, *call.args[1:]], ty))
        return relax.op.reshape(result, shape_of(old))

    def _unscaled(self, call: relax.Call) -> tuple[relax.Expr, float]:
        """The data, and the number that a softmax is of it times."""
        data = call.args[0]
        made = self.producer(data, "relax.multiply")
        if made is None or not op_name(call).endswith("softmax"):
            return data, 1.0
        x, number = made.args
        if not is_const(number) or as_numpy(number).size != 1 or shape_of(x) != shape_of(data):
            return data, 1.0
        return x, float(as_numpy(number).item())

    def _cut_from(self, data: relax.Expr, columns: int) -> tuple[relax.Expr, Run | None]:
        """The tensor that the rows are a slice of, so that the slice need not be copied."""
        whole = data
        while (view := self.producer(whole, "relax.reshape")) is not None:
            whole = view.args[0]
        cut = self.producer(whole, "relax.strided_slice")
        if cut is None or (run := _run(cut, columns)) is None:
            return data, None
        return cut.args[0], run

    def _written(self) -> str:
        """The 16-bit dtype to which every reader of the norm casts it; else float32."""
        readers = self._readers[self.old.var]
        casts = {dtype_of(r) if op_name(r) == "relax.astype" else "float32" for r in readers}
        return casts.pop() if len(casts) == 1 and casts <= {*FLOAT_DTYPES} else "float32"


def _run(cut: relax.Call, columns: int) -> Run | None:
    """The rows of a slice along one axis, if it consists of complete rows."""
    before, after = shape_of(cut.args[0]), shape_of(cut)
    changed = [axis for axis, size in enumerate(before) if after[axis] != size]
    if len(changed) != 1 or not all(isinstance(bound, relax.Tuple) for bound in cut.args[1:]):
        return None
    (axis,) = changed
    axes, begins, _, *steps = ([int(f) for f in bound.fields] for bound in cut.args[1:])
    if any(step != 1 for step in (steps[0] if steps else ())):
        return None
    size, inner = before[axis], math.prod(before[axis + 1 :])
    begin = begins[[a % len(before) for a in axes].index(axis)]
    begin = min(max(begin + size * (begin < 0), 0), size)
    count, rest = divmod(after[axis] * inner, columns)
    return None if rest else Run(size * inner, begin * inner, count)


def _of_last_axis(call: relax.Call) -> bool:
    last = (-1, rank_of(call) - 1)
    axes = ints(call.attrs.axes) if hasattr(call.attrs, "axes") else (int(call.attrs.axis),)
    return len(axes) == 1 and axes[0] in last
