"""Convert activations to NHWC and filters to OHWI with as few transpositions as possible; those of
volumes to NDHWC and ODHWI.

Each 4-d value may exist in two orders: the one the model was written in and a *view*, the same
value with its channels last. An operator with a rule works on the views of its operands and yields
a view; the value in the model's order is derived from it by a permute_dims, which dead code
elimination drops unless someone reads it. An operator without a rule reads the model's order, so
that an unknown operator costs transpositions and never correctness. A model in NHWC has no views
and only its filters change. Explicit permutations in the model (as exporters from channel-last
frameworks leave them) create or read views and so cancel. In a network with operators on volumes
5-d values have views too.
"""

from __future__ import annotations

from collections.abc import Callable

import tvm
from tvm import relax

from ..errors import UnsupportedLayout
from ..graph.expr import inverse, op_name, permutation_of, permute, rank_of, relax_ops, shape_of
from ..graph.rewriter import Rewriter, calls_of

#: Channels last: position in the view -> axis in the model's order, by the number of axes.
TO_LAST = {4: (0, 2, 3, 1), 5: (0, 2, 3, 4, 1)}
TO_SECOND = {4: (0, 3, 1, 2), 5: (0, 4, 1, 2, 3)}
#: Layouts of views and of filters.
DATA = {4: "NHWC", 5: "NDHWC"}
KERNEL = {4: "OHWI", 5: "ODHWI"}

_OF_VOLUMES = relax_ops(
    "nn.conv3d nn.conv3d_transpose nn.max_pool3d nn.avg_pool3d nn.adaptive_avg_pool3d"
)

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
        #: Numbers of axes of values that may have views.
        self.ranks: tuple[int, ...] = (4,)

    def __call__(self, mod: tvm.IRModule) -> tvm.IRModule:
        if calls_of(mod, _OF_VOLUMES):
            self.ranks = (4, 5)
        return super().__call__(mod)

    def rewrite(self, call: relax.Call, old: relax.Call) -> relax.Expr | None:
        function = RULES.get(op_name(call))
        return function(self, call) if function else None

    def has_view(self, expr: relax.Expr) -> bool:
        return isinstance(expr, relax.Var) and expr in self.views

    def view(self, expr: relax.Expr) -> relax.Expr:
        """``expr`` (4-d or 5-d) with axis 1 moved last."""
        if self.has_view(expr):
            return self.views[expr]
        shape = shape_of(expr)
        axes = TO_LAST[len(shape)]
        if shape[1] == 1 or {*shape[2:]} == {1}:  # the elements keep their order
            source = expr
            while (inner := self.producer(source, "relax.reshape")) is not None:
                source = inner.args[0]
            new = self.emit(relax.op.reshape(source, permute(shape, axes)))
        else:
            new = self.emit(relax.op.permute_dims(expr, list(axes)))
        if isinstance(expr, relax.Var):
            self.views[expr] = new
        return new

    def unview(self, view: relax.Expr) -> relax.Expr:
        """The value in the model's order whose view is ``view``."""
        new = self.emit(relax.op.permute_dims(view, list(TO_SECOND[rank_of(view)])))
        if isinstance(new, relax.Var):
            self.views[new] = view
        return new

    def ordered(self, expr: relax.Expr, layout: str, wanted: str, what: str) -> relax.Expr:
        """``expr`` transposed from ``layout`` to ``wanted``, permutations of each other."""
        if sorted(layout) != sorted(wanted):
            raise UnsupportedLayout(
                f"{what} in layout {layout}", f"a permutation of {wanted} without blocking"
            )
        axes = tuple(layout.index(letter) for letter in wanted)
        if layout == wanted:
            return expr
        if axes == TO_LAST[len(axes)]:
            return self.view(expr)
        return self.emit(relax.op.permute_dims(expr, list(axes)))

    def restored(self, view: relax.Expr, layout: str) -> relax.Expr:
        """A result with channels last given back in ``layout``."""
        axes = tuple(DATA[len(layout)].index(letter) for letter in layout)
        if layout == DATA[len(layout)]:
            return view
        if axes == TO_SECOND[len(axes)]:
            return self.unview(view)
        return self.emit(relax.op.permute_dims(view, list(axes)))


@rule("permute_dims")
def _permute_dims(p: ChannelsLast, call: relax.Call) -> relax.Expr | None:
    source, axes = call.args[0], permutation_of(call)
    if len(axes) not in p.ranks:
        return None
    if axes == TO_LAST[len(axes)]:
        return p.view(source)
    if axes == TO_SECOND[len(axes)]:
        return p.unview(source)
    if p.has_view(source):
        from_view = inverse(TO_LAST[len(axes)])
        return relax.op.permute_dims(p.views[source], [from_view[a] for a in axes])
    return None
