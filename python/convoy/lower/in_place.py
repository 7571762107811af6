"""Write the parts of a concatenation where they lie in it, and read slices where they are.

A concatenation of channels is a kernel of its own, which copies what other kernels have just
written. Here its parts become slices of the wide tensor (:mod:`convoy.graph.slices`), as far as
:mod:`channel_layout` finds that they can; others are copied by a kernel of their own. Likewise
library functions read slices of a tensor in it, which would be copied for them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import tvm
from tvm import relax, te

from ..graph.expr import shape_of
from ..graph.function import main_function
from ..graph.rewriter import Rewriter
from ..graph.slices import COPY, cut, join
from .channel_layout import Layout, Run
from .decompose import Decompose
from .slice_uses import CALL, CONCAT, SLICE, Sliceable, Uses


def write_in_place(
    mod: tvm.IRModule,
    target: tvm.target.Target,
    sliceable: Sliceable,
    moving_us: Callable[[int], float],
) -> tvm.IRModule:
    """Lay out the concatenations and slices of a network whose chosen subgraphs are calls.

    Args:
        sliceable: What its external functions can do.
        moving_us: Time of a kernel that moves this many bytes. A concatenation stays as it is
            where the kernels that remain would take longer.
    """
    with target:
        return _WriteInPlace(sliceable, moving_us)(Decompose()(mod))  # splits into slices


def uses_of(mod: tvm.IRModule, target: tvm.target.Target) -> Uses:
    """The values of a network as :func:`write_in_place` looks at them."""
    with target:
        return Uses(main_function(Decompose()(mod))[1])


class _WriteInPlace(Rewriter):
    infer_first: ClassVar[bool] = False
    ops: ClassVar[frozenset[str] | None] = frozenset({CONCAT, SLICE})

    def __init__(self, sliceable: Sliceable, moving_us: Callable[[int], float]) -> None:
        super().__init__()
        self._sliceable, self._moving_us = sliceable, moving_us

    def start(self, func: relax.Function) -> None:
        self._layout = Layout(Uses(func), self._sliceable, self._moving_us)

    def rewrite(self, call: relax.Call, old: relax.Call) -> relax.Expr | None:
        var = self.old.var
        if var in self._layout.cuts:
            return cut(call.args[0], self._layout.cuts[var], shape_of(var)[-1])
        if (runs := self._layout.joined.get(var)) is None:
            return None
        return join([self._part(run) for run in runs])

    def _part(self, run: Run) -> relax.Expr:
        parts = [self.rename(part) for part in run.parts]
        if not run.copied:
            return parts[0]
        if len(parts) > 1:
            return self.emit(relax.op.concat(parts, axis=len(shape_of(parts[0])) - 1))
        return self.emit(relax.op.call_dps_packed(COPY, parts, out_ty=parts[0].ty))


class CopyParts(Rewriter):
    """Make kernels of the copies; for fused modules, since TVM takes a copy for a view."""

    infer_first: ClassVar[bool] = False
    ops: ClassVar[frozenset[str] | None] = frozenset({CALL})

    def rewrite(self, call: relax.Call, old: relax.Call) -> relax.Expr | None:
        if str(call.args[0].global_symbol) != COPY:
            return None
        (part,) = call.args[1].fields
        return self.builder.call_te(copied, part, primfunc_name_hint="convoy_copy")


def copied(x: te.Tensor) -> te.Tensor:
    return te.compute(x.shape, lambda *i: x(*i), name="copied")
