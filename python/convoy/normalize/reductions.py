"""Write reductions over one axis after the other, with reshapes between them, as one reduction.

Global maxima of images are imported as maxima of rows and then of columns, of views with axes of
one element. One reduction over both axes is one kernel, and of an image in any layout.
"""

from __future__ import annotations

from typing import ClassVar

from tvm import relax

from ..graph.expr import call_like, dtype_of, ints, op_name, relax_ops, shape_of
from ..graph.rewriter import Rewriter

_REDUCTIONS = relax_ops("max min sum prod mean")


class MergeReductions(Rewriter):
    """Merge reductions of one kind that have no other readers, and see through views that only add
    or remove axes of one element."""

    ops: ClassVar[frozenset[str] | None] = _REDUCTIONS

    def rewrite(self, call: relax.Call, old: relax.Call) -> relax.Expr | None:
        source, axes = old.args[0], _axes(old)
        while (before := self._before(source, axes, op_name(old))) is not None:
            source, axes = before
        if source.same_as(old.args[0]) or not axes:
            return None
        data = self.rename(source)
        whole = self.emit(call_like(call, [data], axis=sorted(axes), keepdims=True))
        return self.reshaped(whole, shape_of(call))

    def _before(
        self, value: relax.Expr, axes: set[int], name: str
    ) -> tuple[relax.Expr, set[int]] | None:
        """What an old value is a view or a reduction of, and the axes of it that are reduced after
        all, if some of an old value are."""
        made = self.values.get(value, value) if isinstance(value, relax.Var) else value
        if op_name(made) == "relax.reshape":
            taken: set[int] = set()
        elif op_name(made) == name and self.uses[value] == 1:
            taken = _axes(made)
        else:
            return None
        source = made.args[0]
        if dtype_of(source) != dtype_of(value):
            return None
        shape, own = shape_of(source), shape_of(value)
        kept = [axis for axis, size in enumerate(shape) if axis not in taken and size != 1]
        places = [axis for axis, size in enumerate(own) if size != 1]
        if [shape[axis] for axis in kept] != [own[axis] for axis in places]:
            return None
        axis_of = dict(zip(places, kept, strict=True))
        return source, taken | {axis_of[axis] for axis in axes if axis in axis_of}


def _axes(call: relax.Call) -> set[int]:
    """Axes that a reduction is over, those of one element aside."""
    shape, axes = shape_of(call.args[0]), call.attrs.axis
    rank = len(shape)
    over = range(rank) if axes is None else (axis % rank for axis in ints(axes))
    return {axis for axis in over if shape[axis] != 1}
