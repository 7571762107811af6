"""Convert activations to NHWC and filters to OHWI with as few transpositions as possible; those of
volumes to NDHWC and ODHWI.

Each 4-d value may exist in two orders: the one the model was written in and a *view*, the same
value with its channels last. An operator with a rule works on the views of its operands and yields
a view; the value in the model's order is derived from it by a permute_dims, which dead code
elimination drops unless someone reads it. An operator without a rule reads the model's order, so
that an unknown operator costs transpositions and never correctness. A model in NHWC has no views
and only its filters change. Explicit permutations in the model (as exporters from channel-last
frameworks leave them) create or read views and so cancel. 5-d values have views too: in a network
with operators on volumes those of volumes, in others those of images whose channels are split into
groups (split attention, channel shuffles).
"""

from __future__ import annotations

from collections.abc import Callable

import tvm
from tvm import relax

from ..errors import UnsupportedLayout
from ..graph.expr import inverse, op_name, permutation_of, permute, rank_of, relax_ops, shape_of
from ..graph.function import calls_of
from ..graph.rewriter import Rewriter

#: Position in the view -> axis in the model's order, by the number of axes. 5-d values are
#: (batch, channels, depth, height, width), or (batch, groups, channels, height, width).
OF_VOLUMES = {4: (0, 2, 3, 1), 5: (0, 2, 3, 4, 1)}
OF_GROUPS = {4: (0, 2, 3, 1), 5: (0, 3, 4, 1, 2)}
#: Layouts of views and of filters.
DATA = {4: "NHWC", 5: "NDHWC"}
KERNEL = {4: "OHWI", 5: "ODHWI"}

_VOLUME_OPS = relax_ops(
    "nn.conv3d nn.conv3d_transpose nn.max_pool3d nn.avg_pool3d nn.adaptive_avg_pool3d "
    "image.resize3d"
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
    """The pass; rules are in ``layout_rules.py`` and ``layout_axes.py``."""

    def __init__(self) -> None:
        super().__init__()
        self.views: dict[relax.Var, relax.Expr] = {}
        #: The order of views, by the number of axes.
        self.to_last = OF_GROUPS

    def __call__(self, mod: tvm.IRModule) -> tvm.IRModule:
        self.to_last = OF_VOLUMES if calls_of(mod, _VOLUME_OPS) else OF_GROUPS
        return super().__call__(mod)

    def rewrite(self, call: relax.Call, old: relax.Call) -> relax.Expr | None:
        function = RULES.get(op_name(call))
        return function(self, call) if function else None

    def has_view(self, expr: relax.Expr) -> bool:
        return isinstance(expr, relax.Var) and expr in self.views

    def axis(self, axis: int, rank: int) -> int:
        """The axis in the view of one in the model's order."""
        return self.to_last[rank].index(int(axis) % rank)

    def view(self, expr: relax.Expr) -> relax.Expr:
        """``expr`` (4-d or 5-d) with its channels moved last."""
        if self.has_view(expr):
            return self.views[expr]
        shape = shape_of(expr)
        axes = self.to_last[len(shape)]
        if keeps_order(shape, axes):
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
        new = self.emit(relax.op.permute_dims(view, list(inverse(self.to_last[rank_of(view)]))))
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
        if axes == self.to_last[len(axes)]:
            return self.view(expr)
        return self.emit(relax.op.permute_dims(expr, list(axes)))

    def restored(self, view: relax.Expr, layout: str) -> relax.Expr:
        """A result with channels last given back in ``layout``."""
        axes = tuple(DATA[len(layout)].index(letter) for letter in layout)
        if layout == DATA[len(layout)]:
            return view
        if axes == inverse(self.to_last[len(axes)]):
            return self.unview(view)
        return self.emit(relax.op.permute_dims(view, list(axes)))


def keeps_order(shape: tuple[int, ...], axes: tuple[int, ...]) -> bool:
    """Whether the elements of a tensor lie in memory as those of its permutation."""
    moved = [axis for axis in axes if shape[axis] != 1]
    return moved == sorted(moved)


@rule("permute_dims")
def _permute_dims(p: ChannelsLast, call: relax.Call) -> relax.Expr | None:
    source, axes = call.args[0], permutation_of(call)
    if len(axes) not in p.to_last:
        return None
    to_last = p.to_last[len(axes)]
    if axes == to_last:
        return p.view(source)
    if axes == inverse(to_last):
        return p.unview(source)
    if not p.has_view(source):
        return None
    from_view = inverse(to_last)
    if axes[0] == 0 and axes[3:] == (3, 4) and p.to_last is OF_GROUPS:  # groups change places
        moved = [from_view[axes[a]] for a in to_last]
        return p.unview(p.emit(relax.op.permute_dims(p.views[source], moved)))
    return relax.op.permute_dims(p.views[source], [from_view[a] for a in axes])
