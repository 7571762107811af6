"""Keep broadcasts of a reduction's result out of the reduction's kernel.

FuseOps fuses ``x * sigmoid(w v)``, the end of a squeeze-and-excitation block, into one kernel, and
in the same way the product of an image with a function of its channel means. Threads would either
repeat the reduction for each pixel or leave most of the GPU idle. A reduction over rows that is
broadcast over the same rows stays fused, because a thread block has the complete row; one that is
broadcast over longer rows, such as a mean of the means of channels, does not. FuseOps
fuses a mean with its producer or with its consumer: the larger of the two is its producer.
"""

from __future__ import annotations

import math
from typing import ClassVar

import tvm
from tvm import relax

from ..graph.expr import is_tensor, shape_of
from ..graph.rewriter import Rewriter

#: Attributes of functions that sum products, each with another vector, and of those that average.
PRODUCT, MEAN = "convoy.product", "convoy.mean"
_PATTERN, _BROADCAST, _INJECTIVE, _REDUCTION, _SUM = "op_pattern", 1, 2, 3, 4


class KeepSpreadApart(Rewriter):
    """Mark functions as injective, which FuseOps does not fuse into a reduction, if they read the
    result of a reduction, or elementwise functions of it, and write more elements."""

    infer_first: ClassVar[bool] = False
    ops: ClassVar[frozenset[str] | None] = frozenset({"relax.call_tir"})

    def __init__(self) -> None:
        super().__init__()
        #: Sums and what is computed of them: whether of a product, and the elements of each.
        self._sums: dict[relax.Var, tuple[bool, int]] = {}
        #: Functions that compute values.
        self._made: dict[relax.Var, tvm.ir.GlobalVar] = {}

    def __call__(self, mod: tvm.IRModule) -> tvm.IRModule:
        self._mod = mod
        named = [f for f in mod.functions.values() if isinstance(f, tvm.tirx.PrimFunc)]
        return super().__call__(mod) if any(_pattern(f) == _SUM for f in named) else mod

    def rewrite(self, call: relax.Call, old: relax.Call) -> relax.Expr | None:
        func, var = self._mod[old.args[0]], self.old.var
        self._made[var] = old.args[0]
        pattern = _pattern(func)
        if pattern == _SUM and _has(func, MEAN) and self._reads_own(old):
            return self._with_pattern(call, func, _REDUCTION, "of")
        if pattern == _SUM and is_tensor(var):
            longest = max((_elements(arg) for arg in old.args[1].fields), default=1)
            self._sums[var] = _has(func, PRODUCT), longest // max(1, _elements(var))
        read = [arg for arg in old.args[1].fields if arg in self._sums]
        if not read or pattern > _BROADCAST:
            return None
        of_product = any(self._sums[arg][0] for arg in read)
        wider = [arg for arg in read if _elements(arg) != _elements(var)]
        if not wider or not (of_product or any(self._is_spread(arg, var) for arg in wider)):
            self._sums[var] = of_product, max(self._sums[arg][1] for arg in read)
            return None
        return self._with_pattern(call, func, _INJECTIVE, "spread")

    def _with_pattern(
        self, call: relax.Call, func: tvm.tirx.PrimFunc, pattern: int, suffix: str
    ) -> relax.Call:
        """The call of a copy of its function with another pattern."""
        name = f"{call.args[0].name_hint}_{suffix}"
        apart = self.builder.add_func(func.with_attr(_PATTERN, pattern), name)
        return relax.Call(call.op, [apart, *call.args[1:]], call.attrs, call.ty_args, call.span)

    def _is_spread(self, value: relax.Var, result: relax.Expr) -> bool:
        """Whether a value is spread over more than the rows that it is of."""
        longer = _elements(result) > _elements(value) * self._sums[value][1]
        return longer or not _along_rows(value, result)

    def _reads_own(self, old: relax.Call) -> bool:
        """Whether a call alone reads what an element-wise function computes."""
        (data, *_) = old.args[1].fields
        made = self._made.get(data)
        own = made is not None and self.uses[data] == 1
        return own and _pattern(self._mod[made]) <= _BROADCAST


def _along_rows(value: relax.Expr, result: relax.Expr) -> bool:
    """Whether a value is spread along the last axes alone."""
    shape = shape_of(result)
    own = (1,) * (len(shape) - len(shape_of(value))) + shape_of(value)
    spread = [axis for axis, size in enumerate(own) if size != shape[axis]]
    return spread == list(range(len(shape) - len(spread), len(shape)))


def _elements(value: relax.Expr) -> int:
    return math.prod(shape_of(value))


def _pattern(func: tvm.tirx.PrimFunc) -> int:
    return int(func.attrs[_PATTERN]) if _has(func, _PATTERN) else _INJECTIVE


def _has(func: tvm.tirx.PrimFunc, key: str) -> bool:
    return bool(func.attrs) and key in func.attrs
