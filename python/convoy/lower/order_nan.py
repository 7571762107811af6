"""Orders and scatters of NaN as PyTorch has them: NaN is above infinity in an order, and the result
of a scattered maximum or minimum that it is part of.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from tvm import relax
from tvm.relax import op

from ..graph.expr import call_like, dtype_of, make_const, op_name, relax_ops
from ..graph.rewriter import Rewriter
from ..ir.dtypes import HALF_DTYPES

_ORDERS = relax_ops("sort argsort topk")
_SCATTERS = relax_ops("scatter_elements scatter_nd")
_EXTREMES = {"max": -np.inf, "min": np.inf}


class OrderNan(Rewriter):
    """Rewrite ``ops`` of floats; a module without any of them is returned unchanged."""

    ops: ClassVar[frozenset[str]] = _ORDERS | _SCATTERS

    def takes(self, value: relax.Expr) -> bool:
        return super().takes(value) and _concerned(value)

    def rewrite(self, call: relax.Call, old: relax.Call) -> relax.Expr | None:
        name = op_name(call)
        if name in _SCATTERS:
            return self._scatter(call)
        keys = self._keys(call.args[0])
        if name == "relax.sort":
            order = op.argsort(keys, call.attrs.axis, call.attrs.descending, "int64")
            return op.gather_elements(call.args[0], self.emit(order), call.attrs.axis)
        if name != "relax.topk":
            return call_like(call, [keys])
        attrs = call.attrs
        order = op.topk(
            keys, int(attrs.k), int(attrs.axis), "indices", bool(attrs.largest), str(attrs.dtype)
        )
        if attrs.ret_type == "indices":
            return order
        places = self.emit(order)
        values = op.gather_elements(call.args[0], places, int(attrs.axis))
        return values if attrs.ret_type == "values" else relax.Tuple([self.emit(values), places])

    def _keys(self, x: relax.Expr) -> relax.Expr:
        """Numbers in the order of x: NaN is infinite, and what is infinite the most of float32."""
        dtype = dtype_of(x)
        if dtype in HALF_DTYPES:
            x, dtype = self.emit(op.astype(x, "float32")), "float32"
        most, infinite = (make_const(np.array(v, dtype)) for v in (np.finfo(dtype).max, np.inf))
        bounded = self.emit(op.minimum(x, most))
        return self.emit(op.where(self.emit(op.isnan(x)), infinite, bounded))

    def _scatter(self, call: relax.Call) -> relax.Expr:
        """The scatter without NaN, and where some are scattered."""
        (x, index, source), dtype = call.args, dtype_of(call.args[0])
        neutral = make_const(np.array(_EXTREMES[str(call.attrs.reduction)]), dtype)
        numbers, marks = [], []
        for part in (x, source):
            wide = self.emit(op.astype(part, "float32")) if dtype == "bfloat16" else part
            missing = self.emit(op.isnan(wide))
            marks.append(self.emit(op.astype(missing, "int32")))
            numbers.append(self.emit(op.where(missing, neutral, part)))
        found = self.emit(call_like(call, [numbers[0], index, numbers[1]]))
        marked = self.emit(call_like(call, [marks[0], index, marks[1]], reduction="add"))
        nan = make_const(np.array(np.nan), dtype)
        return op.where(self.emit(op.greater(marked, make_const(np.array(0, "int32")))), nan, found)


def _concerned(call: relax.Call) -> bool:
    floats = "float" in dtype_of(call.args[0])
    return floats and (op_name(call) in _ORDERS or str(call.attrs.reduction) in _EXTREMES)
