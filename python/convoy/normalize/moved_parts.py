"""Recognize permutations in concatenations of all parts of one tensor.

Models write the permutation of (i, a), blocks and the elements of each, to (a, i) so: they split
one axis and concatenate the parts along another. Its kernel would choose among the parts for every
element.
"""

from __future__ import annotations

from typing import ClassVar

from tvm import relax
from tvm.relax import op

from ..graph.expr import rank_of, shape_of
from ..graph.rewriter import Rewriter

#: A tensor, an axis, and where a part along it begins.
Part = tuple[relax.Expr, int, int]


class RecognizeMovedParts(Rewriter):
    """Rewrite such concatenations as reshapes and permutations."""

    ops: ClassVar[frozenset[str] | None] = frozenset({"relax.concat"})

    def rewrite(self, call: relax.Call, old: relax.Call) -> relax.Expr | None:
        fields = call.args[0].fields if isinstance(call.args[0], relax.Tuple) else []
        parts = [self._part(field) for field in fields]
        if len(parts) < 2 or parts[0] is None or call.attrs.axis is None:
            return None
        x, axis, _ = parts[0]
        to, size = int(call.attrs.axis) % rank_of(x), shape_of(fields[0])[axis]
        shape = shape_of(x)
        if axis == to or size * len(parts) != shape[axis]:
            return None
        if parts != [(x, axis, size * i) for i in range(len(parts))]:
            return None
        apart = self.reshaped(x, (*shape[:axis], len(parts), size, *shape[axis + 1 :]))
        order = list(range(len(shape) + 1))
        order.insert(to, order.pop(axis))
        return op.reshape(self.emit(op.permute_dims(apart, order)), shape_of(old))

    def _part(self, expr: relax.Expr) -> Part | None:
        """The slice that a value is, along one axis."""
        made = self.value_of.get(expr) if isinstance(expr, relax.Var) else expr
        if isinstance(made, relax.TupleGetItem):
            split = self.producer(made.tuple_value, "relax.split")
            if split is None:
                return None
            axis = int(split.attrs.axis) % rank_of(split.args[0])
            sizes = [int(field.shape.values[axis]) for field in split.ty.fields]
            return split.args[0], axis, sum(sizes[: made.index])
        cut = self.producer(expr, "relax.strided_slice")
        if cut is None or not all(isinstance(bound, relax.Tuple) for bound in cut.args[1:]):
            return None
        (x, *bounds), shape = cut.args, shape_of(expr)
        axes, begins, _, *steps = ([int(f.value) for f in bound.fields] for bound in bounds)
        changed = [i for i, a in enumerate(axes) if shape[a] != shape_of(x)[a]]
        if len(changed) != 1 or any(step != 1 for step in (steps[0] if steps else [])):
            return None
        axis, begin = axes[changed[0]] % len(shape), begins[changed[0]]
        return x, axis, begin + shape_of(x)[axis] * (begin < 0)
