"""Convert activations to NHWC and filters to OHWI with as few transpositions as possible.

Each 4-d value may exist in two orders: the one the model was written in and a *view*, the same
value with its channels last. An operator with a rule works on the views of its operands and yields
a view; the value in the model's order is derived from it by a permute_dims, which dead code
elimination drops unless someone reads it. An operator without a rule reads the model's order, so
that an unknown operator costs transpositions and never correctness. A model in NHWC has no views
and only its filters change. Explicit permutations in the model (as exporters from channel-last
frameworks leave them) create or read views and so cancel.
"""

from __future__ import annotations

from collections.abc import Callable

from tvm import relax

from ..errors import UnsupportedLayout
from ..graph.expr import inverse, op_name, permutation_of, permute, shape_of
from ..graph.rewriter import Rewriter

#: Channels last: position in the view -> axis in the model's order.
TO_NHWC = (0, 2, 3, 1)
TO_NCHW = (0, 3, 1, 2)

Rule = Callable[["ChannelsLast", relax.Call], "relax.Expr | None"]
RULES: dict[str, Rule] = {}


def rule(*names: str) -> Callable[[Rule], Rule]:
    """Register a layout rule; a rule returns None to leave the call unchanged."""

    def register(function: Rule) -> Rule:
        for name in names:
            RULES[name if name.startswith("relax.") else f"relax.{name}"] = function
        return function

    return register


class ChannelsLast(Rewriter):
    """The pass; rules are in ``layout_rules.py``."""

    def __init__(self) -> None:
        super().__init__()
        self.views: dict[relax.Var, relax.Expr] = {}

    def rewrite(self, call: relax.Call, old: relax.Call) -> relax.Expr | None:
        function = RULES.get(op_name(call))
        return function(self, call) if function else None

    def has_view(self, expr: relax.Expr) -> bool:
        return isinstance(expr, relax.Var) and expr in self.views

    def view(self, expr: relax.Expr) -> relax.Expr:
        """``expr`` (4-d) with axis 1 moved last."""
        if self.has_view(expr):
            return self.views[expr]
        shape = shape_of(expr)
        if shape[1] == 1 or shape[2:] == (1, 1):  # the elements keep their order
            source = expr
            while (inner := self.producer(source, "relax.reshape")) is not None:
                source = inner.args[0]
            new = self.emit(relax.op.reshape(source, permute(shape, TO_NHWC)))
        else:
            new = self.emit(relax.op.permute_dims(expr, list(TO_NHWC)))
        if isinstance(expr, relax.Var):
            self.views[expr] = new
        return new

    def unview(self, nhwc: relax.Expr) -> relax.Expr:
        """The value in the model's order whose view is ``nhwc``."""
        new = self.emit(relax.op.permute_dims(nhwc, list(TO_NCHW)))
        if isinstance(new, relax.Var):
            self.views[new] = nhwc
        return new

    def ordered(self, expr: relax.Expr, layout: str, wanted: str, what: str) -> relax.Expr:
        """``expr`` transposed from ``layout`` to ``wanted``, both permutations of four letters."""
        if sorted(layout) != sorted(wanted):
            raise UnsupportedLayout(
                f"{what} in layout {layout}", f"a permutation of {wanted} without blocking"
            )
        axes = tuple(layout.index(letter) for letter in wanted)
        if axes == (0, 1, 2, 3):
            return expr
        if axes == TO_NHWC:
            return self.view(expr)
        return self.emit(relax.op.permute_dims(expr, list(axes)))

    def restored(self, nhwc: relax.Expr, layout: str) -> relax.Expr:
        """An NHWC result given back in ``layout``."""
        axes = tuple("NHWC".index(letter) for letter in layout)
        if axes == (0, 1, 2, 3):
            return nhwc
        if axes == TO_NCHW:
            return self.unview(nhwc)
        return self.emit(relax.op.permute_dims(nhwc, list(axes)))


@rule("permute_dims")
def _permute_dims(p: ChannelsLast, call: relax.Call) -> relax.Expr | None:
    source, axes = call.args[0], permutation_of(call)
    if axes == TO_NHWC:
        return p.view(source)
    if axes == TO_NCHW:
        return p.unview(source)
    if p.has_view(source):
        from_view = inverse(TO_NHWC)
        return relax.op.permute_dims(p.views[source], [from_view[a] for a in axes])
    return None
