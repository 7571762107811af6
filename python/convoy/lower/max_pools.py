"""Max pools of a training step: the taps that have the maxima are found with them.

On its own, a pool's gradient would read the pool's data again to find them.
"""

from __future__ import annotations

from typing import ClassVar

from tvm import relax

from ..graph.expr import attr_fields, dtype_of, op_name, shape_of
from ..graph.function import bindings_of
from ..graph.rewriter import Rewriter
from ..ops.pool_backward import MAX_POOL
from ..tir.pool_gradient import MaxPool
from .legalize_training import emit_maxima, pool_of, scattered

_FORWARD = "relax.nn.max_pool2d"
_WINDOW = ("pool_size", "strides", "padding", "dilation")


class KeepTaps(Rewriter):
    """Compute maxima and their taps by one kernel where a gradient reads them, on GPUs."""

    ops: ClassVar[frozenset[str] | None] = frozenset({MAX_POOL})

    def __init__(self) -> None:
        super().__init__()
        self._pools: dict[relax.Expr, MaxPool] = {}  # by their results
        self._taps: dict[relax.Expr, relax.Expr] = {}

    def takes(self, value: relax.Expr) -> bool:
        return super().takes(value) or (self.old is not None and self.old.var in self._pools)

    def start(self, func: relax.Function) -> None:
        for binding in bindings_of(func):
            call = binding.value
            if op_name(call) == MAX_POOL and (pool := self._pool(call)) is not None:
                self._pools[call.args[2]] = pool

    def rewrite(self, call: relax.Call, old: relax.Call) -> relax.Expr | None:
        if self.old.var in self._pools:
            pool = self._pools[self.old.var]
            y, self._taps[self.old.var] = emit_maxima(self.builder, pool, call.args[0])
            return y
        if old.args[2] not in self._taps:
            return None
        pool, which = self._pools[old.args[2]], self._taps[old.args[2]]
        return scattered(self.builder, pool, call.args[0], which)

    def _pool(self, gradient: relax.Call) -> MaxPool | None:
        """The pool of a gradient in NHWC, if the function has it."""
        _, x, y = gradient.args
        forward = self.values.get(y)
        if forward is None or op_name(forward) != _FORWARD or not forward.args[0].same_as(x):
            return None
        attrs, own = attr_fields(gradient.attrs), attr_fields(forward.attrs)
        same = all([*map(int, attrs[name])] == [*map(int, own[name])] for name in _WINDOW)
        if not same or str(attrs["layout"]) != "NHWC" or str(own["layout"]) != "NHWC":
            return None
        return pool_of(shape_of(x), shape_of(y), dtype_of(x), attrs)
