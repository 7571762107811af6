"""Apply element-wise operators behind concatenated convolutions to each of these.

Of filters of several sizes side by side a batch norm and an activation follow the concatenation.
In front of it they become part of each convolution, which can then write its channels where they
lie in the wide tensor.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from tvm import relax

from ..graph.expr import (
    call_like,
    dtype_of,
    is_const,
    make_const,
    op_name,
    rank_of,
    relax_ops,
    shape_of,
)
from ..graph.rewriter import Rewriter
from .affine import channel_constant

_AFFINE = relax_ops("multiply add")
#: Activations that the kernels of all backends apply themselves.
_ACTIVATIONS = relax_ops("nn.relu clip sigmoid nn.silu")
_CONVOLUTIONS = relax_ops("nn.conv2d nn.conv3d")


class SplitElementwise(Rewriter):
    """Move scales, shifts and activations of a concatenation along the last axis in front of it,
    if its parts are convolutions and nothing else reads them or it. Runs on the channels-last
    graph."""

    ops: ClassVar[frozenset[str] | None] = _AFFINE | _ACTIVATIONS

    def __init__(self) -> None:
        super().__init__()
        #: Concatenations that were emitted here, with their parts.
        self._ours: dict[relax.Expr, list[relax.Expr]] = {}

    def rewrite(self, call: relax.Call, old: relax.Call) -> relax.Expr | None:
        place = 1 if op_name(call) in _AFFINE and is_const(call.args[0]) else 0
        parts = self._parts(call.args[place], old.args[place])
        if not parts:
            return None
        if op_name(call) in _ACTIVATIONS:
            made = [call_like(call, [part, *call.args[1:]]) for part in parts]
        else:
            values = channel_constant(call.args[1 - place], call.args[place])
            if values is None:
                return None
            ends = np.cumsum([shape_of(part)[-1] for part in parts])[:-1]
            constants = np.split(np.broadcast_to(values, shape_of(call)[-1:]), ends)
            made = [
                call_like(call, [part, make_const(constant, dtype_of(part))])
                for part, constant in zip(parts, constants, strict=True)
            ]
        fields = [self.emit(value) for value in made]
        whole = self.emit(relax.op.concat(fields, axis=-1))
        self._ours[whole] = fields
        return whole

    def _parts(self, new: relax.Expr, old: relax.Expr) -> list[relax.Expr]:
        """The convolutions that alone make a value, which is read once; empty if there are others
        or none."""
        if not isinstance(old, relax.Var) or self.uses[old] != 1:
            return []
        if new in self._ours:
            return self._ours[new]
        value = self.values.get(old)
        if value is None or op_name(value) != "relax.concat":
            return []
        if not isinstance(value.args[0], relax.Tuple):
            return []
        axis, fields = value.attrs.axis, list(value.args[0].fields)
        if axis is None or int(axis) % rank_of(new) != rank_of(new) - 1 or len(fields) < 2:
            return []
        if not all(self._is_convolution(field) for field in fields):
            return []
        return [self.rename(field) for field in fields]

    def _is_convolution(self, old: relax.Expr) -> bool:
        """Whether nothing else reads a convolution, with its bias if it has one."""
        if not isinstance(old, relax.Var) or self.uses[old] != 1:
            return False
        value = self.values.get(old)
        if value is not None and op_name(value) == "relax.add" and is_const(value.args[1]):
            return self._is_convolution(value.args[0])
        return op_name(value) in _CONVOLUTIONS
