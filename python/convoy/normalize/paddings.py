"""Fold padding before convolutions, and slices after them, into the convolutions' own padding.

Frameworks without uneven padding, and causal convolutions over time, pad the data with zeros first,
or pad both ends and drop the results at one of them.
"""

from __future__ import annotations

from typing import ClassVar

from tvm import relax

from ..graph.expr import (
    call_like,
    ints,
    op_name,
    padding4,
    padding_of,
    rank_of,
    relax_ops,
    shape_of,
)
from ..graph.rewriter import Rewriter

_CONV, _CONV_3D = "relax.nn.conv2d", "relax.nn.conv3d"
_UNARY = relax_ops(
    """
    nn.relu nn.leakyrelu nn.gelu nn.gelu_tanh nn.silu nn.softplus sigmoid tanh clip astype
    """
)
_BINARY = relax_ops("add subtract multiply maximum minimum")


class FoldPaddings(Rewriter):
    """Of convolutions with channels last; slices of 2-d ones."""

    ops: ClassVar[frozenset[str] | None] = frozenset({_CONV, _CONV_3D, "relax.strided_slice"})

    def __init__(self) -> None:
        super().__init__()
        self._old: dict[relax.Expr, relax.Var] = {}

    def rewrite(self, call: relax.Call, old: relax.Call) -> relax.Expr | None:
        return self._slice(call) if op_name(call) == "relax.strided_slice" else self._conv(call)

    def _conv(self, call: relax.Call) -> relax.Expr | None:
        pad = self.producer(call.args[0], "relax.nn.pad")
        if pad is None or str(call.attrs.data_layout) not in ("NHWC", "NDHWC"):
            return None
        if str(pad.attrs.pad_mode) != "constant" or float(pad.attrs.pad_value) != 0.0:
            return None
        width = ints(pad.attrs.pad_width)
        if any((*width[:2], *width[-2:])) or min(width) < 0:
            return None
        added = (*width[2:-2:2], *width[3:-2:2])
        own = padding_of(call.attrs.padding, rank_of(call) - 2)
        padding = [a + b for a, b in zip(own, added, strict=True)]
        return call_like(call, [pad.args[0], call.args[1]], padding=padding)

    def _slice(self, call: relax.Call) -> relax.Expr | None:
        """A slice of rows or columns of a convolution that nobody else reads."""
        found = _cut(call)
        if found is None:
            return None
        self._old = {new: old for old, new in self.renamed.items() if isinstance(new, relax.Var)}
        return self._without(call.args[0], *found)

    def _without(self, expr: relax.Expr, axis: int, before: int, after: int) -> relax.Expr | None:
        """``expr`` without its first and last rows (axis 1) or columns (2); None where it is not
        made of a convolution."""
        made = self.producer(expr)
        if made is None or expr not in self._old or self.uses[self._old[expr]] != 1:
            return None
        name = op_name(made)
        if name == _CONV:
            return self._narrowed(made, axis, before, after)
        if name not in _UNARY | _BINARY:
            return None
        args = list(made.args)
        count = 2 if name in _BINARY else 1
        wide = [i for i in range(count) if rank_of(args[i]) == 4 and shape_of(args[i])[axis] > 1]
        if len(wide) != 1:
            return None
        inner = self._without(args[wide[0]], axis, before, after)
        if inner is None:
            return None
        args[wide[0]] = inner
        return self.emit(call_like(made, args))

    def _narrowed(self, conv: relax.Call, axis: int, before: int, after: int) -> relax.Expr | None:
        padding, stride = list(padding4(conv.attrs.padding)), ints(conv.attrs.strides)[axis - 1]
        low, high = axis - 1, axis + 1
        padding[low] -= before * stride
        padding[high] -= after * stride
        if min(padding) < 0 or str(conv.attrs.out_layout or "NHWC") != "NHWC":
            return None
        return self.emit(call_like(conv, list(conv.args), padding=padding))


def _cut(call: relax.Call) -> tuple[int, int, int] | None:
    """(axis, elements cut off at the start, at the end) of a slice of rows or columns with step
    one."""
    x, *rest = call.args
    shape = shape_of(x)
    if len(shape) != 4 or not all(isinstance(part, relax.Tuple) for part in rest):
        return None
    if not all(hasattr(field, "value") for part in rest for field in part.fields):
        return None
    axes, begins = ([int(f.value) for f in part.fields] for part in rest[:2])
    if any(int(field.value) != 1 for part in rest[3:] for field in part.fields):
        return None
    changed = [i for i, axis in enumerate(axes) if shape_of(call)[axis % 4] != shape[axis % 4]]
    if len(changed) != 1 or axes[changed[0]] % 4 not in (1, 2):
        return None
    axis, begin = axes[changed[0]] % 4, begins[changed[0]]
    begin = min(max(begin + shape[axis] * (begin < 0), 0), shape[axis])
    after = shape[axis] - begin - shape_of(call)[axis]
    return axis, begin, after
